/** The step trace of a rank: the figure of one step or the average, the operators at its points, and curves over all steps. */

import type { Row, Step, StepTrace } from "../api/types";
import { h, type Child } from "../ui/dom";
import { problemBox } from "../ui/notices";
import type { Context } from "../ui/page";
import { card, grid, nothing, smallTable } from "../ui/ui";
import * as format from "../words/format";
import { named, t } from "../words/i18n";
import { stepCurves } from "./step_charts";
import { segmentTable, stepFigure } from "./step_figure";

const PARTS = ["interval", "forward_backward", "tail"] as const;

/** Cards of the step trace; `rows` is the table `step_trace`. Of `few` steps there are no curves. */
export async function stepTraceCards(
  context: Context,
  trace: number,
  step: number | null,
  rows: readonly Row[],
  few: boolean,
): Promise<Child> {
  const points = { forward_point: context.params["forward"] ?? null, backward_point: context.params["backward"] ?? null };
  let found: StepTrace;
  try {
    found = await context.api.get("step-trace", { trace, step, ...points });
  } catch (error) {
    if (context.signal.aborted) return null;
    return card(t("steps.trace"), problemBox(error), { wide: true });
  }
  if (!found.rows.length)
    return card(t("steps.trace"), nothing(t("steps.trace.none"), t("steps.trace.none.why")), { wide: true });
  const known = found.rows.some((row) => row.kind === "parts");
  const of = found.step !== null ? `${t("step")} ${found.step}` : averageOf(found);
  const steps = stepsOf(rows);
  return [
    card(
      `${t("steps.trace")}: ${of}`,
      [
        found.excluded.length && found.step === null
          ? h("p", { class: "note" }, t("steps.figure.excluded", { steps: found.excluded.join(", ") }))
          : null,
        found.rows.length > 1 || found.step !== null ? stepFigure(found, context.signal) : null,
        known && few ? partFigures(found) : null,
        known ? null : h("p", { class: "callout" }, t("steps.trace.none.why")),
        pointsForm(context, found),
        h("details", null, h("summary", null, t("steps.figure.table")), segmentTable(found)),
      ],
      { wide: true, note: [t("steps.trace.what"), found.step === null && known ? ` ${t("steps.trace.mean")}` : ""] },
    ),
    known && !few
      ? grid(
          PARTS.filter((name) => hasPart(found, name)).map((name) =>
            card(named("part", name), [stepCurves(context, steps, [name], 200, named("part", name)), partFigures(found, name)], {
              narrow: true,
            }),
          ),
        )
      : null,
  ];
}

/** The rows as steps. Nothing tells when the first one was ready for its forward pass: it begins with it, and has no interval. */
export function stepsOf(rows: readonly Row[]): Step[] {
  return rows.map((row, place) => {
    const unknown = place === 0 && !row["interval_ns"];
    const times = { duration_ns: Number(row["total_ns"] ?? 0), complete: true };
    return { ...row, ...times, interval_ns: unknown ? null : row["interval_ns"] } as unknown as Step;
  });
}

/** Whether the steps have a part: without a backward pass there is none from forward to backward, and no tail. */
const hasPart = (found: StepTrace, name: string): boolean =>
  (found.parts.find((row) => row.part === `${name}_ns`)?.mean_ns ?? 0) > 0;

/** Of which steps the figure is. */
const averageOf = (found: StepTrace): string =>
  t("steps.figure.average", { count: format.count(found.steps.length - found.excluded.length) });

/** Which operators begin the forward pass and end the backward pass, and a form that names others. */
function pointsForm(context: Context, found: StepTrace): HTMLElement {
  const told = (names: readonly string[]): Child =>
    names.length ? names.map((one, place) => [place ? ", " : "", h("code", null, format.shorten(one, 160))]) : format.NOTHING;
  const input = (label: string, value: string | null, hint: string | undefined): HTMLInputElement =>
    h("input", {
      type: "search",
      "aria-label": label,
      placeholder: hint ?? "",
      value: value ?? "",
      autocomplete: "off",
      maxlength: 500,
    });
  const forward = input(t("steps.forward_point"), found.forward_point, found.forward_names[0]);
  const backward = input(t("steps.backward_point"), found.backward_point, found.backward_names[0]);
  return h(
    "form",
    {
      class: "points",
      onsubmit: (event: Event) => (
        event.preventDefault(),
        context.visit({ forward: forward.value.trim() || null, backward: backward.value.trim() || null })
      ),
    },
    h(
      "dl",
      { class: "pairs" },
      h("dt", null, t("steps.forward_point")),
      h("dd", null, told(found.forward_names)),
      h("dt", null, t("steps.backward_point")),
      h("dd", null, told(found.backward_names)),
    ),
    h(
      "details",
      { open: Boolean(found.forward_point ?? found.backward_point) },
      h("summary", null, t("steps.points.name")),
      h("p", { class: "note" }, t("steps.points.what")),
      h("div", { class: "controls" }, forward, backward, h("button", { type: "submit" }, t("steps.points.use"))),
    ),
  );
}

/** How long the parts are over all steps; of one of them without its name. */
function partFigures(found: StepTrace, only: string | null = null): Child {
  const rows = PARTS.filter((name) => (only === null || name === only) && hasPart(found, name)).map((name) => ({
    name,
    one: found.parts.find((row) => row.part === `${name}_ns`)!,
  }));
  if (!rows.length) return null;
  const figures = [t("steps.mean"), t("steps.median"), t("steps.p90"), t("steps.figure.share")];
  const heads = only === null ? [t("compare.part"), ...figures] : figures;
  return smallTable(
    only === null ? t("steps.trace") : named("part", only),
    heads,
    rows.map(({ name, one }) => [
      ...(only === null ? [named("part", name)] : []),
      format.value(one.mean_ns, "ns"),
      format.value(one.median_ns, "ns"),
      format.value(one.p90_ns, "ns"),
      format.value(one.share, "ratio"),
    ]),
    heads.map((_, place) => place).slice(only === null ? 1 : 0),
  );
}
