/** The data pipeline: how long the training waits for data, the operations and their queues, and the processors. */

import { numberOf } from "../../browser/route";
import { topicTables } from "../../tables/topic_tables";
import { h } from "../../ui/dom";
import type { Page } from "../../ui/page";
import { has, nothing, rankChoice, tabs } from "../../ui/ui";
import { t } from "../../words/i18n";
import { intervalCards } from "./interval";
import { processingCards } from "./processing";
import { processorCards } from "./processors";
import { slowest } from "./slowest";

const VIEWS = ["interval", "processing", "processors"] as const;
const MORE = [
  "loader_stages",
  "loader_workers",
  "loader_step_waits",
  "loader_queues",
  "loader_first_batches",
  "recorded_pipeline_loaders",
  "recorded_pipeline_tasks",
  "recorded_pipeline_epochs",
  "processors",
  "recorded_pipeline_batches",
];

export const pipeline: Page = {
  id: "pipeline",
  title: "page.pipeline",
  async show(context) {
    const [ranks, listed] = await Promise.all([context.api.get("ranks"), context.api.get("tables")]);
    const trace = numberOf(context.params, "rank") ?? 0;
    const [found, steps] = await Promise.all([context.api.get("pipeline", { trace }), context.api.get("steps", { trace })]);
    const recorded = ["pipeline_ops", "pipeline_batches", "pipeline_loaders", "pipeline_samples"].some((name) =>
      has(ranks, name, trace),
    );
    // the other tabs are of MindSpore's data engine: its queues between operations, and processors sampled beside them. A DataLoader
    // has one queue, and its stages were measured: the batch path and the tables have them
    const views = has(ranks, "pipeline_loaders", trace) ? (["interval"] as const) : VIEWS;
    const view =
      views.find((one) => one === context.params["view"])
      ?? (found.places.length || !found.operations.length || views.length === 1 ? "interval" : "processing");
    const chooser = h("div", { class: "controls" }, rankChoice(context, ranks, false));
    if (!recorded)
      return [
        chooser,
        await intervalCards(context, trace, found, steps.steps, ranks[trace]),
        nothing(t("pipeline.none"), t("pipeline.none.why")),
      ];
    return [
      views.length > 1
        ? tabs(
            t("page.pipeline"),
            views.map((id) => ({
              id,
              title: t(`pipeline.view.${id}`),
              href: context.to("pipeline", { rank: context.params["rank"], view: id }),
            })),
            view,
          )
        : null,
      chooser,
      views.length > 1 && view !== "processors" ? slowest(context, found, view) : null,
      view === "interval" ? await intervalCards(context, trace, found, steps.steps, ranks[trace]) : null,
      view === "processing"
        ? found.operations.length
          ? processingCards(context, trace, found)
          : nothing(t("pipeline.no_operations"), t("pipeline.none.why"))
        : null,
      view === "processors" ? await processorCards(context, trace) : null,
      topicTables(context, t("pipeline.more"), listed, has(ranks, "pipeline_loaders", trace) ? MORE : [...MORE].reverse(), trace),
    ];
  },
};
