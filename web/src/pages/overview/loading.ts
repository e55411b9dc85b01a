/** How long a step loads its data, in words. */

import type { Overview } from "../../api/types";
import { waitedWords } from "../../charts/pipeline_flow";
import { hostBase, meanWord } from "../../ui/step_means";
import { rankName } from "../../ui/ui";
import * as format from "../../words/format";
import { t } from "../../words/i18n";

export interface Loading {
  name: string;
  ns: number;
  step_ns: number;
  itself: boolean;
  /** " (mean)" where it is one */
  mean?: string;
  /** which steps wait, in words; empty where all do or none does */
  waited?: string;
}

/** How long a step of each rank loads data, the longest first: a mean over ranks is a wait that none of them has. */
export function loadingOfRanks(found: Pick<Overview, "ranks">): Loading[] {
  return found.ranks
    .flatMap((one) => {
      const ns = one.parts["data_wait_ns"];
      return ns === undefined || !one.step_ns
        ? []
        : [
            {
              name: rankName(one, found.ranks),
              ns,
              step_ns: hostBase(one.figures),
              itself: one.loads_itself,
              mean: meanWord(one.figures),
              waited: waitedWords(one.waiting),
            },
          ];
    })
    .sort((one, other) => other.ns - one.ns);
}

/** That as a sentence about the rank that loads the longest, with the others beside it. */
export function loadingWords(waits: readonly Loading[]): string {
  const [most, ...others] = waits as [Loading, ...Loading[]];
  const figures = { time: format.time(most.ns), mean: most.mean ?? "", share: format.share(most.ns / most.step_ns) };
  // without workers there is nobody to wait for
  if (!others.length) return t(most.itself ? "pipeline.loads" : "pipeline.wait", figures);
  const [longest, shortest] = [format.time(others[0]!.ns), format.time(others.at(-1)!.ns)];
  const rest =
    others.length === 1
      ? `${others[0]!.name}: ${longest}`
      : t("pipeline.wait.others", {
          rest: longest === shortest ? longest : t("pipeline.wait.range", { least: shortest, most: longest }),
        });
  return t(most.itself ? "pipeline.loads.rank" : "pipeline.wait.rank", { name: most.name, ...figures, rest });
}
