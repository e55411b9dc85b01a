/** The timeline: what is visible of it, what is chosen, and how the user moves through it. */

import type { Brief } from "../api/types";
import { keep, kept } from "../browser/storage";
import { onChange } from "../browser/theme";
import { h, replace } from "../ui/dom";
import type { Context } from "../ui/page";
import * as format from "../words/format";
import { named, t } from "../words/i18n";
import { Curves } from "./curves";
import type { Tally } from "./draw";
import { CLICK_PX, type Moved, follow, listenTo } from "./gestures";
import { drawLabels } from "./labels";
import { type LaneId, Lanes } from "./lanes";
import type { Track } from "./layout";
import { type Area, BAR_PX, type Hit, type Look, type Measured, type Note, Picture, type Step } from "./picture";
import { type Window, around, clamped, zoomed } from "./viewport";

/** how wide the names of the lanes may be made, by default and at least; what is left for the lanes */
const LABELS_PX = 250;
const LEAST_LABELS_PX = 90;
const LEAST_CANVAS_PX = 200;
const LABELS_KEPT = "steplens.timeline.labels";
/** a second press so soon belongs to a double click */
const DOUBLE_MS = 400;
const NOTE_MS = 300;

export interface Chosen {
  trace: number;
  event: number;
}

export interface Listener {
  chosen: (one: Chosen | null) => void;
  /** a stretch of time was selected on some lanes */
  selected: (range: Window | null, lanes: readonly LaneId[]) => void;
  moved: (window: Window) => void;
  /** other lanes are held at the top */
  held: (lanes: readonly LaneId[]) => void;
  /** the first events are on the canvas */
  painted?: () => void;
  /** the pointer rests on an event, or on none any more */
  hovered?: (one: Hit | null, tip: HTMLElement) => void;
  /** a key was pressed that only the page knows; whether it does */
  key?: (key: string) => boolean;
}

/** What is shown when the page is opened; `draft` where it is some events of many. */
export interface Start {
  window: Window;
  held: readonly LaneId[];
  draft?: boolean;
}

export class TimelineView implements Moved {
  readonly element: HTMLElement;
  window: Window;
  private find = "";
  private chosen: Chosen | null = null;
  private area: Area | null = null;
  private measured: Measured | null = null;
  private notes: readonly Note[] = [];
  private labelsPx = LABELS_PX;
  private pressed = { time: -Infinity, x: 0, y: 0 };
  private step: Window | null = null;
  private readonly curves: Curves;
  private readonly lanes: Lanes;
  private readonly picture: Picture;
  /** what is told to the browser with the first events on the canvas; benchmarks/browser.py reads it */
  private mark: string;
  private planned = 0;
  private noted: ReturnType<typeof setTimeout> | undefined;
  private readonly labels = h("div", { class: "timeline-labels" });
  private readonly divider: HTMLElement;
  private readonly content: HTMLElement;
  private readonly scroller: HTMLElement;
  private readonly tip = h("div", { class: "tip timeline-tip", role: "status" });
  private readonly status = h("p", { class: "timeline-status", role: "status" });
  private readonly legend = h("p", { class: "timeline-legend", role: "group", "aria-label": t("timeline.phases") });

  constructor(
    private readonly context: Context,
    private readonly tracks: readonly Track[],
    readonly bounds: Window,
    steps: readonly Step[],
    start: Start,
    private readonly listener: Listener,
  ) {
    this.window = clamped(start.window, bounds);
    this.mark = start.draft ? "draft painted" : "timeline painted";
    const redraw = (): void => this.plan();
    this.curves = new Curves(context, redraw);
    this.lanes = new Lanes(tracks, this.curves, start.held);
    this.picture = new Picture(context, tracks, this.lanes, this.curves, bounds, steps, redraw);
    this.divider = h("div", {
      class: "timeline-divider",
      role: "separator",
      tabindex: 0,
      "aria-orientation": "vertical",
      "aria-label": t("timeline.divider"),
      title: t("timeline.divider"),
    });
    this.content = h("div", { class: "timeline-content" }, this.labels, this.picture.canvas);
    this.scroller = h(
      "div",
      { class: "timeline-scroll", tabindex: 0, role: "application", "aria-label": t("timeline.keys") },
      this.content,
    );
    this.tip.hidden = true;
    this.element = h(
      "div",
      { class: "timeline-view" },
      this.picture.ruler,
      this.scroller,
      this.divider,
      this.tip,
      h("div", { class: "timeline-foot" }, this.status, this.legend),
    );
    this.setLabels(Number(kept(LABELS_KEPT)) || LABELS_PX);
    this.listen();
    this.arranged();
  }

  private listen(): void {
    const { signal } = this.context;
    const sizes = new ResizeObserver(() => (this.lanes.fill(this.scroller.clientHeight) ? this.arranged() : this.plan()));
    sizes.observe(this.scroller);
    this.scroller.addEventListener("scroll", () => this.plan(), { passive: true });
    const { canvas, ruler } = this.picture;
    listenTo(this, canvas, ruler, this.scroller, BAR_PX, signal);
    canvas.addEventListener("pointermove", (event) => this.onHover(event));
    canvas.addEventListener("pointerleave", () => this.hideTip());
    this.divider.addEventListener("pointerdown", (event) => {
      event.preventDefault();
      this.divider.focus();
      const { left } = this.element.getBoundingClientRect();
      follow(
        this.divider,
        event,
        (next) => this.setLabels(next.clientX - left),
        () => keep(LABELS_KEPT, String(this.labelsPx)),
      );
    });
    this.divider.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -20, ArrowRight: 20 }[event.key];
      if (by === undefined) return;
      event.preventDefault();
      this.setLabels(this.labelsPx + by);
      keep(LABELS_KEPT, String(this.labelsPx));
    });
    onChange(() => {
      this.picture.recolour();
      this.explain();
      this.plan();
    }, signal);
    signal.addEventListener("abort", () => {
      sizes.disconnect();
      cancelAnimationFrame(this.planned);
      clearTimeout(this.noted);
      this.picture.stop();
    });
  }

  /** Make the column of the names so wide, as far as there is room. */
  private setLabels(pixels: number): void {
    const most = Math.max((this.scroller.clientWidth || Infinity) - LEAST_CANVAS_PX, LEAST_LABELS_PX);
    this.labelsPx = Math.round(Math.min(Math.max(pixels, LEAST_LABELS_PX), most));
    this.element.style.setProperty("--labels", `${this.labelsPx}px`);
    this.divider.setAttribute("aria-valuenow", String(this.labelsPx));
    this.plan();
  }

  /** The lanes lie elsewhere now. */
  private arranged(): void {
    this.lanes.fill(this.scroller.clientHeight);
    this.content.style.height = `${this.lanes.height}px`;
    drawLabels(this.labels, this.lanes, {
      toggle: (trace, lane) => {
        this.lanes.toggle(trace, lane);
        this.arranged();
      },
      pin: (trace, lane) => {
        this.lanes.pin(trace, lane);
        this.arranged();
        this.listener.held(this.lanes.heldLanes);
      },
      toggleHead: (key) => {
        this.lanes.toggleHead(key);
        this.arranged();
      },
    });
    this.plan();
  }

  setSource(source: string, shown: boolean): void {
    this.lanes.setSource(source, shown);
    this.arranged();
  }

  setSeries(key: string, shown: boolean): void {
    this.curves.set(key, shown);
    this.lanes.arrange();
    this.arranged();
  }

  setArrows(shown: boolean): void {
    this.curves.arrowsShown = shown;
    this.plan();
  }

  setFind(text: string): void {
    this.find = text.toLowerCase();
    this.plan();
  }

  setStep(step: Window | null): void {
    this.step = step;
    if (!step) return this.plan();
    const beside = (step.end - step.start) * 0.03;
    this.move({ start: step.start - beside, end: step.end + beside });
  }

  /** Show a window, and tell it to the address when it has come to rest. */
  move(window: Window): void {
    this.window = clamped(window, this.bounds);
    this.plan();
    clearTimeout(this.noted);
    this.noted = setTimeout(() => this.listener.moved(this.window), NOTE_MS);
  }

  /** Choose an event; with `bring` it is also brought into view. */
  choose(one: Chosen | null, brief?: Brief, bring = false): void {
    this.chosen = one;
    if (one && brief) {
      if (this.lanes.reveal(one.trace, brief.lane, brief.depth)) this.arranged();
      const outside = brief.start_ns > this.window.end || brief.end_ns < this.window.start;
      const tiny = (brief.end_ns - brief.start_ns) / (this.window.end - this.window.start) < 0.01;
      if (bring && (outside || tiny)) this.move(around(brief.start_ns, brief.end_ns, this.bounds));
      if (bring) this.scrollTo(one.trace, brief);
    }
    this.plan();
    this.listener.chosen(one);
  }

  private scrollTo(trace: number, brief: Brief): void {
    const band = this.lanes.bandOf(trace, brief.lane);
    if (!band || band.held) return;
    const y = band.top + brief.depth * band.row;
    const { scrollTop, clientHeight } = this.scroller;
    if (y < scrollTop + this.lanes.held || y > scrollTop + clientHeight - 2 * band.row)
      this.scroller.scrollTop = y - (clientHeight + this.lanes.held) / 2;
  }

  /** Paint with the next frame of the screen. */
  private plan(): void {
    if (this.planned) return;
    this.planned = requestAnimationFrame(() => {
      this.planned = 0;
      if (!this.context.signal.aborted) this.say(this.picture.paint(this.look()));
    });
  }

  get width(): number {
    return Math.max(this.scroller.clientWidth - this.labelsPx, 50);
  }

  private look(): Look {
    const { window, width, chosen, find, step, area, measured, notes } = this;
    return {
      window,
      width,
      chosen,
      find,
      step,
      area,
      measured,
      notes,
      scroll: this.scroller.scrollTop,
      room: this.scroller.clientHeight,
    };
  }

  private say(tally: Tally): void {
    const span = this.window.end - this.window.start;
    const parts = [
      t("timeline.window", { start: format.moment(Math.max(this.window.start, 0), span / 1000), span: format.time(span) }),
      t("timeline.tally", { single: format.count(tally.single), merged: format.count(tally.merged) }),
    ];
    const { waiting, problem } = this.picture;
    if (waiting) parts.push(t("loading"));
    if (problem) parts.push(problem instanceof Error ? problem.message : String(problem));
    const text = parts.join(" · ");
    if (this.status.textContent !== text) this.status.textContent = text;
    this.element.dataset["waiting"] = String(waiting || this.curves.waiting);
    if (!this.mark || !(tally.single + tally.merged)) return;
    performance.mark(this.mark);
    const draft = this.mark !== "timeline painted";
    this.mark = "";
    this.listener.painted?.();
    if (!draft) void this.colour();
  }

  /** Colour the events by phase: asked for once the first ones are painted. */
  private async colour(): Promise<void> {
    for (const { trace } of this.tracks) {
      const found = await this.context.api.get("timeline/phases", { trace }).catch(() => null);
      if (!found || this.context.signal.aborted) continue;
      this.picture.setPhases(trace, found);
      this.explain();
      this.plan();
    }
  }

  /** Which colour is which phase. */
  private explain(): void {
    replace(
      this.legend,
      this.picture
        .phasesShown()
        .map(([part, colour]) =>
          h("span", null, h("i", { style: { background: colour }, "aria-hidden": "true" }), named("part", part)),
        ),
    );
  }

  timeAt(x: number): number {
    return this.window.start + (x / this.width) * (this.window.end - this.window.start);
  }

  private hit(event: MouseEvent): Hit | null {
    return this.picture.hit(this.look(), event.offsetX, event.offsetY);
  }

  private hideTip(): void {
    this.tip.hidden = true;
    this.listener.hovered?.(null, this.tip);
  }

  private onHover(event: PointerEvent): void {
    if (event.buttons) return;
    const found = this.hit(event);
    if (!found) return this.hideTip();
    const length = format.time(found.count > 1 ? found.busy : found.end - found.start);
    const place = `${found.trace}.${found.event}.${found.count}`;
    if (this.tip.hidden || this.tip.dataset["of"] !== place) {
      this.tip.dataset["of"] = place;
      replace(
        this.tip,
        h("strong", null, format.shorten(found.name, 200)),
        h("div", null, found.count > 1 ? t("timeline.several", { count: format.count(found.count), time: length }) : length),
      );
      this.tip.hidden = false;
      this.listener.hovered?.(found.count > 1 ? null : found, this.tip);
    }
    const { left, top } = this.element.getBoundingClientRect();
    const { clientWidth, clientHeight } = this.element;
    this.tip.style.left = `${Math.max(Math.min(event.clientX - left + 14, clientWidth - this.tip.offsetWidth - 8), 0)}px`;
    // below the pointer, or above it where there is no room
    const below = event.clientY - top + 16;
    const above = event.clientY - top - this.tip.offsetHeight - 8;
    this.tip.style.top = `${below + this.tip.offsetHeight > clientHeight && above > 0 ? above : below}px`;
  }

  click(event: PointerEvent): void {
    const { time, x, y } = this.pressed;
    this.pressed = { time: performance.now(), x: event.offsetX, y: event.offsetY };
    // the second press of a double click
    if (this.pressed.time - time < DOUBLE_MS && Math.hypot(event.offsetX - x, event.offsetY - y) < CLICK_PX) return;
    this.hideTip();
    const found = this.hit(event);
    this.area = null;
    // several events in one box: closer, so that they come apart
    if (found && found.count > 1) this.move(zoomed(this.window, this.bounds, 0.25, this.timeAt(event.offsetX)));
    this.listener.selected(null, []);
    this.choose(found ? { trace: found.trace, event: found.event } : null);
  }

  /** Two clicks: the event fills the window. */
  zoomTo(event: MouseEvent): void {
    const found = this.hit(event);
    if (!found) return;
    this.hideTip();
    this.fit({ start: found.start, end: found.end });
  }

  /** Let a stretch of time fill the window, but for a little beside it. */
  fit({ start, end }: Window): void {
    const beside = Math.max((end - start) * 0.05, 1);
    this.move({ start: start - beside, end: end + beside });
  }

  select(range: Window, one: number, other: number): void {
    const bands = this.lanes.visible(this.scroller.scrollTop, Math.min(one, other), Math.max(one, other) + 1);
    const lanes = bands.flatMap((band) => (band.kind === "lane" ? [{ trace: band.trace, lane: band.lane.lane }] : []));
    this.setArea({ range, lanes });
    this.hideTip();
  }

  selected(): void {
    if (this.area) this.listener.selected(this.area.range, this.area.lanes);
  }

  /** Mark what is selected: whole ns, as it is counted. */
  setArea(area: Area | null): void {
    this.area = area && {
      range: { start: Math.floor(area.range.start), end: Math.ceil(area.range.end) },
      lanes: area.lanes,
    };
    this.plan();
  }

  /** What can be seen: the window on all lanes that are shown. */
  selectWindow(): void {
    const lanes = this.lanes.all.flatMap((band) => (band.kind === "lane" ? [{ trace: band.trace, lane: band.lane.lane }] : []));
    this.setArea({ range: this.window, lanes });
    this.selected();
  }

  setMeasured(measured: Measured | null): void {
    this.measured = measured;
    this.plan();
  }

  setNotes(notes: readonly Note[]): void {
    this.notes = notes;
    this.plan();
  }

  fitSelection(): void {
    if (this.area) this.move(this.area.range);
    else if (this.chosen) this.otherKey("f");
  }

  clear(): void {
    this.area = null;
    this.choose(null);
    this.listener.selected(null, []);
  }

  otherKey(key: string): boolean {
    return this.listener.key?.(key) ?? false;
  }
}
