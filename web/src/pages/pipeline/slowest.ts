/** What tabs of the data pipeline begin with: which operation is the slowest, as far as the queues tell. */

import type { Pipeline } from "../../api/types";
import { bottleneckWords } from "../../charts/pipeline_flow";
import { type Child, h } from "../../ui/dom";
import type { Context } from "../../ui/page";
import { t } from "../../words/i18n";

/** The slowest operations in sentences, that the pipeline keeps up, or that none stands out; empty without queues. */
export function slowestWords(found: Pick<Pipeline, "operations" | "bottlenecks" | "keeps_up">): string {
  if (found.operations.every((one) => one.usage === null)) return "";
  if (found.keeps_up) return t("pipeline.keeps_up");
  const slow = found.operations.filter((one) => found.bottlenecks.includes(one.id));
  return slow.map((one) => bottleneckWords(one.operation, one.usage)).join(" ") || t("pipeline.slowest.none");
}

/** The same, with the way to the operations from the tab that does not have them. */
export function slowest(context: Context, found: Pipeline, view: string): Child {
  const words = slowestWords(found);
  if (!words) return null;
  const to = context.to("pipeline", { rank: context.params["rank"], view: "processing", op: found.bottlenecks[0] });
  const isSlow = !found.keeps_up && found.bottlenecks.length > 0;
  const link = view === "processing" ? null : [" ", h("a", { href: to }, t("pipeline.view.processing"))];
  return h("p", { class: isSlow ? "callout" : "note" }, words, link);
}
