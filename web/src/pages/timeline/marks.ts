/** What the user puts on the timeline and the address keeps: notes at moments, and an event that others are measured from. */

import type { Brief } from "../../api/types";
import { heldLanes } from "../../timeline/controls";
import type { Track } from "../../timeline/layout";
import type { Area, Measured, Note, Placed } from "../../timeline/picture";
import type { TimelineView } from "../../timeline/view";
import { type Child, h, replace } from "../../ui/dom";
import type { Context } from "../../ui/page";
import * as format from "../../words/format";
import { t } from "../../words/i18n";

const MOST_NOTES = 50;
const LONGEST_NOTE = 200;

/** The notes of an address: `[[time, text], ...]`. */
export function notesOf(text: string | undefined): Note[] {
  try {
    const found: unknown = JSON.parse(text ?? "[]");
    if (!Array.isArray(found)) return [];
    return found.slice(0, MOST_NOTES).flatMap((one: unknown): Note[] => {
      if (!Array.isArray(one) || typeof one[0] !== "number" || typeof one[1] !== "string") return [];
      return [{ time: one[0], text: one[1].slice(0, LONGEST_NOTE) }];
    });
  } catch {
    return [];
  }
}

/** What is selected, as the address keeps it: `start-end`, and rank and track of each lane. */
export const areaText = ({ range, lanes }: Area): string =>
  `${range.start}-${range.end}:${lanes.map((one) => `${one.trace}.${one.lane}`).join(",")}`;

/** What an address has selected; null where that is nothing of these tracks. */
export function areaOf(text: string | undefined, tracks: readonly Track[]): Area | null {
  const found = /^(-?\d{1,16})-(-?\d{1,16}):([\d.,]+)$/.exec(text ?? "");
  if (!found) return null;
  const range = { start: Number(found[1]), end: Number(found[2]) };
  const lanes = heldLanes(found[3]).filter(({ trace, lane }) => tracks.find((one) => one.trace === trace)?.lanes[lane]);
  return lanes.length && range.end >= range.start ? { range, lanes } : null;
}

export class Notes {
  readonly element: HTMLDetailsElement;
  private notes: Note[];
  private readonly listed = h("ul", { class: "notes" });
  private readonly summary = h("summary", null);
  private readonly input = h("input", {
    type: "text",
    maxlength: LONGEST_NOTE,
    placeholder: t("timeline.note.text"),
    "aria-label": t("timeline.note.text"),
    autocomplete: "off",
  });

  /** `here` is the moment that a new note is for. */
  constructor(
    private readonly context: Context,
    private readonly view: TimelineView,
    private readonly here: () => number,
  ) {
    this.notes = notesOf(context.params["notes"]);
    this.element = h(
      "details",
      { class: "drop" },
      this.summary,
      h(
        "div",
        { class: "drop-list" },
        this.listed,
        h(
          "form",
          {
            class: "filter",
            onsubmit: (event: Event) => {
              event.preventDefault();
              this.add();
            },
          },
          this.input,
          h("button", { type: "submit" }, t("timeline.note.add")),
        ),
        h("p", { class: "note" }, t("timeline.note.where")),
      ),
    );
    this.show();
  }

  /** Let the user write one. */
  write(): void {
    this.element.open = true;
    this.input.focus();
  }

  private add(): void {
    const text = this.input.value.trim();
    if (!text || this.notes.length >= MOST_NOTES) return;
    this.input.value = "";
    this.notes = [...this.notes, { time: Math.round(this.here()), text }].sort((one, other) => one.time - other.time);
    this.changed();
    this.element.open = false;
  }

  private changed(): void {
    this.context.note({
      notes: this.notes.length ? JSON.stringify(this.notes.map((one) => [one.time, one.text])) : null,
    });
    this.show();
  }

  private show(): void {
    this.summary.textContent = this.notes.length
      ? `${t("timeline.notes")} (${format.count(this.notes.length)})`
      : t("timeline.notes");
    replace(
      this.listed,
      this.notes.map((one) =>
        h(
          "li",
          null,
          h("button", { type: "button", class: "plain", onclick: () => this.go(one.time) }, one.text),
          h("span", { class: "note" }, ` ${format.moment(one.time, 1e3)} `),
          h(
            "button",
            {
              type: "button",
              class: "plain",
              "aria-label": `${t("timeline.note.remove")}: ${one.text}`,
              title: t("timeline.note.remove"),
              onclick: () => {
                this.notes = this.notes.filter((other) => other !== one);
                this.changed();
              },
            },
            "✕",
          ),
        ),
      ),
    );
    this.view.setNotes(this.notes);
  }

  private go(time: number): void {
    const { start, end } = this.view.window;
    const half = (end - start) / 2;
    this.view.move({ start: time - half, end: time + half });
  }
}

/** What lies between two events: all figures in ns. */
export function between(from: Brief, to: Brief): { gap: number; starts: number; ends: number } {
  return {
    // of events that overlap it is how much they do, below zero
    gap: Math.max(from.start_ns, to.start_ns) - Math.min(from.end_ns, to.end_ns),
    starts: to.start_ns - from.start_ns,
    ends: to.end_ns - from.end_ns,
  };
}

/** An event that is marked, and the one that is chosen after it. */
export class Measuring {
  private from: Placed | null = null;

  constructor(
    private readonly context: Context,
    private readonly view: TimelineView,
  ) {}

  get on(): boolean {
    return this.from !== null;
  }

  /** Mark an event; null takes the mark away. */
  mark(from: Placed | null): void {
    this.from = from;
    this.context.note({ mark: from ? `${from.trace}.${from.brief.event}` : null });
    this.to(null);
  }

  /** Another event is chosen; what lies between both is drawn. */
  to(to: Placed | null): Measured | null {
    const { from } = this;
    const same = from !== null && to !== null && from.trace === to.trace && from.brief.event === to.brief.event;
    const other = same ? null : to;
    const measured = from && { from, to: other, text: other ? gapText(between(from.brief, other.brief).gap) : "" };
    this.view.setMeasured(measured);
    return measured;
  }
}

const gapText = (gap: number): string =>
  t(gap < 0 ? "timeline.measure.overlap" : "timeline.measure.gap", { time: format.time(Math.abs(gap)) });

/** What is measured, as a part of the panel. */
export function measuredBox({ from, to }: Measured, stop: () => void): Child {
  const signed = (value: number): string => (value < 0 ? `−${format.time(-value)}` : format.time(value));
  const figures = to && between(from.brief, to.brief);
  return h(
    "div",
    { class: "callout measured", role: "status" },
    figures
      ? [
          h("b", null, gapText(figures.gap)),
          ` · ${t("timeline.measure.starts", { time: signed(figures.starts) })}`,
          ` · ${t("timeline.measure.ends", { time: signed(figures.ends) })}`,
          h("div", { class: "note" }, `${format.shorten(from.brief.name, 80)} → ${format.shorten(to.brief.name, 80)}`),
        ]
      : t("timeline.measure.second", { name: format.shorten(from.brief.name, 120) }),
    " ",
    h("button", { type: "button", onclick: stop }, t("timeline.measure.stop")),
  );
}
