/** Curves and arrows of the visible window: asked for when it has come to rest, kept while it stays near. */

import type { Arrow, Curve, Series } from "../api/types";
import type { Context } from "../ui/page";
import { seriesKey } from "./layout";
import type { Window } from "./viewport";

const REST_MS = 120;
const MOST_ARROWS = 300;
const MOST_POINTS = 4000;
/** no moment of a run is so far from its origin; larger whole numbers are not exact */
const FAR_NS = 2 ** 53;

interface Kept<A> {
  window: Window;
  value: A | null;
  asking: string;
}

export class Curves {
  arrowsShown = false;
  private readonly on = new Set<string>();
  private readonly kept = new Map<string, Kept<Curve>>();
  private readonly flows = new Map<number, Kept<Arrow[]>>();
  private readonly timers = new Map<string, number>();
  private readonly chosen: Kept<{ what: string; arrows: readonly Arrow[] }> = {
    window: { start: 0, end: 0 },
    value: null,
    asking: "",
  };
  private asking = new AbortController();

  constructor(
    private readonly context: Context,
    private readonly changed: () => void,
  ) {}

  shown = (key: string): boolean => this.on.has(key);

  set(key: string, shown: boolean): void {
    if (shown) this.on.add(key);
    else this.on.delete(key);
  }

  get waiting(): boolean {
    return this.timers.size > 0;
  }

  stop(): void {
    this.asking.abort();
    for (const timer of this.timers.values()) clearTimeout(timer);
    this.timers.clear();
  }

  /** The curve of a series in a window; that of an earlier window until it is there. */
  get(trace: number, series: Series, window: Window, width: number, bounds: Window): Curve | null {
    const key = seriesKey(trace, series);
    const span = window.end - window.start;
    const low = Math.floor(Math.max(window.start - span / 2, Math.min(bounds.start, 0)));
    const asked = { start: low, end: Math.max(Math.ceil(Math.min(window.end + span / 2, bounds.end + 1)), low + 1) };
    const found = this.kept.get(key) ?? { window: { start: 0, end: 0 }, value: null, asking: "" };
    this.kept.set(key, found);
    const size = found.window.end - found.window.start;
    const covers =
      found.value !== null
      && found.window.start <= Math.max(window.start, low)
      && found.window.end >= Math.min(window.end, asked.end);
    if (!covers || size > span * 4) {
      const points = Math.min(Math.ceil((width * (asked.end - asked.start)) / span), MOST_POINTS);
      this.later(`series ${key}`, found, `${asked.start}-${asked.end}-${points}`, async () => {
        found.value = await this.context.api.get("timeline/series/{series}", {
          series: series.series,
          trace,
          start_ns: asked.start,
          end_ns: asked.end,
          points: Math.max(points, 1),
        });
        found.window = asked;
      });
    }
    return found.value;
  }

  /** The arrows of a window; those of an earlier window until they are there. */
  arrows(trace: number, window: Window): readonly Arrow[] {
    const found = this.flows.get(trace) ?? { window, value: null, asking: "" };
    this.flows.set(trace, found);
    const [start_ns, end_ns] = [Math.floor(window.start), Math.ceil(window.end)];
    this.later(`flows ${trace}`, found, `${start_ns}-${end_ns}`, async () => {
      found.value = (
        await this.context.api.get("timeline/flows", { trace, start_ns, end_ns, limit: MOST_ARROWS }, this.context.signal)
      ).arrows;
    });
    return found.value ?? [];
  }

  /** The arrows that begin or end in an event; none until they are there. */
  arrowsOf({ trace, event }: { trace: number; event: number }): readonly Arrow[] {
    const what = `${trace}.${event}`;
    this.later("flows of the chosen", this.chosen, what, async () => {
      const query = { trace, event, start_ns: -FAR_NS, end_ns: FAR_NS, limit: MOST_ARROWS };
      const { arrows } = await this.context.api.get("timeline/flows", query, this.context.signal);
      if (this.chosen.asking === what) this.chosen.value = { what, arrows };
    });
    return this.chosen.value?.what === what ? this.chosen.value.arrows : [];
  }

  private later(name: string, kept: Kept<unknown>, what: string, ask: () => Promise<void>): void {
    if (kept.asking === what) return;
    kept.asking = what;
    clearTimeout(this.timers.get(name));
    const timer = window.setTimeout(() => {
      void ask()
        .catch(() => undefined)
        .finally(() => {
          if (this.timers.get(name) === timer) this.timers.delete(name);
          if (!this.context.signal.aborted) this.changed();
        });
    }, REST_MS);
    this.timers.set(name, timer);
  }
}
