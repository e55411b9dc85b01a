/** Paints what is visible of the lanes: boxes, names, curves and arrows. */

import type { Tile, TileRow } from "../api/tile";
import type { Arrow, Curve, End } from "../api/types";
import * as format from "../words/format";
import { visible } from "../words/visible";
import type { Colours } from "./colours";
import { type Band, type LaneBand, ROW_PX, type SeriesBand } from "./layout";
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

export class Painter {
  private readonly character: number;

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
      const y = band.top + depth * ROW_PX - this.scene.scroll;
      if (y + ROW_PX < 0 || y > this.scene.height) continue;
      const row = rows[depth];
      if (row) this.row(band, tile, row, y, from, to, first, tally);
    }
  }

  private row(band: LaneBand, tile: Tile, row: TileRow, y: number, from: number, to: number, first: boolean, tally: Tally): void {
    const { pen, scene } = this;
    const found = scene.find ? matching(tile, scene.find) : null;
    const chosen = scene.chosen?.trace === band.trace ? scene.chosen.event : -1;
    const factor = scene.width / (scene.window.end - scene.window.start);
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
      const colour = scene.colours.of(name, band.lane.source);
      pen.fillStyle = colour;
      // a box that stands for several events is lower
      const inset = count > 1 ? SHARED_PX : 0;
      pen.fillRect(low, y + inset, width > 3 ? width - 0.6 : width, ROW_PX - 2 - 2 * inset);
      if (width >= LABEL_FROM_PX) {
        pen.fillStyle = scene.colours.on(colour);
        const said = count > 1 ? `${format.count(count)} × ${name}` : name;
        pen.fillText(
          format.shorten(visible(said), Math.floor((width - 6) / this.character)),
          low + 3,
          y + ROW_PX / 2 - 0.5,
          width - 5,
        );
      }
      if (tile.event[place] === chosen && count === 1) this.outline(low, y, width);
    }
    pen.globalAlpha = 1;
  }

  private outline(x: number, y: number, width: number): void {
    const { pen, scene } = this;
    pen.globalAlpha = 1;
    pen.strokeStyle = scene.colours.palette.text;
    pen.lineWidth = 2;
    pen.strokeRect(x + 1, y + 1, Math.max(width - 2, 2), ROW_PX - 4);
  }

  head(band: Band): void {
    const { pen, scene } = this;
    pen.fillStyle = scene.colours.palette.line;
    pen.fillRect(0, band.top - scene.scroll, scene.width, band.height - 2);
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

  /** Arrows between lanes; `y` gives the height of an end, null where its lane is not shown. */
  arrows(arrows: readonly Arrow[], y: (end: End) => number | null): void {
    const { pen, scene } = this;
    pen.strokeStyle = scene.colours.palette.accent;
    pen.globalAlpha = 0.65;
    pen.lineWidth = 1.2;
    for (const { start, end } of arrows) {
      const [from, to] = [y(start), y(end)];
      if (from === null || to === null) continue;
      const [x1, x2] = [this.x(start.time_ns), this.x(end.time_ns)];
      if ((x1 < 0 && x2 < 0) || (x1 > scene.width && x2 > scene.width)) continue;
      const bend = Math.max(Math.abs(x2 - x1) / 2, 12);
      pen.beginPath();
      pen.moveTo(x1, from);
      pen.bezierCurveTo(x1 + bend, from, x2 - bend, to, x2, to);
      pen.moveTo(x2 - 5, to - 3);
      pen.lineTo(x2, to);
      pen.lineTo(x2 - 5, to + 3);
      pen.stroke();
    }
    pen.globalAlpha = 1;
  }

  /** A selected stretch of time; what lies beside a shown step is dimmed with `beside`. */
  range(range: Window, beside: boolean): void {
    const { pen, scene } = this;
    const [low, high] = [this.x(range.start), this.x(range.end)];
    pen.fillStyle = beside ? scene.colours.palette.surface : scene.colours.palette.accent;
    pen.globalAlpha = beside ? 0.55 : 0.16;
    if (beside) {
      pen.fillRect(0, 0, Math.max(low, 0), scene.height);
      pen.fillRect(high, 0, Math.max(scene.width - high, 0), scene.height);
    } else pen.fillRect(low, 0, high - low, scene.height);
    pen.globalAlpha = 1;
    pen.fillStyle = scene.colours.palette.accent;
    pen.fillRect(low, 0, 1, scene.height);
    pen.fillRect(high, 0, 1, scene.height);
  }
}
