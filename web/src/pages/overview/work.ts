/** What a step works on longest: kernels and collectives of a device, operators of a CPU. */

import type { Overview } from "../../api/types";
import { shareBars } from "../../charts/share_bars";
import type { Child } from "../../ui/dom";
import type { Context } from "../../ui/page";
import { card } from "../../ui/ui";
import * as format from "../../words/format";
import { t } from "../../words/i18n";

/** what says in which library a kernel lies and nothing of what it does */
const NAMESPACES = /\b(?:at::native|at::detail|at|c10|cudnn|detail)::|\(anonymous namespace\)::/g;

/** A kernel as short as it can be told from others: without its namespaces, or without the scopes of a graph. */
export function shortKernel(name: string): string {
  if (/^[\w.-]+(\/[\w.-]+)+$/.test(name)) return name.slice(name.lastIndexOf("/") + 1);
  return name.replace(/^void /, "").replaceAll(NAMESPACES, "");
}

export function workCard(context: Context, found: Overview): Child {
  if (!found.work.length) return null;
  const operators = found.work.every((one) => one.kind === "operator");
  const base = found.work_steps ? t("overview.work.step", { count: format.count(found.work_steps) }) : t("overview.work.sum");
  const page = operators ? "operators" : "kernels";
  return card(
    t(operators ? "overview.operators" : "overview.kernels"),
    shareBars(
      found.work.map((row) => ({
        name: row.kind === "compute" ? shortKernel(row.label) : row.label,
        title: row.name,
        value: row.step_ns,
        share: row.ratio * 100,
        note: `${format.value(row.calls, "count")} ×`,
        look: row.kind === "communication" ? "exposed-communication" : "computing",
        href:
          row.kind === "communication"
            ? context.to("communication")
            : operators
              ? context.to("operators", { of: row.name })
              : context.to("kernels", { of: row.name }),
      })),
    ),
    { more: context.to(page), note: `${base} ${t(operators ? "overview.operators.what" : "overview.kernels.what")}` },
  );
}
