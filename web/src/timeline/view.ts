/** The timeline: what is visible of it, what is chosen, and how the user moves through it. */

import type { Brief } from "../api/types";
import { onChange } from "../browser/theme";
import { h, replace } from "../ui/dom";
import type { Context } from "../ui/page";
import * as format from "../words/format";
import { t } from "../words/i18n";
import { Curves } from "./curves";
import type { Tally } from "./draw";
import { type Moved, listenTo } from "./gestures";
import { drawLabels } from "./labels";
import { type LaneId, Lanes } from "./lanes";
import { ROW_PX, type Track } from "./layout";
import { BAR_PX, type Hit, type Look, Picture, type Step } from "./picture";
import { type Window, around, clamped, zoomed } from "./viewport";

const LABELS_PX = 250;
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
  private range: Window | null = null;
  private step: Window | null = null;
  private readonly curves: Curves;
  private readonly lanes: Lanes;
  private readonly picture: Picture;
  /** what is told to the browser with the first events on the canvas; benchmarks/browser.py reads it */
  private mark: string;
  private planned = 0;
  private noted: ReturnType<typeof setTimeout> | undefined;
  private readonly labels = h("div", { class: "timeline-labels" });
  private readonly content: HTMLElement;
  private readonly scroller: HTMLElement;
  private readonly tip = h("div", { class: "tip timeline-tip", role: "status" });
  private readonly status = h("p", { class: "timeline-status", role: "status" });

  constructor(
    private readonly context: Context,
    tracks: readonly Track[],
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
    this.content = h("div", { class: "timeline-content" }, this.labels, this.picture.canvas);
    this.scroller = h(
      "div",
      { class: "timeline-scroll", tabindex: 0, role: "application", "aria-label": t("timeline.keys") },
      this.content,
    );
    this.tip.hidden = true;
    this.element = h("div", { class: "timeline-view" }, this.picture.ruler, this.scroller, this.tip, this.status);
    this.listen();
    this.arranged();
  }

  private listen(): void {
    const { signal } = this.context;
    const sizes = new ResizeObserver(() => this.plan());
    sizes.observe(this.scroller);
    this.scroller.addEventListener("scroll", () => this.plan(), { passive: true });
    const { canvas, ruler } = this.picture;
    listenTo(this, canvas, ruler, this.scroller, BAR_PX);
    canvas.addEventListener("pointermove", (event) => this.onHover(event));
    canvas.addEventListener("pointerleave", () => (this.tip.hidden = true));
    onChange(() => {
      this.picture.recolour();
      this.plan();
    }, signal);
    signal.addEventListener("abort", () => {
      sizes.disconnect();
      cancelAnimationFrame(this.planned);
      clearTimeout(this.noted);
      this.picture.stop();
    });
  }

  /** The lanes lie elsewhere now. */
  private arranged(): void {
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
    const y = band.top + brief.depth * ROW_PX;
    const { scrollTop, clientHeight } = this.scroller;
    if (y < scrollTop + this.lanes.held || y > scrollTop + clientHeight - 2 * ROW_PX)
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
    return Math.max(this.scroller.clientWidth - LABELS_PX, 50);
  }

  private look(): Look {
    const { window, width, chosen, find, step, range } = this;
    return { window, width, chosen, find, step, range, scroll: this.scroller.scrollTop, room: this.scroller.clientHeight };
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
    this.mark = "";
    this.listener.painted?.();
  }

  timeAt(x: number): number {
    return this.window.start + (x / this.width) * (this.window.end - this.window.start);
  }

  private hit(event: PointerEvent): Hit | null {
    return this.picture.hit(this.look(), event.offsetX, event.offsetY);
  }

  private onHover(event: PointerEvent): void {
    if (event.buttons) return;
    const found = this.hit(event);
    this.tip.hidden = !found;
    if (!found) return;
    const length = format.time(found.count > 1 ? found.busy : found.end - found.start);
    replace(
      this.tip,
      h("strong", null, format.shorten(found.name, 200)),
      h("div", null, found.count > 1 ? t("timeline.several", { count: format.count(found.count), time: length }) : length),
    );
    const { left, top } = this.element.getBoundingClientRect();
    this.tip.style.left = `${Math.min(event.clientX - left + 14, this.element.clientWidth - 360)}px`;
    this.tip.style.top = `${event.clientY - top + 16}px`;
  }

  click(event: PointerEvent): void {
    this.tip.hidden = true;
    const found = this.hit(event);
    this.range = null;
    // several events in one box: closer, so that they come apart
    if (found && found.count > 1) this.move(zoomed(this.window, this.bounds, 0.25, this.timeAt(event.offsetX)));
    this.choose(found ? { trace: found.trace, event: found.event } : null);
    if (!found) this.listener.selected(null, []);
  }

  select(range: Window): void {
    this.range = range;
    this.tip.hidden = true;
    this.plan();
  }

  selected(one: number, other: number): void {
    if (!this.range) return;
    const bands = this.lanes.visible(this.scroller.scrollTop, Math.min(one, other), Math.max(one, other) + 1);
    this.listener.selected(
      this.range,
      bands.flatMap((band) => (band.kind === "lane" ? [{ trace: band.trace, lane: band.lane.lane }] : [])),
    );
  }

  fitSelection(): void {
    if (this.range) this.move(this.range);
  }

  clear(): void {
    this.range = null;
    this.choose(null);
    this.listener.selected(null, []);
  }
}
