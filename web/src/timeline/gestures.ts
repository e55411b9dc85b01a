/** How the user moves through the timeline: drags, wheel, ruler and keys. */

import { type Window, panned, zoomed } from "./viewport";

/** a press that moves less than this is a click */
export const CLICK_PX = 4;

/** What gestures act on. */
export interface Moved {
  readonly window: Window;
  readonly bounds: Window;
  /** of the canvas, in pixels */
  readonly width: number;
  move: (window: Window) => void;
  timeAt: (x: number) => number;
  /** a box is being drawn: a stretch of time between two heights of the canvas */
  select: (range: Window, one: number, other: number) => void;
  /** it has been */
  selected: () => void;
  click: (event: PointerEvent) => void;
  zoomTo: (event: MouseEvent) => void;
  fitSelection: () => void;
  clear: () => void;
  /** a key that only the page knows; whether it does */
  otherKey: (key: string) => boolean;
}

/** Listen for all gestures; `barHeight` is that of the overview bar above the ruler. */
export function listenTo(
  target: Moved,
  canvas: HTMLCanvasElement,
  ruler: HTMLCanvasElement,
  scroller: HTMLElement,
  barHeight: number,
  signal: AbortSignal,
): void {
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button > 1) return;
    scroller.focus({ preventScroll: true });
    press(target, canvas, event);
  });
  canvas.addEventListener("wheel", (event) => wheel(target, event), { passive: false });
  ruler.addEventListener("pointerdown", (event) => dragRuler(target, ruler, event, event.offsetY < barHeight));
  canvas.addEventListener("dblclick", (event) => target.zoomTo(event));
  // wherever the focus is
  document.addEventListener("keydown", (event) => key(target, event), { signal });
}

/** Follow the pointer until it is let go. */
export function follow(
  element: HTMLElement,
  event: PointerEvent,
  move: (event: PointerEvent) => void,
  end: (event: PointerEvent) => void,
): void {
  element.setPointerCapture(event.pointerId);
  const up = (last: PointerEvent): void => {
    element.removeEventListener("pointermove", move);
    element.removeEventListener("pointerup", up);
    element.removeEventListener("pointercancel", up);
    end(last);
  };
  element.addEventListener("pointermove", move);
  element.addEventListener("pointerup", up);
  element.addEventListener("pointercancel", up);
}

function press(target: Moved, canvas: HTMLCanvasElement, event: PointerEvent): void {
  const pans = event.shiftKey || event.button === 1;
  const from = { x: event.offsetX, y: event.offsetY, window: target.window, time: target.timeAt(event.offsetX) };
  let dragged = false;
  const move = (next: PointerEvent): void => {
    const by = next.offsetX - from.x;
    if (!dragged && Math.hypot(by, next.offsetY - from.y) < CLICK_PX) return;
    dragged = true;
    if (pans) return target.move(panned(from.window, target.bounds, -by / target.width));
    const time = target.timeAt(Math.min(Math.max(next.offsetX, 0), target.width));
    target.select({ start: Math.min(from.time, time), end: Math.max(from.time, time) }, from.y, next.offsetY);
  };
  follow(canvas, event, move, (last) => {
    if (!dragged) target.click(last);
    else if (!pans) target.selected();
  });
}

/** On the bar the window is put where the pointer is; on the ruler it is dragged along. */
function dragRuler(target: Moved, ruler: HTMLCanvasElement, event: PointerEvent, bar: boolean): void {
  const from = { x: event.offsetX, window: target.window };
  const move = (next: PointerEvent): void => {
    if (!bar) return target.move(panned(from.window, target.bounds, -(next.offsetX - from.x) / target.width));
    const middle = target.bounds.start + (next.offsetX / target.width) * (target.bounds.end - target.bounds.start);
    const half = (target.window.end - target.window.start) / 2;
    target.move({ start: middle - half, end: middle + half });
  };
  if (bar) move(event);
  follow(ruler, event, move, () => undefined);
}

function wheel(target: Moved, event: WheelEvent): void {
  const pixels = event.deltaMode === 1 ? 16 : 1;
  if (event.ctrlKey || event.metaKey || event.altKey) {
    event.preventDefault();
    const factor = Math.exp(Math.min(Math.max(event.deltaY * pixels, -200), 200) * 0.004);
    target.move(zoomed(target.window, target.bounds, factor, target.timeAt(event.offsetX)));
  } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
    event.preventDefault();
    target.move(panned(target.window, target.bounds, ((event.deltaX || event.deltaY) * pixels) / target.width));
  }
}

/** Whether what is typed goes into a text. */
export function isTyped({ target }: Event): boolean {
  if (!(target instanceof HTMLElement)) return false;
  if (target instanceof HTMLInputElement) return !["checkbox", "radio", "button", "submit"].includes(target.type);
  return target instanceof HTMLTextAreaElement || target.isContentEditable;
}

function key(target: Moved, event: KeyboardEvent): void {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || isTyped(event)) return;
  // what lies over the page has its own keys
  if (document.querySelector("dialog[open]")) return;
  // a list is gone through with arrows
  if (event.target instanceof HTMLSelectElement && event.key.startsWith("Arrow")) return;
  const { window, bounds } = target;
  const middle = (window.start + window.end) / 2;
  const actions: Record<string, () => void> = {
    w: () => target.move(zoomed(window, bounds, 0.7, middle)),
    s: () => target.move(zoomed(window, bounds, 1 / 0.7, middle)),
    a: () => target.move(panned(window, bounds, -0.15)),
    d: () => target.move(panned(window, bounds, 0.15)),
    arrowleft: () => target.move(panned(window, bounds, -0.15)),
    arrowright: () => target.move(panned(window, bounds, 0.15)),
    "0": () => target.move(bounds),
    home: () => target.move(bounds),
    f: () => target.fitSelection(),
    escape: () => target.clear(),
  };
  const action = actions[event.key.toLowerCase()];
  if (event.key === "Escape" && target.otherKey(event.key)) return event.preventDefault();
  if (!action && !target.otherKey(event.key.toLowerCase())) return;
  event.preventDefault();
  action?.();
}
