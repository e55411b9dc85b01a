/** Paints what is visible of the lanes: boxes, names, curves and arrows. */

import type { Tile, TileRow } from "../api/tile";
import type { Arrow, Curve, End } from "../api/types";
import * as format from "../words/format";
import { visible } from "../words/visible";
import type { Colours } from "./colours";
import type { Band, HeadBand, LaneBand, SeriesBand } from "./layout";
import { type Window, ticks } from "./viewport";

const LABEL_FROM_PX = 24;
const SHARED_PX = 1.5;
/** letters as wide as those of names are on average */
const SAMPLE = "aten::convolution_backward mmm";
export const FONT = "11px system-ui, sans-serif";

export interface Scene {
  window: Window;
  width: number;
  height: number;
  scroll: number;
  colours: Colours;
  /** id of the chosen event and the rank that it is of */
  chosen: { trace: number; event: number } | null;
  /** name that is looked for, in lower case; empty for none */
  find: string;
}

/** How many events were painted one by one, and how many as part of a box that stands for several. */
export interface Tally {
  single: number;
  merged: number;
}

const matches = new WeakMap<Tile, { find: string; names: Set<number> }>();

/** The names of a tile that hold a text. */
function matching(tile: Tile, find: string): Set<number> {
  let found = matches.get(tile);
  if (found?.find !== find) {
    found = {
      find,
      names: new Set([...tile.names].filter(([, name]) => name.toLowerCase().includes(find)).map(([place]) => place)),
    };
    matches.set(tile, found);
  }
  return found.names;
}

/** A name that is painted when everything that it must not hide behind is. */
interface Label {
  text: string;
  x: number;
  y: number;
  room: number;
  colour: string;
  alpha: number;
}

/** A name in so many characters; where they are too few, without the scopes of a graph that all of its operators share. */
const fitting = (name: string, most: number): string =>
  format.shorten(name.length > most && /^[\w.-]+(\/[\w.-]+)+$/.test(name) ? name.slice(name.lastIndexOf("/") + 1) : name, most);

export class Painter {
  private readonly character: number;
  private labels: Label[] = [];
  private outlines: [number, number, number, number][] = [];

  constructor(
    private readonly pen: CanvasRenderingContext2D,
    private readonly scene: Scene,
  ) {
    pen.font = FONT;
    this.character = pen.measureText(SAMPLE).width / SAMPLE.length;
  }

  x(time: number): number {
    const { window, width } = this.scene;
    return ((time - window.start) / (window.end - window.start)) * width;
  }

  clear(): void {
    const { pen, scene } = this;
    pen.clearRect(0, 0, scene.width, scene.height);
    pen.textBaseline = "middle";
    pen.fillStyle = scene.colours.palette.line;
    for (const at of ticks(scene.window, scene.width, 110).at) pen.fillRect(Math.round(this.x(at)), 0, 1, scene.height);
  }

  /** Paint something below a height only. */
  below(top: number, paint: () => void): void {
    const { pen, scene } = this;
    pen.save();
    pen.beginPath();
    pen.rect(0, top, scene.width, scene.height);
    pen.clip();
    paint();
    pen.restore();
  }

  /** The border below the lanes that are held at the top. */
  border(top: number): void {
    this.pen.fillStyle = this.scene.colours.palette.accent;
    this.pen.fillRect(0, top - 2, this.scene.width, 1);
  }

  /** Say that a part of a lane is still on its way. */
  pending(band: Band, from: number, to: number): void {
    const { pen, scene } = this;
    pen.globalAlpha = 0.35;
    pen.fillStyle = scene.colours.palette.line;
    pen.fillRect(this.x(from), band.top - scene.scroll, this.x(to) - this.x(from), band.height - 4);
    pen.globalAlpha = 1;
  }

  /**
   * The part of a lane between two times, from one tile. A long event lies on several tiles and is painted whole with the one
   * that it begins on, or with the `first` one.
   */
  lane(band: LaneBand, tile: Tile, from: number, to: number, first: boolean, tally: Tally): void {
    const rows = tile.byLane.get(band.lane.lane) ?? [];
    for (let depth = 0; depth < band.depths; depth++) {
      const y = band.top + depth * band.row - this.scene.scroll;
      if (y + band.row < 0 || y > this.scene.height) continue;
      const row = rows[depth];
      if (row) this.row(band, tile, row, y, from, to, first, tally);
    }
  }

  private row(band: LaneBand, tile: Tile, row: TileRow, y: number, from: number, to: number, first: boolean, tally: Tally): void {
    const { pen, scene } = this;
    const found = scene.find ? matching(tile, scene.find) : null;
    const chosen = scene.chosen?.trace === band.trace ? scene.chosen.event : -1;
    const factor = scene.width / (scene.window.end - scene.window.start);
    const phases = scene.colours.along(band.trace, band.lane);
    let painted = -1;
    for (let place = row.first; place < row.first + row.count; place++) {
      const start = tile.start[place]!;
      const begin = (start - scene.window.start) * factor;
      if (start >= to) break;
      if (start < from && !first) continue;
      const stop = (tile.end[place]! - scene.window.start) * factor;
      if (stop < 0 && begin < -1) continue;
      if (begin > scene.width) break;
      const count = tile.count[place]!;
      tally[count === 1 ? "single" : "merged"] += count;
      const low = Math.max(begin, 0);
      const high = Math.min(Math.max(stop, begin + 1), scene.width);
      // several boxes in one column of pixels look like one
      if (high <= painted && tile.event[place] !== chosen) continue;
      painted = Math.floor(high);
      const name = tile.names.get(tile.name[place]!) ?? "";
      const width = Math.max(high - low, 1);
      pen.globalAlpha = found && !found.has(tile.name[place]!) ? 0.32 : 1;
      const colour = scene.colours.of(name, band.lane.source, phases?.at(start));
      pen.fillStyle = colour;
      // a box that stands for several events is lower
      const inset = count > 1 ? SHARED_PX : 0;
      pen.fillRect(low, y + inset, width > 3 ? width - 0.6 : width, band.row - 2 - 2 * inset);
      if (width >= LABEL_FROM_PX) {
        const said = count > 1 ? `${format.count(count)} × ${name}` : name;
        this.labels.push({
          text: fitting(visible(said), Math.floor((width - 6) / this.character)),
          x: low + 3,
          // the box ends two pixels above the row
          y: y + (band.row - 2) / 2 + 0.5,
          room: width - 5,
          colour: scene.colours.on(colour),
          alpha: pen.globalAlpha,
        });
      }
      if (tile.event[place] === chosen && count === 1) this.outlines.push([low, y, width, band.row]);
    }
    pen.globalAlpha = 1;
  }

  /** The names on the boxes, and what the chosen one is marked with: above everything else. */
  names(): void {
    const { pen, scene } = this;
    for (const { text, x, y, room, colour, alpha } of this.labels) {
      pen.globalAlpha = alpha;
      pen.fillStyle = colour;
      pen.fillText(text, x, y, room);
    }
    pen.globalAlpha = 1;
    pen.strokeStyle = scene.colours.palette.text;
    pen.lineWidth = 2;
    for (const [x, y, width, row] of this.outlines) pen.strokeRect(x + 1, y + 1, Math.max(width - 2, 2), row - 4);
    this.labels = [];
    this.outlines = [];
  }

  head(band: HeadBand): void {
    const { pen, scene } = this;
    pen.globalAlpha = band.level ? 0.45 : 1;
    pen.fillStyle = scene.colours.palette.line;
    pen.fillRect(0, band.top - scene.scroll, scene.width, band.height - 2);
    pen.globalAlpha = 1;
  }

  /** A curve with the smallest and largest value of every bucket. */
  series(band: SeriesBand, curve: Curve): void {
    const { pen, scene } = this;
    const colour = scene.colours.palette.series[band.series.series % scene.colours.palette.series.length]!;
    const values = [...curve.min, ...curve.max].filter((one): one is number => one !== null);
    if (curve.before !== null) values.push(curve.before);
    if (!values.length) return;
    const high = Math.max(...values, 0);
    const low = Math.min(...values, 0);
    const bottom = band.top + band.height - 6 - scene.scroll;
    const y = (value: number): number => bottom - ((value - low) / Math.max(high - low, 1e-12)) * (band.height - 14);
    let last = curve.before;
    let at = 0;
    pen.fillStyle = colour;
    const hold = (to: number): void => {
      if (last === null || to <= at) return;
      pen.globalAlpha = 0.3;
      pen.fillRect(at, y(last), to - at, bottom - y(last));
      pen.globalAlpha = 1;
      pen.fillRect(at, y(last) - 1, to - at, 1.5);
    };
    curve.time_ns.forEach((time, place) => {
      const x = this.x(time);
      const [small, large, end] = [curve.min[place], curve.max[place], curve.last[place]];
      if (small == null || large == null || end == null) return;
      hold(Math.min(x, scene.width));
      if (x >= -1 && x <= scene.width) pen.fillRect(x, y(large), 1.2, Math.max(y(small) - y(large), 1));
      last = end;
      at = Math.max(x, 0);
    });
    hold(scene.width);
    pen.fillStyle = scene.colours.palette.faint;
    pen.fillText(format.value(high, band.series.unit), 4, band.top + 7 - scene.scroll);
  }

  /** Arrows between lanes; `y` gives the height of an end, null where its lane is not shown. `strong` ones stand out. */
  arrows(arrows: readonly Arrow[], y: (end: End) => number | null, strong: boolean): void {
    const { pen, scene } = this;
    const paths = new Path2D();
    const heads = new Path2D();
    for (const { start, end } of arrows) {
      const [from, to] = [y(start), y(end)];
      if (from === null || to === null) continue;
      const [x1, x2] = [this.x(start.time_ns), this.x(end.time_ns)];
      if ((x1 < 0 && x2 < 0) || (x1 > scene.width && x2 > scene.width)) continue;
      const bend = Math.min(Math.max(Math.abs(x2 - x1) / 2, 14), 120);
      paths.moveTo(x1, from);
      paths.bezierCurveTo(x1 + bend, from, x2 - bend, to, x2, to);
      heads.moveTo(x2 - 6, to - 4);
      heads.lineTo(x2, to);
      heads.lineTo(x2 - 6, to + 4);
      heads.closePath();
    }
    if (strong) {
      // a seam keeps it apart from boxes of any colour
      pen.strokeStyle = scene.colours.palette.surface;
      pen.lineWidth = 5;
      pen.stroke(paths);
    }
    pen.globalAlpha = strong ? 1 : 0.4;
    pen.strokeStyle = pen.fillStyle = strong ? scene.colours.palette.accent : scene.colours.palette.faint;
    pen.lineWidth = strong ? 2 : 1;
    pen.stroke(paths);
    pen.fill(heads);
    pen.globalAlpha = 1;
  }

  /** From one event to another: a line at the height of each, and what lies between in words. */
  measure(from: { x: number; y: number }, to: { x: number; y: number }, text: string): void {
    const { pen, scene } = this;
    const { accent, surface } = scene.colours.palette;
    pen.strokeStyle = accent;
    pen.lineWidth = 1.5;
    pen.setLineDash([4, 3]);
    pen.beginPath();
    pen.moveTo(from.x, from.y);
    pen.lineTo(from.x, to.y);
    pen.lineTo(to.x, to.y);
    pen.stroke();
    pen.setLineDash([]);
    const wide = pen.measureText(text).width;
    const x = Math.min(Math.max((from.x + to.x - wide) / 2, 4), scene.width - wide - 8);
    pen.fillStyle = surface;
    pen.fillRect(x - 4, to.y - 8, wide + 8, 16);
    pen.strokeRect(x - 4, to.y - 8, wide + 8, 16);
    pen.fillStyle = accent;
    pen.fillText(text, x, to.y + 0.5);
  }

  /** Brackets around an event that is measured, whose row has its middle at `y`. */
  range({ start_ns, end_ns }: { start_ns: number; end_ns: number }, y: number): void {
    const { pen, scene } = this;
    const [low, high] = [Math.max(this.x(start_ns), -4), Math.min(this.x(end_ns), scene.width + 4)];
    if (high < low) return;
    pen.strokeStyle = scene.colours.palette.accent;
    pen.lineWidth = 3;
    pen.strokeRect(low, y - 9, Math.max(high - low, 2), 17);
  }

  /** A line over all lanes where a note is. */
  note(time: number): void {
    const { pen, scene } = this;
    pen.fillStyle = scene.colours.palette.accent;
    pen.globalAlpha = 0.7;
    for (let y = 0; y < scene.height; y += 6) pen.fillRect(Math.round(this.x(time)), y, 1, 3);
    pen.globalAlpha = 1;
  }

  /** What is selected: a stretch of time on one lane. */
  area(band: LaneBand, range: Window): void {
    const { pen, scene } = this;
    const [low, high] = [Math.max(this.x(range.start), -2), Math.min(this.x(range.end), scene.width + 2)];
    const [y, height] = [band.top - scene.scroll, band.height];
    if (high < low) return;
    pen.fillStyle = scene.colours.palette.accent;
    pen.globalAlpha = 0.2;
    pen.fillRect(low, y, high - low, height);
    pen.globalAlpha = 1;
    pen.fillRect(low, y, 1, height);
    pen.fillRect(high - 1, y, 1, height);
  }

  /** What lies beside a shown step is dimmed. */
  beside(range: Window): void {
    const { pen, scene } = this;
    const [low, high] = [this.x(range.start), this.x(range.end)];
    pen.fillStyle = scene.colours.palette.surface;
    pen.globalAlpha = 0.55;
    pen.fillRect(0, 0, Math.max(low, 0), scene.height);
    pen.fillRect(high, 0, Math.max(scene.width - high, 0), scene.height);
    pen.globalAlpha = 1;
    pen.fillStyle = scene.colours.palette.accent;
    pen.fillRect(low, 0, 1, scene.height);
    pen.fillRect(high, 0, 1, scene.height);
  }
}
