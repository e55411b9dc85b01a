/** What a run has nothing of, and which option records it: told in one place, and in place of a page that would be empty. */

import type { RunState } from "../api/types";
import { formatRoute } from "../browser/route";
import { t, type Key } from "../words/i18n";
import { type Child, h } from "./dom";
import { card, smallTable } from "./ui";

/** page -> the parts of a recording without which it has nothing to show */
const NEEDS: Readonly<Record<string, readonly Part[]>> = {
  steps: ["steps"],
  operators: ["operators"],
  kernels: ["kernels"],
  shapes: ["steps", "shapes"],
  memory: ["memory"],
  pipeline: ["pipeline"],
  communication: ["communication"],
  ranks: ["ranks"],
  marey: ["ranks", "steps"],
  strategy: ["strategy"],
};

interface Options {
  steplens: string;
  torch: string;
  ascend: string;
  mindspore: string;
}
/** part -> what records it: of steplens.profile and steplens run, torch.profiler, torch_npu.profiler and MindSpore's profiler */
const OPTIONS = {
  steps: options("prof.step() · steplens run", "prof.step()", "prof.step()", "Model.train · profiler.step()"),
  operators: options("activities=[CPU]", "activities=[CPU]", "activities=[CPU]", "activities=[CPU]"),
  kernels: options("activities=[CPU, CUDA]", "activities=[CPU, CUDA]", "activities=[CPU, NPU]", "activities=[CPU, NPU]"),
  shapes: options("record_shapes=True", "record_shapes=True", "record_shapes=True", "record_shapes=True"),
  stacks: options("with_stack=True", "with_stack=True", "with_stack=True", "with_stack=True"),
  modules: options("with_modules=True", "with_modules=True", "with_modules=True", ""),
  python: options("with_stack=True", "with_stack=True", "with_stack=True", "with_stack=True"),
  memory: options("profile_memory=True", "profile_memory=True", "profile_memory=True", "profile_memory=True"),
  pipeline: options("DataLoader", "", "", "data_process=True"),
  communication: options("torchrun", "activities=[CPU, CUDA]", 'profiler_level="Level1"', "ProfilerLevel.Level1"),
  ranks: options("steplens view FOLDER", "steplens view FOLDER", "steplens view FOLDER", "steplens view FOLDER"),
  counters: options("host_sys=[…]", "", "host_sys=[…]", "host_sys=[…]"),
  strategy: options("", "", "", "parallel_strategy=True"),
} as const satisfies Record<string, Options>;
export type Part = keyof typeof OPTIONS;

function options(steplens: string, torch: string, ascend: string, mindspore: string): Options {
  return { steplens, torch, ascend, mindspore };
}

/** What is missing of a page of a run; nothing where the page has something to show. */
export function missingParts(run: RunState | undefined, page: string): Part[] {
  if (!run) return [];
  const missing: readonly string[] = run.strategy ? run.not_recorded : [...run.not_recorded, "strategy"];
  return (NEEDS[page] ?? []).filter((part) => missing.includes(part));
}

/** What is said in place of a page without data. */
export function missingPage(run: RunState, parts: readonly Part[]): Child {
  return [
    partsCard(parts, t("recorded.page")),
    h("p", null, h("a", { href: formatRoute(run.run, "health") }, t("recorded.all"))),
  ];
}

/** parts that a job of one process cannot have */
const OF_SEVERAL: readonly Part[] = ["ranks", "communication"];

/**
 * What was not recorded of a run; a strategy is missed by those alone who have one.
 *
 * @param recorders what recorded its traces, empty where nothing tells
 * @param several whether its job has several processes
 */
export function missingCard(run: RunState, recorders: readonly string[], several: boolean): Child {
  const parts = run.not_recorded.filter(
    (part): part is Part => part in OPTIONS && (several || !OF_SEVERAL.includes(part as Part)),
  );
  return parts.length ? partsCard(parts, t("recorded.title"), recorders) : null;
}

/** profiler -> its options */
const PROFILERS: Readonly<Record<string, keyof Options>> = {
  steplens: "steplens",
  "torch.profiler": "torch",
  "torch_npu.profiler": "ascend",
  MindSpore: "mindspore",
};

function partsCard(parts: readonly Part[], title: string, recorders: readonly string[] = []): HTMLElement {
  const every = Object.keys(PROFILERS);
  const used = every.filter((name) => recorders.includes(name));
  const named = used.length ? used : every;
  const rows = parts.map((part): Child[] => [
    h("strong", { class: "check" }, t(`recorded.${part}` as Key)),
    h("span", null, t(`recorded.${part}.what` as Key)),
    ...named.map((name) => {
      const option = OPTIONS[part][PROFILERS[name]!];
      return option ? h("code", null, option) : t("recorded.no_option");
    }),
  ]);
  const heads = [
    t("recorded.part"),
    t("recorded.needed"),
    ...(named.length === 1 ? [t("recorded.option", { profiler: named[0]! })] : named),
  ];
  return card(title, h("div", { class: "options" }, smallTable(title, heads, rows)), { wide: true, note: t("recorded.what") });
}
