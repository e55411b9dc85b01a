/** What a report holds: when it was made, the events of which window, and what was left out. */

import { type LeftOut, type Manifest, report } from "../../report/embedded";
import { h, type Child } from "../../ui/dom";
import type { Context, Page } from "../../ui/page";
import { windowText } from "../../ui/report_note";
import { card, figure, figures, smallTable } from "../../ui/ui";
import * as format from "../../words/format";
import { type Key, named, t } from "../../words/i18n";

export const reportPage: Page = {
  id: "report",
  title: "page.report",
  listed: () => report() !== null,
  async show(context) {
    const held = report();
    if (!held) return null;
    const told = await held.manifest();
    return [
      h(
        "p",
        null,
        t("report.what", { version: told.version, created: told.created.replace("T", " ").replace("+00:00", " UTC") }),
      ),
      h("p", { class: told.redacted ? "callout" : null }, t(told.redacted ? "report.redacted" : "report.plain")),
      figures(
        told.windows.map((one, run) =>
          figure(
            `${t("report.window")}${told.windows.length > 1 ? ` ${runName(context, run)}` : ""}`,
            windowText(one),
            null,
            `#/${run}/timeline`,
          ),
        ),
        figure(t("report.limits.rows"), format.count(told.rows)),
        figure(t("report.limits.size"), format.bytes(told.limit_bytes)),
      ),
      leftOut(context, told),
      h("p", { class: "note" }, t("report.server_only")),
    ];
  },
};

const runName = (context: Context, run: number): string => context.session.runs[run]?.name ?? String(run);

function leftOut(context: Context, told: Manifest): Child {
  if (!told.left_out.length) return card(t("report.left_out"), h("p", null, t("report.left_out.none")), { wide: true });
  const several = told.windows.length > 1;
  const heads = [
    t("report.left_out.what"),
    ...(several ? [t("run")] : []),
    t("report.left_out.shown"),
    t("report.left_out.of"),
    t("report.left_out.why"),
  ];
  const first = several ? 2 : 1;
  return card(
    t("report.left_out"),
    smallTable(
      t("report.left_out"),
      heads,
      told.left_out.map((one) => [
        nameOf(one),
        ...(several ? [runName(context, one.run)] : []),
        format.count(one.shown),
        format.count(one.of),
        t(`report.why.${one.why}` as Key),
      ]),
      [first, first + 1],
    ),
    { wide: true, note: t("report.left_out.none") },
  );
}

/** what the name of a thing that is left out stands for */
const SAID: Readonly<Record<string, (name: string) => string>> = {
  table: (name) => named("table", name),
  shapes: (name) => t(`shapes.level.${name}` as Key),
  strategy: (name) => t("stage.n", { number: name }),
};

function nameOf(one: LeftOut): string {
  const what = t(`report.what.${one.what}` as Key);
  const name = one.name ? (SAID[one.what]?.(one.name) ?? one.name) : "";
  return [what, name, one.trace === null ? "" : t("trace.n", { number: one.trace })].filter(Boolean).join(" · ");
}
