/** Below the canvas: the chosen event, the statistics of a selection, and the occurrences of a name. */

import type { RunApi } from "../../api/client";
import type { Brief, EventShown, Flame, NameInSelection, Occurrences } from "../../api/types";
import { report } from "../../report/embedded";
import type { Window } from "../../timeline/viewport";
import { type Child, h, replace } from "../../ui/dom";
import { problemBox } from "../../ui/notices";
import type { Context } from "../../ui/page";
import { smallTable } from "../../ui/ui";
import * as format from "../../words/format";
import { type Key, named, t } from "../../words/i18n";
import { flameView } from "./flame";

const MOST_LINKS = 12;
const MOST_NAMES = 100;
const MOST_FOUND = 200;

/** How a selection is told: by name, or as a flame of calls, modules or stacks. */
type By = "table" | Flame["by"];
/** what is said where there is nothing to make a flame of */
const NOT_RECORDED: Readonly<Record<Flame["by"], Key>> = {
  name: "timeline.flame.none",
  module: "timeline.flame.not.module",
  stack: "timeline.flame.not.stack",
};
type Lanes = readonly { trace: number; lane: number }[];

export interface Actions {
  go: (trace: number, brief: Brief) => void;
  find: (text: string) => void;
  /** all that is known about the chosen event is there; gives what stands above it */
  shown: (trace: number, event: EventShown) => Child;
  /** others are measured from it */
  mark: (trace: number, event: EventShown) => void;
  rankOf: (trace: number) => string;
}

export class Panel {
  readonly element = h("section", { class: "timeline-panel", "aria-label": t("timeline.details"), "aria-live": "polite" });
  private asked = 0;
  private by: By = "table";

  constructor(
    private readonly context: Context,
    private readonly actions: Actions,
  ) {
    this.hint();
  }

  /** What to do here; `before` says what is shown. */
  hint(before = ""): void {
    this.asked++;
    replace(this.element, h("p", { class: "note" }, before, before ? " " : "", t("timeline.hint")));
  }

  private async fill(make: (api: RunApi) => Promise<Child>): Promise<void> {
    const number = ++this.asked;
    try {
      const content = await make(this.context.api);
      if (number === this.asked) replace(this.element, content);
    } catch (error) {
      if (number === this.asked && !this.context.signal.aborted) replace(this.element, problemBox(error));
    }
  }

  event(trace: number, event: number): Promise<void> {
    return this.fill(async (api) => this.details(trace, await api.get("timeline/events/{event}", { trace, event })));
  }

  private details(trace: number, found: EventShown): Child {
    const where = JSON.stringify([{ column: "name", one_of: [found.name] }]);
    const inOperators = found.table === "ops";
    const inKernels = found.table === "kernels";
    return [
      this.actions.shown(trace, found),
      h("h2", null, format.shorten(found.name, 300)),
      found.partial ? h("p", { class: "note" }, t("report.partial")) : null,
      h(
        "p",
        null,
        h("b", null, format.time(found.end_ns - found.start_ns)),
        ` · ${t("timeline.from", { start: format.moment(found.start_ns, 1), end: format.moment(found.end_ns, 1) })}`,
      ),
      h(
        "p",
        { class: "actions" },
        h("button", { type: "button", onclick: () => this.actions.go(trace, found) }, t("timeline.zoom")),
        h("button", { type: "button", onclick: () => this.actions.find(found.name) }, t("timeline.same")),
        h("button", { type: "button", onclick: () => this.actions.mark(trace, found) }, t("timeline.measure")),
        inOperators
          ? h(
              "a",
              { class: "button", href: this.context.to("operators", { rank: trace, "operators.where": where }) },
              t("timeline.in_operators"),
            )
          : null,
        inKernels
          ? h(
              "a",
              { class: "button", href: this.context.to("kernels", { rank: trace, "kernels.where": where }) },
              t("timeline.in_kernels"),
            )
          : null,
      ),
      h(
        "div",
        { class: "two" },
        h(
          "dl",
          { class: "pairs" },
          Object.entries(found.columns).map(([name, value]) => [
            h("dt", null, named("column", name)),
            h("dd", null, cell(name, value)),
          ]),
        ),
        h(
          "div",
          null,
          found.links.map((link) => [
            h("h3", null, `${named("value", `link.${link.kind}`, link.kind)} (${format.count(link.count)})`),
            h(
              "ul",
              { class: "links" },
              link.events
                .slice(0, MOST_LINKS)
                .map((one) =>
                  h(
                    "li",
                    null,
                    h(
                      "button",
                      { type: "button", class: "plain", onclick: () => this.actions.go(trace, one) },
                      format.shorten(one.name, 120),
                    ),
                    h("span", { class: "note" }, ` ${format.time(one.end_ns - one.start_ns)}`),
                  ),
                ),
            ),
          ]),
        ),
      ),
    ];
  }

  selection(range: Window, lanes: Lanes): Promise<void> {
    return this.fill(async (api) => {
      const traces = [...new Set(lanes.map((one) => one.trace))];
      const [start_ns, end_ns] = [Math.floor(range.start), Math.ceil(range.end)];
      const queries = traces.map((trace) => ({
        trace,
        start_ns,
        end_ns,
        lanes: lanes
          .filter((one) => one.trace === trace)
          .map((one) => one.lane)
          .join(","),
      }));
      const parts = await Promise.all(
        queries.map(async (query) => ({
          trace: query.trace,
          found: await api.get("timeline/selection", { ...query, limit: MOST_NAMES }),
        })),
      );
      const names = parts
        .flatMap(({ trace, found }) => found.names.map((row): [number, NameInSelection] => [trace, row]))
        .sort((one, other) => other[1].total_ns - one[1].total_ns);
      const events = parts.reduce((sum, { found }) => sum + found.lanes.reduce((all, lane) => all + lane.count, 0), 0);
      const covered = parts.reduce((sum, { found }) => sum + found.lanes.reduce((all, lane) => all + lane.covered_ns, 0), 0);
      const cut = parts.reduce((sum, { found }) => sum + found.lanes.reduce((all, lane) => all + lane.cut, 0), 0);
      const different = parts.reduce((sum, { found }) => sum + found.different, 0);
      const told = h("div", null);
      const show = async (): Promise<void> => {
        const { by } = this;
        if (by === "table") return replace(told, this.namesTable(names, different));
        replace(told, h("p", { class: "note", role: "status" }, t("loading")));
        const flames = await Promise.all(queries.map((query) => api.get("timeline/flame", { ...query, by })));
        if (by !== this.by) return;
        replace(
          told,
          flames.map((flame, place) => [
            queries.length > 1 ? h("h3", null, this.actions.rankOf(queries[place]!.trace)) : null,
            flame.offered.includes(by) ? flameView(flame) : h("p", { class: "note" }, t(NOT_RECORDED[by])),
          ]),
        );
      };
      const tabs = this.tabs(() => void show().catch((error: unknown) => replace(told, problemBox(error))));
      await show();
      return [
        h(
          "h2",
          null,
          t("timeline.selection", {
            span: format.time(end_ns - start_ns),
            tracks: t("timeline.tracks", { count: format.count(lanes.length) }),
            events: t("timeline.lane_events", { count: format.count(events) }),
          }),
        ),
        h(
          "p",
          { class: "note" },
          t("timeline.covered", {
            time: format.time(covered),
            share: format.share(covered / Math.max((end_ns - start_ns) * lanes.length, 1)),
          }),
          " ",
          t(cut ? "timeline.inside.cut" : "timeline.inside", { cut: format.count(cut) }),
        ),
        tabs,
        told,
      ];
    });
  }

  /** By what a selection is told; a report has what is by name only. */
  private tabs(changed: () => void): Child {
    if (report()) return null;
    const ways: readonly [By, string][] = [
      ["table", t("timeline.by.table")],
      ["name", t("timeline.by.name")],
      ["module", t("timeline.by.module")],
      ["stack", t("timeline.by.stack")],
    ];
    const buttons = ways.map(([by, text]) =>
      h(
        "button",
        {
          type: "button",
          "data-by": by,
          "aria-pressed": String(by === this.by),
          onclick: () => {
            this.by = by;
            for (const one of buttons) one.setAttribute("aria-pressed", String(one.dataset["by"] === by));
            changed();
          },
        },
        text,
      ),
    );
    return h("div", { class: "actions", role: "group", "aria-label": t("timeline.by") }, buttons);
  }

  private namesTable(names: readonly (readonly [number, NameInSelection])[], different: number): Child {
    return [
      different > names.length
        ? h("p", { class: "note" }, t("timeline.largest", { shown: format.count(names.length), all: format.count(different) }))
        : null,
      smallTable(
        t("timeline.names"),
        [
          named("column", "name"),
          t("timeline.kind"),
          named("column", "count"),
          named("column", "total_ns"),
          named("column", "self_ns"),
          t("mean"),
          named("column", "min_ns"),
          named("column", "max_ns"),
        ],
        names.slice(0, MOST_NAMES).map(([trace, row]) => [
          h(
            "button",
            {
              type: "button",
              class: "plain",
              title: t("timeline.longest"),
              onclick: () => void this.jump(trace, row.longest),
            },
            format.shorten(row.name, 160),
          ),
          named("lane", row.source, row.source),
          format.count(row.count),
          format.time(row.total_ns),
          format.time(row.self_ns),
          format.time(row.total_ns / Math.max(row.count, 1)),
          format.time(row.min_ns),
          format.time(row.max_ns),
        ]),
        [2, 3, 4, 5, 6, 7],
      ),
    ];
  }

  private async jump(trace: number, event: number): Promise<void> {
    this.actions.go(trace, await this.context.api.get("timeline/events/{event}", { trace, event }));
  }

  occurrences(trace: number, text: string, whole: boolean): Promise<void> {
    return this.fill(async (api) =>
      this.found(trace, text, await api.get("timeline/occurrences", { trace, text, whole, by: "duration", limit: MOST_FOUND })),
    );
  }

  private found(trace: number, text: string, found: Occurrences): Child {
    return [
      h("h2", null, t("timeline.found", { count: format.count(found.total), text: format.shorten(text, 120) })),
      found.total > found.events.length
        ? h("p", { class: "note" }, t("timeline.longest_first", { shown: format.count(found.events.length) }))
        : null,
      smallTable(
        t("timeline.occurrences"),
        [named("column", "name"), named("column", "start_ns"), named("column", "duration_ns")],
        found.events.map((one) => [
          h(
            "button",
            { type: "button", class: "plain", onclick: () => this.actions.go(trace, one) },
            format.shorten(one.name, 160),
          ),
          format.moment(one.start_ns, 1e3),
          format.time(one.end_ns - one.start_ns),
        ]),
        [1, 2],
      ),
    ];
  }
}

/** A value of the row of an event; absolute times are told as they are, durations in their unit. */
function cell(name: string, value: unknown): string {
  if (typeof value === "number" && /_ns$/.test(name) && value < 1e15) return format.time(value);
  if (typeof value === "number" && /^bytes$|allocated|reserved/.test(name)) return format.bytes(value);
  return format.shorten(format.value(value, ""), 4000);
}
