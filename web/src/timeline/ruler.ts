/** Above the lanes: the whole run with its steps and the window in it, and the ruler of the window. */

import type { Palette } from "../browser/theme";
import * as format from "../words/format";
import { visible } from "../words/visible";
import { FONT } from "./draw";
import { type Window, ticks } from "./viewport";

/** The overview bar (the whole run, its steps, and the window) and the ruler below it. */
export function drawRuler(
  pen: CanvasRenderingContext2D,
  palette: Palette,
  window: Window,
  bounds: Window,
  steps: readonly { start: number; end: number; text: string }[],
  notes: readonly { time: number; text: string }[],
  width: number,
  barHeight: number,
  height: number,
): void {
  pen.clearRect(0, 0, width, height);
  pen.font = FONT;
  pen.textBaseline = "middle";
  const whole = Math.max(bounds.end - bounds.start, 1);
  const place = (time: number): number => ((time - bounds.start) / whole) * width;
  steps.forEach((step, number) => {
    const low = place(step.start);
    const wide = Math.max(place(step.end) - low, 1);
    pen.fillStyle = number % 2 ? palette.line : palette.faint;
    pen.globalAlpha = 0.45;
    pen.fillRect(low, 2, wide, barHeight - 4);
    pen.globalAlpha = 1;
    if (wide > 7 * step.text.length + 6) {
      pen.fillStyle = palette.text;
      pen.fillText(step.text, low + 3, barHeight / 2);
    }
  });
  const [low, high] = [place(window.start), place(window.end)];
  pen.fillStyle = palette.accent;
  pen.globalAlpha = 0.28;
  pen.fillRect(low, 0, Math.max(high - low, 2), barHeight);
  pen.globalAlpha = 1;
  pen.strokeStyle = palette.accent;
  pen.strokeRect(Math.max(low, 0) + 0.5, 0.5, Math.max(Math.min(high, width) - Math.max(low, 0) - 1, 2), barHeight - 1);
  const marks = ticks(window, width, 110);
  pen.fillStyle = palette.faint;
  for (const at of marks.at) {
    const x = Math.round(((at - window.start) / (window.end - window.start)) * width);
    pen.fillRect(x, barHeight + 4, 1, height - barHeight - 4);
    pen.fillText(format.moment(at, marks.step), x + 4, barHeight + (height - barHeight) / 2 + 1);
  }
  for (const note of notes) {
    const x = ((note.time - window.start) / (window.end - window.start)) * width;
    pen.fillStyle = palette.accent;
    pen.fillRect(Math.round(place(note.time)), 0, 2, barHeight);
    if (x < -200 || x > width) continue;
    const text = format.shorten(visible(note.text), 40);
    const wide = pen.measureText(text).width + 8;
    pen.fillStyle = palette.surface;
    pen.fillRect(x, barHeight + 2, wide, height - barHeight - 6);
    pen.strokeRect(x + 0.5, barHeight + 2.5, wide, height - barHeight - 6);
    pen.fillStyle = palette.accent;
    pen.fillText(text, x + 4, barHeight + (height - barHeight) / 2);
  }
}
