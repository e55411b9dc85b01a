/** What is said instead of a page: how far the opening is, or what is wrong and what to do. */

import { Refused, Unreachable } from "../api/refused";
import type { RunState } from "../api/types";
import { report } from "../report/embedded";
import * as format from "../words/format";
import { t } from "../words/i18n";
import { type Child, h } from "./dom";
import { prose } from "./prose";

export function problemBox(error: unknown): HTMLElement {
  const { problem, where, remedy } =
    error instanceof Refused
      ? error.problem
      : { problem: error instanceof Error ? error.message : String(error), where: "", remedy: "" };
  return h(
    "div",
    { class: "problem", role: "alert" },
    h("p", null, h("strong", null, prose(problem))),
    where ? h("p", null, `${t("where")}: `, h("code", null, where)) : null,
    remedy ? h("p", null, prose(remedy)) : null,
    error instanceof Unreachable ? h("p", null, h("button", { type: "button", onclick: askAgain }, t("server.again"))) : null,
  );
}

/** Show the page once more: the server may be there again. */
const askAgain = (): unknown => document.dispatchEvent(new Event("steplens-again"));

/** The same in a line, where there is no room for a box. */
export function problemLine(error: unknown): Child {
  if (error instanceof Unreachable) return prose(`${error.message} ${error.problem.remedy}`);
  return error instanceof Error ? error.message : String(error);
}

/** Why a run could not be opened, and a button that tries again. */
export function failedBox(run: RunState, again: () => void): Child {
  const { problem } = run.progress;
  const button = report() ? null : h("p", null, h("button", { type: "button", onclick: again }, t("live.again")));
  return [
    h("h1", { tabindex: -1 }, t("opening.failed", { name: run.name })),
    problem ? problemBox(new Refused(409, problem)) : null,
    button,
  ];
}

export function progressBox(run: RunState): Child {
  const { progress } = run;
  const values = { done: format.count(progress.done), total: format.count(progress.total) };
  const of =
    progress.doing === "comparing"
      ? t("opening.comparing", values)
      : progress.doing === "analysing"
        ? t("opening.analysing", values)
        : progress.total
          ? t("opening.of", { done: progress.done, total: progress.total })
          : t("opening.looking");
  // nobody can tell how far that is
  const isCounted = progress.total > 0 && progress.doing !== "comparing";
  return [
    h("h1", null, t("opening", { name: run.name })),
    h(
      "progress",
      isCounted ? { max: progress.total, value: progress.done + progress.part, "aria-label": of } : { "aria-label": of },
    ),
    h("p", null, of, progress.part ? ` · ${Math.floor(progress.part * 100)} %` : "", ` · ${format.time(progress.seconds * 1e9)}`),
    progress.what
      ? h("p", { class: "note" }, h("code", null, progress.what), progress.bytes ? ` (${format.bytes(progress.bytes)})` : "")
      : null,
  ];
}
