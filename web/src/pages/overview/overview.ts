/** The first page: what holds a step up, what to change, how it went over time, and what takes the most. */

import type { Overview } from "../../api/types";
import { bottleneckWords } from "../../charts/pipeline_flow";
import { type Child, h } from "../../ui/dom";
import { type Part, parts } from "../../ui/later";
import type { Context, Page } from "../../ui/page";
import { card, figure, figures, grid, rankName } from "../../ui/ui";
import { isHostBound, stepCount, verdictWords } from "../../ui/verdict_words";
import * as format from "../../words/format";
import { type Key, t } from "../../words/i18n";
import { adviceCard } from "./changes";
import { loadingOfRanks, loadingWords } from "./loading";
import { ranksCard } from "./ranks";
import { stepFigureOf } from "./step";
import { idleCard, pointedAt, trendCards } from "./trends";
import { workCard } from "./work";

/** operations that hold up a data pipeline */
const MOST_BOTTLENECKS = 3;
/** a data pipeline that costs less of a step is not told here */
const LEAST_WAIT = 0.05;

/** Which page shows more of a verdict, by the table that it names. */
const EVIDENCE: Readonly<Record<string, readonly [page: string, title: Key]>> = {
  kernels: ["kernels", "page.kernels"],
  communication: ["communication", "page.communication"],
  waits: ["ranks", "page.ranks"],
  pipeline: ["pipeline", "page.pipeline"],
  idle: ["steps", "page.steps"],
  steps: ["steps", "page.steps"],
  health: ["health", "page.health"],
};

export const overview: Page = {
  id: "overview",
  title: "page.overview",
  async show(context) {
    const found = await context.api.get("overview");
    const asked = context.api.get("trends", { trace: pointedAt(found)?.trace ?? 0 });
    const trends: Part = [t("overview.steps"), trendCards(context, found, asked)];
    const idle: Part = [t("overview.idle"), idleCard(context, found, asked)];
    const [first, second] = await parts(context, [trends, idle]);
    return [
      h("div", { class: "overview-top" }, verdictCard(context, found), adviceCard(context, found)),
      grid(first, ranksCard(context, found), pipelineCard(context, found)),
      grid(second, workCard(context, found)),
    ];
  },
};

function verdictCard(context: Context, found: Overview): HTMLElement {
  const [page, title] = EVIDENCE[found.verdict.table] ?? EVIDENCE["health"]!;
  const pointed = pointedAt(found);
  const steps = pointed?.figures.chosen ?? [];
  // on a CPU its operators are the tasks
  const evidence =
    page === "kernels" && !found.verdict.of_device ? (["operators", "page.operators"] as const) : ([page, title] as const);
  const links: (readonly [href: string, text: string])[] = [
    [context.to(evidence[0], page === "kernels" ? { by: "category" } : {}), t(evidence[1])],
  ];
  if (isHostBound(found.verdict) && pointed?.tables["ops"])
    links.push([context.to("operators", { metric: "self_ns" }), t("overview.operators.host")]);
  if (steps.length && pointed)
    links.push([
      context.to("timeline", { rank: pointed.trace, step: steps[Math.floor(steps.length / 2)] ?? null }),
      t("overview.step.timeline"),
    ]);
  if (found.verdict.confidence === "guess" && page !== "health") links.push([context.to("health"), t("page.health")]);
  return card(t("overview.step"), [
    h("p", { class: "verdict" }, verdictWords(found.verdict)),
    h(
      "p",
      { class: "evidence-links" },
      t("overview.evidence"),
      links.map(([href, text]) => [" ", h("a", { href }, text)]),
    ),
    summary(context, found),
    found.step_ns === null ? h("p", { class: "note" }, t("steps.none.why")) : stepFigureOf(context, found),
  ]);
}

function summary(context: Context, found: Overview): Child {
  // of a CPU a number tells nothing
  const devices = [...new Set(found.ranks.flatMap((one) => one.devices.map((name) => (name === "CPU 0" ? "CPU" : name))))];
  const formats = [...new Set(found.ranks.map((one) => one.format))];
  const frameworks = [...new Set(found.ranks.map((one) => one.framework).filter(Boolean))];
  const recorders = [...new Set(found.ranks.map((one) => one.recorder).filter(Boolean))];
  const distinct = new Set(found.ranks.map((one) => one.rank).filter((rank) => rank !== null)).size;
  const doubts = Object.values(found.health).reduce((sum, one) => sum + one, 0);
  const serious = doubts - (found.health["info"] ?? 0);
  const many = devices.length > 3 ? [...devices.slice(0, 3), "…"] : devices;
  return figures(
    found.step_ns === null
      ? null
      : figure(t("step.time"), format.time(found.step_ns), stepCount(found.figures), context.to("steps")),
    // windows of one process, traces of several that know nothing of each other, or files that do not tell their ranks, are no ranks
    distinct < 2 && found.ranks.length > 1
      ? figure(t("traces"), format.count(found.ranks.length), many.join(", "))
      : figure(
          t("ranks"),
          distinct < found.job_ranks
            ? t("ranks.recorded", { count: Math.max(distinct, 1), size: found.job_ranks })
            : format.count(Math.max(distinct, 1)),
          many.join(", "),
          distinct > 1 ? context.to("ranks") : undefined,
        ),
    doubts
      ? figure(
          t("page.health"),
          t(serious ? "overview.warnings" : "overview.notes", { count: format.count(serious || doubts) }),
          null,
          context.to("health"),
        )
      : null,
    figure(
      t("recorded.with"),
      recorders.join(", ") || formats.join(", "),
      [
        ...frameworks,
        // what steplens recorded and reads as that says the same twice
        ...formats.filter((one) => one !== "steplens run").map((one) => t("recorded.read", { format: one })),
      ].join(" · "),
    ),
  );
}

/** Which operation holds up the pipeline of a rank. */
function bottleneckOf(found: Overview, row: Overview["pipeline"][number]): string {
  const rank = found.ranks.length > 1 ? `${rankName(found.ranks[Number(row["trace"])]!, found.ranks)}: ` : "";
  return rank + bottleneckWords(String(row["name"]), row["usage"] == null ? null : Number(row["usage"]));
}

/** What holds up the data pipeline, if the training waits for it. */
function pipelineCard(context: Context, found: Overview): Child {
  const waits = loadingOfRanks(found);
  // on a rank that hardly waits nothing holds the training up, whichever stage is its longest
  const waiting = new Set(waits.filter((one) => one.step_ns * LEAST_WAIT <= one.ns).map((one) => one.name));
  const holding = found.pipeline.filter(
    (row) => !waits.length || waiting.has(rankName(found.ranks[Number(row["trace"])]!, found.ranks)),
  );
  if (!holding.length) return null;
  const sentences = holding.map((row) => bottleneckOf(found, row));
  const rows = sentences.slice(0, MOST_BOTTLENECKS).map((one) => h("li", null, one));
  const others = sentences.length - rows.length;
  return card(
    t("page.pipeline"),
    [
      waits.length ? h("p", null, loadingWords(waits)) : null,
      waits[0]?.waited ? h("p", null, waits[0].waited) : null,
      h("ul", null, rows, others > 0 ? h("li", { class: "note" }, t("rest", { count: format.count(others) })) : null),
    ],
    { narrow: true, more: context.to("pipeline") },
  );
}
