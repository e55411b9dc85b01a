/** Some of the events of a run, to be looked at while all of them are read. */

import { RunApi } from "../../api/client";
import type { Draft, RunState } from "../../api/types";
import { TimelineView } from "../../timeline/view";
import type { Window } from "../../timeline/viewport";
import { type Child, h } from "../../ui/dom";
import { Context } from "../../ui/page";
import * as format from "../../words/format";
import { t } from "../../words/i18n";

/** the window that was looked at last of each draft, in ns of its own origin: all of its run is shown there, too */
const looked = new Map<number, { origin_ns: string; window: Window }>();

/** The lanes of a draft, above them that it is one. It asks for nothing any more once `signal` is given; `painted` is called once. */
export async function drawDraft(context: Context, draft: Draft, signal: AbortSignal, painted: () => void): Promise<Child> {
  const api = new RunApi(draft.run, signal);
  const found = await api.get("timeline", { trace: 0 });
  const bounds = { start: found.start_ns, end: found.end_ns };
  // events of a draft have other numbers than those of all: the address keeps nothing of it
  const own = new Context(context.page, context.run, context.session, {}, api, signal, () => undefined);
  const held = looked.get(context.run.run);
  const window = held?.origin_ns === draft.origin_ns ? held.window : bounds;
  const view = new TimelineView(
    own,
    [{ trace: 0, name: context.run.name, lanes: found.lanes, series: [] }],
    bounds,
    [],
    { window, held: [], draft: true },
    {
      chosen: () => undefined,
      selected: () => undefined,
      held: () => undefined,
      painted,
      moved: (now) => looked.set(context.run.run, { origin_ns: draft.origin_ns, window: now }),
    },
  );
  return [
    h("p", { class: "callout", role: "note" }, t("timeline.draft", { count: format.count(Math.round(draft.one_of)) })),
    view.element,
  ];
}

/** Where the user looked at in the draft of a run, in ns of the run's origin; null where nowhere. It is asked once. */
export function lookedAt(run: RunState): Window | null {
  const found = looked.get(run.run);
  looked.delete(run.run);
  if (!found) return null;
  const later = Number(BigInt(found.origin_ns) - BigInt(run.origin_ns));
  return { start: found.window.start + later, end: found.window.end + later };
}
