/** What a report says about itself on its pages. */

import type { TablePage } from "../api/types";
import { formatRoute } from "../browser/route";
import { report } from "../report/embedded";
import * as format from "../words/format";
import { t } from "../words/i18n";
import { h, type Child } from "./dom";

/** The stretch of time whose events a report has; null where a server has all of them. */
export async function windowOf(run: number): Promise<{ start: number; end: number } | null> {
  const found = (await report()?.manifest())?.windows[run];
  return found ? { start: found.start_ns, end: found.end_ns } : null;
}

/** What the window of a report is, in words. */
export function windowText(one: { start_ns: number; end_ns: number; step: number | null; median: boolean }): string {
  const fine = (one.end_ns - one.start_ns) / 1000;
  const span = t("report.window.span", { start: format.moment(one.start_ns, fine), end: format.moment(one.end_ns, fine) });
  return one.step === null
    ? span
    : `${t(one.median ? "report.window.median" : "report.window.step", { step: one.step })} (${span})`;
}

export function windowNote(run: number): Child {
  const held = report();
  if (!held) return null;
  const note = h("p", { class: "callout" });
  void held.manifest().then(({ windows }) => {
    if (windows[run]) note.textContent = t("report.window.note", { window: windowText(windows[run]) });
  });
  return note;
}

/** Says that this page is a report, and leads to what that means. */
export function reportBadge(run: number): Child {
  const held = report();
  if (!held) return null;
  const link = h("a", { class: "badge badge-info", href: formatRoute(run, "report") }, t("report.badge"));
  void held.manifest().then(({ redacted }) => {
    if (redacted) link.textContent = t("report.badge.redacted");
  });
  return link;
}

/** That a report has only some rows of a table. */
export function keptNote(found: TablePage): Child {
  if (!found.kept || found.kept === "all") return null;
  return h(
    "span",
    { class: "cut" },
    " ",
    t(found.kept === "window" ? "report.table.window" : "report.table.first", {
      shown: format.count(found.embedded ?? 0),
      of: format.count(found.total),
    }),
  );
}
