/** Two sides, each of one recording or several: whether a step became longer, how sure that is, where the time went, and why. */

import { compare as ask, comparedCalls, comparedFindings } from "../../api/client";
import type { ComparedFindings, Comparison, Finding } from "../../api/types";
import { formatRoute, numberOf } from "../../browser/route";
import { type Child, h } from "../../ui/dom";
import { parts } from "../../ui/later";
import { problemBox } from "../../ui/notices";
import type { Context, Page } from "../../ui/page";
import { card, choice, findingLine, grid, nothing } from "../../ui/ui";
import * as format from "../../words/format";
import { t } from "../../words/i18n";
import { alignedCard } from "./aligned_steps";
import { callFlames } from "./call_flames";
import { causesCard, isOfDevice, namesCard, partsCard, pathsCard } from "./changes";
import { stepPicture } from "./step_picture";
import { verdictOf } from "./verdict";

/** whose time a flame graph is of: that of the calls, or of what they launched on a device; with what it shows then */
const CALLS_OF = { host: "compare.calls.of.host", device: "compare.calls.of.device" } as const;
const SHOWN_OF = { host: "compare.calls.what.host", device: "compare.calls.what.device" } as const;

export const compare: Page = {
  id: "compare",
  title: "page.compare",
  listed: (session) => session.runs.length > 1,
  async show(context) {
    const { runs } = context.session;
    if (runs.length < 2) return nothing(t("compare.one"), t("compare.one.why"));
    const before = numberOf(context.params, "before") ?? 0;
    const after = numberOf(context.params, "after") ?? 1;
    const chooser = chooseSides(context, before, after);
    let found: Comparison;
    try {
      found = await ask(before, after, context.signal);
    } catch (error) {
      // other sides may be comparable
      if (context.signal.aborted) throw error;
      return [chooser, problemBox(error)];
    }
    return [
      chooser,
      card(t("compare.verdict"), [verdictOf(found), stepPicture(found, context.signal)], { wide: true }),
      grid(
        causesCard(found),
        partsCard(found),
        await alignedCard(context, before, after),
        await parts(context, [[t("compare.calls"), callsCard(context, found)]]),
        namesCard(found, t("compare.operators"), t("compare.operators.what"), found.operators, found.different),
        namesCard(found, t("compare.tasks"), t("compare.tasks.what"), found.tasks, found.different_tasks),
        pathsCard(found),
        await parts(context, [[t("compare.findings"), findingsOf(context, before, after)]]),
      ),
    ];
  },
};

/** Which of the runs are compared, as the address has it. */
function chooseSides(context: Context, before: number, after: number): HTMLElement {
  const items = context.session.runs.map((one): [string, string] => [String(one.run), one.name]);
  return h(
    "div",
    { class: "controls" },
    choice(t("compare.before"), items, String(before), (value) => context.visit({ before: value })),
    choice(t("compare.after"), items, String(after), (value) => context.visit({ after: value })),
    h("button", { type: "button", onclick: () => context.visit({ before: after, after: before }) }, t("compare.swap")),
  );
}

/** The flame graphs, of the device where its time is what the parts of a step are of, unless the address says otherwise. */
async function callsCard(context: Context, found: Comparison): Promise<Child> {
  const asked = found.calls_of.find((one) => one === context.params["of"]);
  const of = asked ?? (found.calls_of.includes("device") && isOfDevice(found) ? "device" : "host");
  const runs = { before: found.before.run, after: found.after.run };
  const calls = await comparedCalls(runs.before, runs.after, of, context.signal);
  const chooser =
    found.calls_of.length > 1
      ? choice(
          t("compare.calls.of"),
          found.calls_of.map((one) => [one, t(CALLS_OF[one])] as const),
          of,
          (value) => context.visit({ of: value }),
        )
      : null;
  return card(t("compare.calls"), callFlames(calls, runs, chanceOf(found), chooser), {
    wide: true,
    note: [t(SHOWN_OF[of]), " ", isTold(found) ? null : t("compare.calls.chance")],
  });
}

/** Whether more than chance made a step longer or shorter. */
const isTold = ({ step }: Comparison): boolean => step?.verdict === "slower" || step?.verdict === "faster";

/** Half of the interval of the step's change, ns. */
const chanceOf = ({ before, step }: Comparison): number => (step ? ((step.high - step.low) / 2) * (before.step_ns ?? 0) : 0);

/** What became of the advice, as far as both sides are of one program. */
async function findingsOf(context: Context, before: number, after: number): Promise<Child> {
  const found = await comparedFindings(before, after, context.signal);
  return [
    findings(t("compare.cured"), found.cured, before, promisedWords(found)),
    findings(t("compare.new"), found.new, after),
    findings(t("compare.remaining"), found.remaining, after),
  ];
}

const promisedWords = ({ promised_ns: ns }: ComparedFindings): string | null =>
  ns > 0 ? t("compare.promised", { time: format.time(ns) }) : null;

function findings(title: string, list: readonly Finding[], run: number, note: string | null = null): Child {
  if (!list.length) return null;
  return card(
    title,
    h(
      "ul",
      { class: "findings" },
      list.map((one) => findingLine(one, formatRoute(run, "advice", { finding: one.id }))),
    ),
    { note },
  );
}
