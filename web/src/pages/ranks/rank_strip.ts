/** A picture of very many ranks: a column for each, side by side, a row for each step or figure; one canvas, whatever their number. */

import { onChange, palette } from "../../browser/theme";
import { h, replace } from "../../ui/dom";
import { type Cell, type Layout, cellAt, rowHeight, shade } from "./strip_layout";

export interface StripSpec {
  /** what it shows, for those who do not see it */
  label: string;
  layout: Layout;
  /** row by column, null where nothing is known */
  values: readonly (readonly (number | null)[])[];
  /** names of the rows, beside them */
  rowNames: readonly string[];
  /** the least and the most that have colours of their own */
  range: readonly [number, number];
  /** what is said of a cell */
  say: (cell: Cell) => string;
  onPick: (cell: Cell) => void;
  /** columns that are pointed at, with what stands there */
  marks: readonly (readonly [column: number, text: string])[];
}

const LEFT = 76;
const HEAD = 20;
const FOOT = 22;
const FONT = "12px system-ui, sans-serif";

/** The picture; it follows the width of its place and the theme until the signal is given. */
export function rankStrip(spec: StripSpec, signal: AbortSignal): HTMLElement {
  const height = rowHeight(spec.values.length);
  const full = HEAD + height * spec.values.length + FOOT;
  const canvas = h("canvas", { class: "rank-strip", role: "img", "aria-label": spec.label, style: { height: `${full}px` } });
  const tip = h("div", { class: "rank-strip-tip", role: "status" });
  tip.hidden = true;
  const frame = h("div", { class: "rank-strip-frame" }, canvas, tip);
  const draw = (): void => paint(canvas, spec, height, full);
  const at = (event: MouseEvent): Cell | null =>
    cellAt(spec.layout, spec.values.length, height, event.offsetX - LEFT, event.offsetY - HEAD, canvas.clientWidth - LEFT);
  canvas.addEventListener("pointermove", (event) => {
    const cell = at(event);
    tip.hidden = !cell;
    canvas.style.cursor = cell ? "pointer" : "";
    if (!cell) return;
    replace(tip, spec.say(cell));
    const side = event.offsetX > canvas.clientWidth / 2;
    tip.style.left = side ? "" : `${event.offsetX + 14}px`;
    tip.style.right = side ? `${canvas.clientWidth - event.offsetX + 14}px` : "";
    tip.style.top = `${Math.min(event.offsetY + 10, full - 10)}px`;
  });
  canvas.addEventListener("pointerleave", () => (tip.hidden = true));
  canvas.addEventListener("click", (event) => {
    const cell = at(event);
    if (cell) spec.onPick(cell);
  });
  const sizes = new ResizeObserver(draw);
  sizes.observe(canvas);
  onChange(draw, signal);
  signal.addEventListener("abort", () => sizes.disconnect());
  return frame;
}

function paint(canvas: HTMLCanvasElement, spec: StripSpec, height: number, full: number): void {
  const width = canvas.clientWidth;
  const context = canvas.getContext("2d");
  if (!width || !context) return;
  const scale = devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(full * scale);
  context.scale(scale, scale);
  const colours = palette();
  context.clearRect(0, 0, width, full);
  context.font = FONT;
  context.textBaseline = "middle";
  const room = width - LEFT;
  spec.values.forEach((row, place) => {
    const top = HEAD + place * height;
    context.fillStyle = colours.text;
    context.textAlign = "right";
    // names that would lie over one another are left out
    if (height >= 12 || place % Math.ceil(14 / height) === 0)
      context.fillText(spec.rowNames[place] ?? "", LEFT - 6, top + height / 2, LEFT - 8);
    paintRow(context, spec, row, top, height > 3 ? height - 1 : height, room, colours);
  });
  paintGroups(context, spec, height, room, colours.text, colours.line);
  context.fillStyle = colours.text;
  context.textAlign = "center";
  const under = HEAD + height * spec.values.length;
  let free = 0;
  for (const [column, text] of [...spec.marks].sort(([one], [other]) => one - other)) {
    const x = LEFT + ((column + 0.5) / spec.layout.columns.length) * room;
    context.beginPath();
    context.moveTo(x, under);
    context.lineTo(x - 4, under + 6);
    context.lineTo(x + 4, under + 6);
    context.fill();
    const half = context.measureText(text).width / 2;
    const middle = Math.min(Math.max(x, LEFT + half), width - half);
    if (middle - half < free) continue;
    context.fillText(text, middle, under + 14);
    free = middle + half + 8;
  }
}

/** One row, pixel by pixel: of several ranks in a pixel the largest, so that none is lost. */
function paintRow(
  context: CanvasRenderingContext2D,
  spec: StripSpec,
  row: readonly (number | null)[],
  top: number,
  height: number,
  room: number,
  colours: { accent: string; surface: string; line: string },
): void {
  const count = spec.layout.columns.length;
  const pixels = Math.max(Math.min(Math.floor(room * (devicePixelRatio || 1)), count), 1);
  for (let pixel = 0; pixel < pixels; pixel++) {
    let most: number | null = null;
    for (let column = Math.floor((pixel * count) / pixels); column < Math.floor(((pixel + 1) * count) / pixels); column++) {
      const value = row[spec.layout.columns[column]!] ?? null;
      if (value !== null && (most === null || value > most)) most = value;
    }
    if (most === null) continue;
    context.fillStyle = shade(most, spec.range, colours.surface, colours.accent);
    const left = (pixel / pixels) * room;
    context.fillRect(LEFT + left, top, ((pixel + 1) / pixels) * room - left + 0.4, height);
  }
}

function paintGroups(
  context: CanvasRenderingContext2D,
  spec: StripSpec,
  height: number,
  room: number,
  text: string,
  line: string,
): void {
  const count = spec.layout.columns.length;
  context.textAlign = "center";
  let free = 0;
  for (const group of spec.layout.groups) {
    const [left, right] = [LEFT + (group.first / count) * room, LEFT + ((group.first + group.count) / count) * room];
    if (group.first) {
      context.strokeStyle = line;
      context.beginPath();
      context.moveTo(left, HEAD - 8);
      context.lineTo(left, HEAD + height * spec.values.length);
      context.stroke();
    }
    const half = context.measureText(group.name).width / 2;
    const middle = (left + right) / 2;
    if (middle - half < free || middle + half > LEFT + room + 4) continue;
    context.fillStyle = text;
    context.fillText(group.name, middle, HEAD / 2 - 1);
    free = middle + half + 6;
  }
}
