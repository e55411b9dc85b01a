/** What a step works on longest: operators and collectives by their device time, kernels, or operators of a CPU. */

import type { Overview } from "../../api/types";
import { shareBars } from "../../charts/share_bars";
import type { Child } from "../../ui/dom";
import type { Context } from "../../ui/page";
import { basisNote, card, rankName } from "../../ui/ui";
import * as format from "../../words/format";
import { t } from "../../words/i18n";
import { kernelLabel } from "../../words/kernel_names";

export function workCard(context: Context, found: Overview): Child {
  if (!found.work.length) return null;
  const operators = found.work.every((one) => one.kind === "operator");
  const launched = found.work.some((one) => one.kind.startsWith("launched"));
  // work outside of all chosen steps is summed over the recording
  const timed = found.ranks.some((one) => one.figures.chosen.length > 0);
  const outside = timed && !found.work_steps;
  const only = found.work_trace;
  const rank =
    only === null
      ? null
      : rankName(
          found.ranks.find((one) => one.trace === only)!,
          found.ranks,
        );
  const base = outside ? t("basis.outside") : basisNote(found.ranks, only, false, true);
  const alone = rank === null ? "" : t("overview.work.rank", { rank });
  const basis = outside ? "recording" : null;
  const page = operators || launched ? "operators" : "kernels";
  return card(
    t(operators ? "overview.operators" : launched ? "overview.launched" : "overview.kernels"),
    shareBars(
      found.work.map((row) => ({
        name: row.kind === "compute" ? kernelLabel(row.label) : row.label,
        title: row.name,
        value: row.step_ns,
        share: row.ratio * 100,
        note: row.kind === "launched" ? t("overview.launched.count", { count: calls(row) }) : `${calls(row)} ×`,
        look: row.kind === "communication" ? "exposed-communication" : "computing",
        href:
          row.kind === "communication"
            ? context.to("communication")
            : row.kind === "operator" || row.kind.startsWith("launched")
              ? context.to("operators", { of: row.name, basis, rank: only })
              : context.to("kernels", { of: row.name, basis, rank: only }),
      })),
    ),
    {
      more: context.to(page, { basis, rank: only }),
      note: `${alone}${base} ${t(operators ? "overview.operators.what" : "overview.kernels.what")}`,
    },
  );
}

/** How often in a step: a whole number, or the fewest and the most of any step and rank. */
const calls = (row: Overview["work"][number]): string =>
  row.calls_least === row.calls_most
    ? format.count(row.calls_most)
    : t("overview.work.calls", { least: format.count(row.calls_least), most: format.count(row.calls_most) });
