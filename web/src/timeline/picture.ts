/** The two canvases of the timeline: painted from tiles that are asked for as they become visible. */

import { itemAt, type Tile } from "../api/tile";
import type { Arrow, Brief, End, Lane, Phases } from "../api/types";
import { palette } from "../browser/theme";
import { h } from "../ui/dom";
import type { Context } from "../ui/page";
import { Colours, PHASE_PARTS } from "./colours";
import type { Curves } from "./curves";
import { Painter, type Scene, type Tally } from "./draw";
import type { LaneId, Lanes } from "./lanes";
import { type Band, BLOCK_LANES, type LaneBand, type Track, shift } from "./layout";
import { drawRuler } from "./ruler";
import { type Address, TileStore } from "./store";
import { type Window, powerOf, tileSpan, tilesOf } from "./viewport";

export const BAR_PX = 20;
const RULER_PX = 44;
/** a box that is at most so far from the pointer is meant */
const NEAR_PX = 2;

export interface Step {
  start: number;
  end: number;
  text: string;
}

/** What lies at a place of the canvas: an event, or the longest of `count` that share a box. */
export interface Hit {
  trace: number;
  lane: Lane;
  name: string;
  count: number;
  start: number;
  end: number;
  event: number;
  busy: number;
}

/** A stretch of time on some lanes. */
export interface Area {
  range: Window;
  lanes: readonly LaneId[];
}

/** An event and the rank that it is of. */
export interface Placed {
  trace: number;
  brief: Brief;
}

/** Two events that are measured, and what lies between them in words. */
export interface Measured {
  from: Placed;
  to: Placed | null;
  text: string;
}

/** A note at a moment. */
export interface Note {
  time: number;
  text: string;
}

/** What is to be painted. */
export interface Look extends Omit<Scene, "colours" | "height"> {
  /** height that the lanes may take */
  room: number;
  /** a step that is shown, what is selected, what is measured, and the notes */
  step: Window | null;
  area: Area | null;
  measured: Measured | null;
  notes: readonly Note[];
}

export class Picture {
  readonly ruler = h("canvas", { class: "timeline-ruler", "aria-hidden": "true" });
  readonly canvas = h("canvas", { class: "timeline-canvas", "aria-hidden": "true" });
  private readonly store: TileStore;
  private readonly phases = new Map<number, Phases>();
  private colours = new Colours(palette());

  /** `changed` is called when there is more to paint. */
  constructor(
    context: Context,
    private readonly tracks: readonly Track[],
    private readonly lanes: Lanes,
    private readonly curves: Curves,
    private readonly bounds: Window,
    private readonly steps: readonly Step[],
    changed: () => void,
  ) {
    this.store = new TileStore(
      (query, signal) => context.api.tile(query, signal),
      (trace) => tracks.find((one) => one.trace === trace)!.lanes.length,
      changed,
    );
  }

  stop(): void {
    this.store.stop();
    this.curves.stop();
  }

  recolour(): void {
    this.colours = new Colours(palette(), this.phases);
  }

  /** Colour the events of a rank by phase. */
  setPhases(trace: number, phases: Phases): void {
    this.phases.set(trace, phases);
    this.recolour();
  }

  /** The parts of a step that events are coloured as, with their colours. */
  phasesShown(): [string, string][] {
    const phases = new Set(
      [...this.phases.values()].flatMap((one) => [one.host, ...Object.values(one.lanes)]).flatMap((runs) => runs.phase),
    );
    const found = Object.entries(PHASE_PARTS).filter(([phase]) => phases.has(phase));
    return found.map(([phase, part]) => [phase === "communication" ? phase : part, this.colours.palette.parts[part]!]);
  }

  get waiting(): boolean {
    return this.store.waiting;
  }

  get problem(): unknown {
    return this.store.problem;
  }

  /** Paint, and ask for what is missing. */
  paint(look: Look): Tally {
    const { window, width, scroll } = look;
    const { lanes } = this;
    const height = Math.min(Math.max(look.room, 40), lanes.height);
    const pen = sized(this.canvas, width, height);
    const scene: Scene = { ...look, height, colours: this.colours };
    const painter = new Painter(pen, scene);
    painter.clear();
    const [first, last] = tilesOf(window, this.bounds, this.power(window, width));
    const needed = new Map<string, Address>();
    const tally: Tally = { single: 0, merged: 0 };
    const bands = lanes.visible(scroll, 0, height);
    const paint = (one: Painter, band: Band): void => {
      if (band.kind === "head") one.head(band);
      else if (band.kind === "lane") this.lane(one, band, look, [first, last], needed, tally);
      else {
        const curve = this.curves.get(band.trace, band.series, window, width, this.bounds);
        if (curve) one.series(band, curve);
      }
    };
    const marked = (one: Painter, band: Band): void => {
      if (band.kind === "lane" && look.area?.lanes.some((lane) => lane.trace === band.trace && lane.lane === band.lane.lane))
        one.area(band, look.area.range);
    };
    const still = new Painter(pen, { ...scene, scroll: 0 });
    const held = bands.filter((band) => band.held);
    const moving = bands.filter((band) => !band.held);
    const every = this.curves.arrowsShown
      ? this.tracks.map((track): [number, readonly Arrow[]] => [track.trace, this.curves.arrows(track.trace, window)])
      : [];
    painter.below(lanes.held, () => {
      moving.forEach((band) => paint(painter, band));
      moving.forEach((band) => marked(painter, band));
    });
    held.forEach((band) => paint(still, band));
    held.forEach((band) => marked(still, band));
    // over the boxes, so that they can be followed, and below the names
    for (const [trace, arrows] of every) painter.arrows(arrows, (end) => this.heightOf(trace, end, scroll), false);
    const { chosen } = look;
    if (chosen) painter.arrows(this.curves.arrowsOf(chosen), (end) => this.heightOf(chosen.trace, end, scroll), true);
    painter.below(lanes.held, () => painter.names());
    still.names();
    if (lanes.held) still.border(lanes.held);
    if (look.step) painter.beside(look.step);
    for (const note of look.notes) painter.note(note.time);
    if (look.measured) this.measure(painter, look.measured, scroll);
    this.store.want([...needed.values(), ...beside(needed.values(), first, last)]);
    const ruler = sized(this.ruler, width, RULER_PX);
    drawRuler(ruler, this.colours.palette, window, this.bounds, this.steps, look.notes, width, BAR_PX, RULER_PX);
    return tally;
  }

  private power = (window: Window, width: number): number => powerOf(window, width * devicePixelRatio);

  private lane(
    painter: Painter,
    band: LaneBand,
    look: Look,
    [first, last]: readonly [number, number],
    needed: Map<string, Address>,
    tally: Tally,
  ): void {
    const power = this.power(look.window, look.width);
    const span = tileSpan(power);
    const block = Math.floor(band.lane.lane / BLOCK_LANES);
    let painted = false;
    for (let place = first; place <= last; place++) {
      if ((place + 1) * span < band.lane.start_ns || place * span > band.lane.end_ns) continue;
      const address = { trace: band.trace, block, power, place };
      needed.set(`${band.trace}/${block}/${place}`, address);
      const tile = this.store.get(address);
      if (tile) painter.lane(band, tile, place * span, (place + 1) * span, !painted, tally);
      else painter.pending(band, Math.max(place * span, band.lane.start_ns), Math.min((place + 1) * span, band.lane.end_ns));
      painted = tile !== null;
    }
  }

  /** Where an arrow ends: at its event's row, at the last one that is shown where the lane is closed. */
  private heightOf(trace: number, end: End, scroll: number): number | null {
    const band = this.lanes.bandOf(trace, end.lane);
    if (!band) return null;
    return band.top + Math.min(end.depth, band.depths - 1) * band.row + band.row / 2 - shift(band, scroll);
  }

  /** The two events and the line between them; between the end of the earlier one and the start of the later one. */
  private measure(painter: Painter, { from, to, text }: Measured, scroll: number): void {
    const at = ({ trace, brief }: Placed): number | null =>
      this.heightOf(trace, { lane: brief.lane, depth: brief.depth, time_ns: 0, event: brief.event }, scroll);
    const [one, other] = [at(from), to && at(to)];
    if (one === null) return;
    painter.range(from.brief, one);
    if (!to || other === null) return;
    painter.range(to.brief, other);
    const forward = to.brief.start_ns >= from.brief.start_ns;
    const [x1, x2] = forward
      ? [painter.x(from.brief.end_ns), painter.x(to.brief.start_ns)]
      : [painter.x(from.brief.start_ns), painter.x(to.brief.end_ns)];
    painter.measure({ x: x1, y: one }, { x: x2, y: other }, text);
  }

  /** What is painted at a place. */
  hit(look: Pick<Look, "window" | "width" | "scroll">, x: number, y: number): Hit | null {
    const { window, width, scroll } = look;
    const band = this.lanes.at(scroll, y);
    if (band?.kind !== "lane") return null;
    const depth = Math.floor((y + shift(band, scroll) - band.top) / band.row);
    if (depth >= band.depths) return null;
    const scale = (window.end - window.start) / width;
    const time = window.start + x * scale;
    const tile = this.tileOf(band, time, this.power(window, width));
    const row = tile?.byLane.get(band.lane.lane)?.[depth];
    if (!tile || !row) return null;
    const place = itemAt(tile, row, time, scale * NEAR_PX);
    if (place < 0) return null;
    return {
      trace: band.trace,
      lane: band.lane,
      name: tile.names.get(tile.name[place]!) ?? "",
      count: tile.count[place]!,
      start: tile.start[place]!,
      end: tile.end[place]!,
      event: tile.event[place]!,
      busy: tile.busy[place]!,
    };
  }

  private tileOf(band: LaneBand, time: number, power: number): Tile | null {
    return this.store.get({
      trace: band.trace,
      block: Math.floor(band.lane.lane / BLOCK_LANES),
      power,
      place: Math.floor(time / tileSpan(power)),
    });
  }
}

/** A canvas of a size in pixels of the page, sharp on every screen. */
function sized(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
  const ratio = devicePixelRatio;
  const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== wide || canvas.height !== high) {
    canvas.width = wide;
    canvas.height = high;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const pen = canvas.getContext("2d")!;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  return pen;
}

/** The tiles on both sides, so that moving on finds them there. */
function beside(needed: Iterable<Address>, first: number, last: number): Address[] {
  const found: Address[] = [];
  for (const one of needed) {
    if (one.place === first && first > 0) found.push({ ...one, place: first - 1 });
    if (one.place === last) found.push({ ...one, place: last + 1 });
  }
  return found;
}
