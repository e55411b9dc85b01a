/** The timeline: lanes of threads and streams of one or more ranks, from the whole run down to single events. */

import { address } from "../../api/client";
import type { Brief, EventShown, FirstView, Timeline, TraceState } from "../../api/types";
import { numberOf } from "../../browser/route";
import { report } from "../../report/embedded";
import { check, chosenTraces, closeMenus, drop, heldLanes, list, listed, oneMenu, rankBoxes } from "../../timeline/controls";
import { seriesName } from "../../timeline/labels";
import { type Track, seriesKey } from "../../timeline/layout";
import { type Chosen, TimelineView } from "../../timeline/view";
import type { Window } from "../../timeline/viewport";
import { h, replace, type Child } from "../../ui/dom";
import { fileLink } from "../../ui/file_link";
import { problemBox, problemLine } from "../../ui/notices";
import type { Context, Page } from "../../ui/page";
import { windowNote, windowOf } from "../../ui/report_note";
import { choice, nothing, rankName } from "../../ui/ui";
import * as format from "../../words/format";
import { named, t } from "../../words/i18n";
import { drawDraft, lookedAt } from "./draft";
import { helpDialog } from "./help";
import { Hover } from "./hover";
import { Measuring, Notes, areaOf, areaText, measuredBox } from "./marks";
import { RANK_MS, STEP_MS, firstView, placed, soon, viewOf } from "./opening";
import { Panel } from "./panel";

/** a draft may be painted for so long before all events are asked for */
const DRAFT_MS = 500;

export const timeline: Page = {
  id: "timeline",
  title: "page.timeline",
  async show(context) {
    const { draft } = context.run;
    if (!draft) return wholePage(context);
    // the timeline is still being laid out: that takes the processors, which are to paint its draft first
    const leaving = new AbortController();
    const signal = AbortSignal.any([leaving.signal, context.signal]);
    let painted = (): void => undefined;
    const seen = new Promise<void>((done) => {
      painted = done;
      setTimeout(done, DRAFT_MS);
    });
    const held = h("div", null);
    // what cannot be drawn is shown once it is laid out
    replace(
      held,
      await drawDraft(context, draft, signal, painted).catch(() => h("p", { class: "note", role: "status" }, t("loading"))),
    );
    const whole = seen
      .then(() => wholePage(context))
      .catch((error: unknown) => (context.signal.aborted ? null : problemBox(error)));
    context.pending.push(
      whole.then((one) => {
        leaving.abort();
        if (!context.signal.aborted) replace(held, one);
      }),
    );
    return held;
  },
  draft: (context, draft, painted) => drawDraft(context, draft, context.signal, painted),
};

async function wholePage(context: Context): Promise<Child> {
  const ranks = context.run.traces;
  // one of several ranks is shown: the one that the verdict names
  const several = context.params["rank"] === undefined && ranks.length > 1;
  const first = several ? await soon(firstView(context), RANK_MS) : null;
  const traces = first ? [first.trace] : chosenTraces(context, ranks);
  const found = await Promise.all(traces.map((trace) => context.api.get("timeline", { trace })));
  const events = found.reduce((sum, one) => sum + one.events, 0);
  if (!events) return [rankBoxes(context, ranks, traces), nothing(t("timeline.none"), t("timeline.none.why"))];
  const tracks: Track[] = found.map((one, place) => ({
    trace: traces[place]!,
    name: rankName(
      ranks.find((rank) => rank.trace === traces[place])!,
      ranks,
    ),
    lanes: one.lanes,
    series: one.series,
  }));
  const filled = found.filter((one) => one.events);
  const bounds = { start: Math.min(...filled.map((one) => one.start_ns)), end: Math.max(...filled.map((one) => one.end_ns)) };
  const looked = lookedAt(context.run) ?? (await windowOf(context.run.run));
  const step = looked || placed(context) ? null : first ? Promise.resolve(first) : firstView(context, traces[0]!);
  const begin = step && (await soon(step, STEP_MS));
  const focus = looked ?? viewOf(begin, bounds);
  const page = new TimelinePage(
    context,
    ranks,
    traces,
    tracks,
    found[0]!.steps,
    bounds,
    focus,
    found.map((one) => one.unplaced),
    begin,
  );
  // of millions of events all is shown first, and the step once it is known
  if (step && !begin) context.pending.push(step.then((late) => page.begin(late)));
  return page.element;
}

class TimelinePage {
  readonly element: HTMLElement;
  private readonly view: TimelineView;
  private readonly panel: Panel;
  private readonly said = h("span", { class: "note", role: "status" });
  private readonly input: HTMLInputElement;
  private readonly steps: readonly { id: number; start: number; end: number; text: string }[];
  private current: { trace: number; brief: Brief } | null = null;
  private searching = new AbortController();
  private moved = false;
  private chooser: HTMLElement | null = null;
  /** all about the chosen event, once it is there */
  private shown: { trace: number; brief: EventShown } | null = null;
  private readonly help = helpDialog();
  private readonly notes: Notes;
  private readonly measuring: Measuring;

  constructor(
    private readonly context: Context,
    ranks: readonly TraceState[],
    private readonly traces: readonly number[],
    private readonly tracks: readonly Track[],
    steps: Timeline["steps"],
    private readonly bounds: Window,
    focus: Window,
    unplaced: readonly Record<string, number>[],
    private first: FirstView | null,
  ) {
    this.steps = steps.map((one) => ({ id: one.step, start: one.start_ns, end: one.end_ns, text: String(one.step) }));
    this.panel = new Panel(context, {
      go: (trace, brief) => this.go(trace, brief),
      find: (text) => void this.find(text, true),
      shown: (trace, brief) => this.details(trace, brief),
      mark: (trace, brief) => this.mark({ trace, brief }),
      rankOf: (trace) => this.tracks.find((one) => one.trace === trace)?.name ?? "",
    });
    const hover = new Hover(context);
    const { params } = context;
    const [start, end] = [numberOf(params, "start"), numberOf(params, "end")];
    const window = start !== null && end !== null && end > start ? { start, end } : focus;
    this.view = new TimelineView(
      context,
      tracks,
      bounds,
      this.steps,
      { window, held: heldLanes(params["pin"]) },
      {
        chosen: (one) => {
          context.note({ event: one ? `${one.trace}.${one.event}` : null });
          this.shown = null;
          this.measuring?.to(null);
          if (one) void this.panel.event(one.trace, one.event);
          else this.panel.hint();
        },
        selected: (range, lanes) => {
          context.note({ area: range && lanes.length ? areaText({ range, lanes }) : null });
          if (range && lanes.length) void this.panel.selection(range, lanes);
        },
        held: (lanes) => context.note({ pin: lanes.map((one) => `${one.trace}.${one.lane}`).join(",") || null }),
        hovered: (one, tip) => hover.over(one, tip),
        key: (key) => this.key(key),
        moved: (window) => {
          this.moved = true;
          context.note({ start: Math.max(Math.floor(window.start), 0), end: Math.max(Math.ceil(window.end), 1) });
        },
      },
    );
    this.measuring = new Measuring(context, this.view);
    this.notes = new Notes(context, this.view, () => {
      const { start, end } = this.view.window;
      return this.shown?.brief.start_ns ?? (start + end) / 2;
    });
    this.input = h("input", {
      type: "search",
      placeholder: t("timeline.find"),
      "aria-label": t("timeline.find"),
      value: params["find"] ?? "",
      autocomplete: "off",
    });
    const lost = unplaced.reduce((sum, one) => sum + Object.values(one).reduce((all, count) => all + count, 0), 0);
    this.element = h(
      "div",
      { class: "timeline-page" },
      h(
        "div",
        { class: "controls" },
        rankBoxes(context, ranks, traces),
        this.stepChoice(),
        h(
          "form",
          { role: "search", "aria-label": t("timeline.find"), class: "filter", onsubmit: (event: Event) => this.submit(event) },
          this.input,
          h("button", { type: "submit" }, t("timeline.next")),
          h("button", { type: "button", onclick: () => void this.next("previous") }, t("timeline.previous")),
        ),
        this.said,
        this.sourceBoxes(),
        this.seriesBoxes(),
        this.arrowsBox(),
        h("button", { type: "button", onclick: () => this.view.move(bounds) }, t("timeline.whole")),
        h("button", { type: "button", onclick: () => this.view.selectWindow() }, t("timeline.statistics")),
        this.notes.element,
        this.downloads(),
        h(
          "button",
          {
            type: "button",
            class: "help-button",
            title: t("timeline.help"),
            "aria-label": t("timeline.help"),
            onclick: () => this.help.showModal(),
          },
          "?",
        ),
      ),
      windowNote(context.run.run),
      new Set(ranks.filter((one) => traces.includes(one.trace)).map((one) => one.origin_ns)).size > 1
        ? h("p", { class: "callout" }, t("timeline.clocks"))
        : null,
      lost ? h("p", { class: "note" }, t("timeline.unplaced", { count: format.count(lost) })) : null,
      this.view.element,
      this.panel.element,
      this.help,
    );
    oneMenu(this.element, context.signal);
    this.open();
  }

  /** Show what the address asks for. */
  private open(): void {
    const { params } = this.context;
    if (this.first) this.tellFirst(this.first);
    const step = this.steps.find((one) => String(one.id) === params["step"]);
    if (step && params["start"] === undefined) this.view.setStep(step);
    else if (step) this.view.setStep(null);
    if (params["flows"] === "1") this.view.setArrows(true);
    for (const source of listed(this.context, "hide")) this.view.setSource(source, false);
    for (const key of listed(this.context, "curves")) this.view.setSeries(key, true);
    const chosen = /^(\d{1,9})\.(\d{1,10})$/.exec(params["event"] ?? "");
    const kept =
      chosen && this.traces.includes(Number(chosen[1])) ? { trace: Number(chosen[1]), event: Number(chosen[2]) } : null;
    const mark = /^(\d{1,9})\.(\d{1,10})$/.exec(params["mark"] ?? "");
    if (mark) void this.remark(Number(mark[1]), Number(mark[2]), kept);
    const area = areaOf(params["area"], this.tracks);
    if (area) this.view.setArea(area);
    if (kept) this.view.choose(kept);
    else if (area) this.view.selected();
    if (params["find"]) void this.find(params["find"], false, kept);
  }

  /** The event that the address measures from. */
  private async remark(trace: number, event: number, kept: Chosen | null): Promise<void> {
    const brief = await this.context.api.get("timeline/events/{event}", { trace, event }).catch(() => null);
    if (!brief) return;
    this.measuring.mark({ trace, brief });
    if (kept) void this.panel.event(kept.trace, kept.event);
  }

  private stepChoice(): HTMLElement | null {
    if (!this.steps.length) return null;
    return (this.chooser = choice(
      t("step"),
      [["", t("steps.all")], ...this.steps.map((one): [string, string] => [String(one.id), `${t("step")} ${one.id}`])],
      this.context.params["step"] ?? (this.first ? String(this.first.step) : ""),
      (value) => {
        const step = this.steps.find((one) => String(one.id) === value) ?? null;
        this.context.note({ step: value || null });
        this.view.setStep(step);
        if (!step) this.view.move(this.bounds);
      },
    ));
  }

  /** Say which step is shown first, and why it is this one. */
  private tellFirst(first: FirstView): void {
    this.panel.hint(t("timeline.opened", { step: first.step }));
  }

  private sourceBoxes(): Child {
    const sources = [...new Set(this.tracks.flatMap((one) => one.lanes.map((lane) => lane.source)))];
    return drop(
      t("timeline.lanes"),
      sources.map((source) =>
        check(named("lane", source, source), !listed(this.context, "hide").has(source), (shown) => {
          list(this.context, "hide", source, !shown);
          this.view.setSource(source, shown);
        }),
      ),
    );
  }

  private seriesBoxes(): Child {
    const all = this.tracks.flatMap((one) =>
      one.series
        .filter((series) => series.samples > 0)
        .map((series) => ({
          key: seriesKey(one.trace, series),
          label: this.tracks.length > 1 ? `${one.name}: ${seriesName(series.label)}` : seriesName(series.label),
        })),
    );
    if (!all.length) return null;
    return drop(
      t("timeline.curves"),
      all.map((one) =>
        check(one.label, listed(this.context, "curves").has(one.key), (shown) => {
          list(this.context, "curves", one.key, shown);
          this.view.setSeries(one.key, shown);
        }),
      ),
    );
  }

  private arrowsBox(): Child {
    return check(t("timeline.arrows"), this.context.params["flows"] === "1", (shown) => {
      this.context.note({ flows: shown ? "1" : null });
      this.view.setArrows(shown);
    });
  }

  /** The window as it is when the link is followed, for Perfetto: all shown ranks in one file, and each alone. */
  private downloads(): Child {
    if (report()) return null;
    const link = (text: string, label: string, of: { trace: number } | { traces: string }): HTMLElement =>
      fileLink(text, () => this.fileOf(of), { "aria-label": label, title: t("timeline.download.why") });
    const download = t("timeline.download");
    if (this.tracks.length === 1) return link(download, download, { trace: this.tracks[0]!.trace });
    const together = `${download}: ${t("timeline.download.together", { count: this.tracks.length })}`;
    return [
      link(together, together, { traces: this.traces.join(",") }),
      drop(
        t("timeline.download.single"),
        this.tracks.map((track) => link(track.name, `${download}: ${track.name}`, { trace: track.trace })),
      ),
    ];
  }

  private fileOf(of: { trace: number } | { traces: string }): string {
    const { start, end } = this.view.window;
    return address(`runs/${this.context.run.run}/download`, {
      ...of,
      to: "chrome",
      start_ns: Math.floor(start),
      end_ns: Math.ceil(end),
    });
  }

  /** Show the step to begin with, where the user has not moved yet. */
  begin(first: FirstView | null): void {
    if (!first || this.moved) return;
    this.first = first;
    this.view.move(viewOf(first, this.bounds));
    this.tellFirst(first);
    const list = this.chooser?.querySelector("select");
    if (list) list.value = String(first.step);
  }

  /** What stands above the details of an event: how far it is from the marked one. */
  private details(trace: number, brief: EventShown): Child {
    this.shown = { trace, brief };
    const measured = this.measuring.to(this.shown);
    return measured && measuredBox(measured, () => this.mark(null));
  }

  private mark(from: { trace: number; brief: EventShown } | null): void {
    this.measuring.mark(from);
    if (this.shown) void this.panel.event(this.shown.trace, this.shown.brief.event);
  }

  /** The keys besides those that move. */
  private key(key: string): boolean {
    switch (key) {
      case "?":
        this.help.showModal();
        return true;
      case "m":
        if (this.shown) this.mark(this.shown);
        return true;
      case "n":
        this.notes.write();
        return true;
      case "/":
        this.input.focus();
        return true;
      case "f":
        if (this.shown) this.view.fit({ start: this.shown.brief.start_ns, end: this.shown.brief.end_ns });
        return true;
      case "Escape":
        if (closeMenus(this.element)) return true;
        if (!this.measuring.on) return false;
        this.mark(null);
        return true;
      default:
        return false;
    }
  }

  private go(trace: number, brief: Brief): void {
    this.current = { trace, brief };
    this.view.choose({ trace, event: brief.event }, brief, true);
  }

  private submit(event: Event): void {
    event.preventDefault();
    const text = this.input.value.trim();
    if (text && text === this.context.params["find"]) void this.next("next");
    else void this.find(text, false);
  }

  /** Look for a name, mark it, list its longest events, and go to the first one; or stay at the one that the address names. */
  private async find(text: string, whole: boolean, kept: Chosen | null = null): Promise<void> {
    this.input.value = text;
    this.context.note({ find: text || null });
    this.view.setFind(text);
    this.current = null;
    replace(this.said);
    if (!text) return;
    if (kept) {
      const brief = await this.context.api
        .get("timeline/events/{event}", { trace: kept.trace, event: kept.event })
        .catch(() => null);
      if (brief) this.current = { trace: kept.trace, brief };
    }
    await this.next("next", whole, this.current !== null);
    const trace = this.traces[0]!;
    if (!this.current || !kept) await this.panel.occurrences(trace, text, whole);
  }

  private async next(direction: "next" | "previous", whole = false, stay = false): Promise<void> {
    const text = this.input.value.trim();
    if (!text) return;
    this.searching.abort();
    this.searching = new AbortController();
    const { signal } = this.searching;
    try {
      const from = this.current;
      const trace = from?.trace ?? this.traces[0]!;
      const found = await this.context.api.get(
        "timeline/search",
        {
          trace,
          text,
          whole,
          direction,
          ...(from
            ? { from_ns: from.brief.start_ns, from_event: from.brief.event }
            : direction === "previous"
              ? { from_ns: Math.ceil(this.view.window.end) }
              : {}),
        },
        AbortSignal.any([signal, this.context.signal]),
      );
      replace(
        this.said,
        found.total
          ? t("timeline.hits", {
              events: t("timeline.lane_events", { count: format.count(found.total) }),
              tracks: t("timeline.tracks", { count: format.count(Object.keys(found.lanes).length) }),
            })
          : t("search.nothing"),
        found.total && !found.next ? ` ${t("timeline.no_more")}` : "",
      );
      if (found.next && !stay) this.go(trace, found.next);
    } catch (error) {
      if (!signal.aborted && !this.context.signal.aborted) replace(this.said, problemLine(error));
    }
  }
}
