/** The tab about processors: how busy the host, the process and every operation were while the data pipeline worked. */

import type { ProcessorCurve, Processors } from "../../api/types";
import { numberOf } from "../../browser/route";
import { bucketChart, type Bucketed } from "../../charts/bucket_chart";
import { h, type Child } from "../../ui/dom";
import type { Context } from "../../ui/page";
import { card, choice, figure, figures, grid, nothing, smallTable } from "../../ui/ui";
import * as format from "../../words/format";
import { named, t } from "../../words/i18n";

const SHARE = /_utilization$/;

/** Cards of the tab. */
export async function processorCards(context: Context, trace: number): Promise<Child> {
  const [first, last] = [numberOf(context.params, "first"), numberOf(context.params, "last")];
  const found = await context.api.get("pipeline/processors", { trace, first, last });
  if (!found.curves.length && first === null && last === null) return nothing(t("processors.none"), t("processors.none.why"));
  const of = (scope: string): ProcessorCurve[] => found.curves.filter((one) => one.scope === scope);
  const operations = of("op");
  const names = new Map(operations.map((one) => [one.op, whose(one)]));
  const ids = [...names.keys()];
  const wanted = numberOf(context.params, "processor_op");
  const op = ids.find((one) => one === wanted) ?? null;
  const shown = operations.filter((one) => op === null || one.op === op);
  return [
    figures(
      figure(t("processors.cores"), found.cores === null ? format.NOTHING : format.count(found.cores)),
      figure(t("pipeline.interval"), found.interval_ms === null ? format.NOTHING : format.time(found.interval_ms * 1e6)),
      figure(
        t("processors.idle"),
        found.idle_percent === null ? format.NOTHING : format.percent(found.idle_percent),
        found.idle_percent === null ? null : t("processors.busy", { busy: format.percent(100 - found.idle_percent) }),
      ),
      counts(of("host")),
    ),
    found.first_batch === null ? null : batchForm(context, found, first, last),
    grid(
      ["host", "process"].map((scope) =>
        of(scope).some((one) => SHARE.test(one.name))
          ? card(t(`processors.${scope}` as "processors.host"), lines(context, of(scope)), { wide: true })
          : null,
      ),
      operations.length
        ? card(
            t("processors.operations"),
            [
              h(
                "div",
                { class: "controls" },
                choice(
                  t("pipeline.operation"),
                  [["", t("processors.every")], ...ids.map((one): [string, string] => [String(one), names.get(one)!])],
                  op === null ? "" : String(op),
                  (value) => context.visit({ processor_op: value || null }),
                ),
              ),
              lines(context, shown),
            ],
            { wide: true },
          )
        : null,
      card(
        t("processors.means"),
        smallTable(
          t("processors.means"),
          [t("processors.who"), t("processors.what"), t("mean"), t("pipeline.samples.head")],
          found.curves.map((one) => [whose(one), named("value", one.name), said(one), format.count(one.samples)]),
          [2, 3],
        ),
        { wide: true, note: found.left_out ? t("rest", { count: format.count(found.left_out) }) : null },
      ),
    ),
  ];
}

const whose = (one: ProcessorCurve): string => one.operation ?? t(`processors.${one.scope}` as "processors.host");
const unitOf = (one: ProcessorCurve): string => (one.unit === "%" ? "percent" : one.unit === "1" ? "" : one.unit);
const said = (one: ProcessorCurve): string => format.value(one.mean, unitOf(one));

/** What is counted rather than a share: context switches, processes that wait. */
function counts(host: readonly ProcessorCurve[]): Child {
  return host.filter((one) => !SHARE.test(one.name)).map((one) => figure(named("value", one.name), said(one), t("mean")));
}

function lines(context: Context, curves: readonly ProcessorCurve[]): HTMLElement {
  const shares = curves.filter((one) => SHARE.test(one.name));
  const several = new Set(shares.map((one) => one.op)).size > 1;
  const drawn = shares.slice(0, 40).map((one): Bucketed => ({
    ...one,
    place: one.sample,
    name: `${several ? `${whose(one)}: ` : ""}${named("value", one.name)}`,
    unit: "percent",
    mean: shares.length <= 4 ? one.mean : null,
  }));
  return bucketChart(context, t("page.pipeline"), t("pipeline.sample"), drawn, 240);
}

function batchForm(context: Context, found: Processors, first: number | null, last: number | null): HTMLElement {
  const input = (label: string, value: number | null, other: number | null): HTMLInputElement =>
    h("input", { type: "number", "aria-label": label, min: found.first_batch, max: found.last_batch, value: value ?? other });
  const from = input(t("processors.first"), first, found.first_batch);
  const to = input(t("processors.last"), last, found.last_batch);
  return h(
    "form",
    {
      class: "controls",
      onsubmit: (event: Event) => (event.preventDefault(), context.visit({ first: from.value || null, last: to.value || null })),
    },
    h("label", { class: "choice" }, h("span", null, t("processors.first")), from),
    h("label", { class: "choice" }, h("span", null, t("processors.last")), to),
    h("button", { type: "submit" }, t("table.filter")),
    h("button", { type: "button", onclick: () => context.visit({ first: null, last: null }) }, t("processors.all")),
  );
}
