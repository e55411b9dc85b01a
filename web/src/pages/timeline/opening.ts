/** What the timeline begins with: one step, where the address does not say what to look at. */

import type { FirstView } from "../../api/types";
import { report } from "../../report/embedded";
import type { Window } from "../../timeline/viewport";
import type { Context } from "../../ui/page";

/** the first picture waits no longer until it is known which step is shown first, and which rank */
export const STEP_MS = 300;
export const RANK_MS = 2000;
/** beside the step that is shown first, as a share of it */
const BESIDE = 0.02;

/** Whether the address says what to look at. */
export const placed = ({ params }: Context): boolean =>
  ["start", "event", "find", "step"].some((name) => params[name] !== undefined);

/** The step to begin with; null where there is none, or something else is to be shown. */
export async function firstView(context: Context, trace?: number): Promise<FirstView | null> {
  if (report()) return null;
  return context.api.get("timeline/opening", { trace }).catch(() => null);
}

/** What is there within some time; null otherwise. */
export const soon = <A>(answer: Promise<A>, most: number): Promise<A | null> =>
  Promise.race([answer, new Promise<null>((done) => setTimeout(() => done(null), most))]);

/** A step with a little beside it. */
export function viewOf(first: FirstView | null, bounds: Window): Window {
  if (!first || first.end_ns <= first.start_ns) return bounds;
  const beside = (first.end_ns - first.start_ns) * BESIDE;
  return { start: first.start_ns - beside, end: first.end_ns + beside };
}
