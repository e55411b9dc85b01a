/** The training that writes into this run: what its processes do, asking them for a capture, and watching it arrive. */

import type { Captures, CaptureRequest, Process } from "../../api/types";
import { h, replace, type Child } from "../../ui/dom";
import { problemBox } from "../../ui/notices";
import type { Context } from "../../ui/page";
import { card, nothing, smallTable } from "../../ui/ui";
import * as format from "../../words/format";
import { named, t } from "../../words/i18n";

const WATCH_MS = 1000;
const RECORD = ["record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules"] as const;
const MOST_REQUESTS = 8;
/** so often a run that could not be opened is tried again for the captures that are there */
const MOST_TRIES = 5;
/** tries by run and number of captures: a failed try shows the page anew, and with it this card */
const tries = new Map<string, number>();

/** A card that keeps itself up to date; `arrived` is called when a capture has been analysed. */
export function capturesCard(context: Context, arrived: () => void): HTMLElement {
  const state = h("div", { "aria-live": "polite" });
  const said = h("div", { role: "status" });
  const form = captureForm(context, said);
  form.hidden = true;
  const seen = new Set<string>();
  let first = true;
  let timer = 0;
  const look = async (): Promise<void> => {
    try {
      const found = await context.api.get("captures");
      form.hidden = !found.processes.some((one) => one.eligible);
      replace(state, shown(found));
      const done = found.processes.flatMap((one) => one.requests).filter((one) => one.analysed);
      if ((!first && done.some((one) => !seen.has(one.result))) || (done.length && triesAgain(context, done.length))) arrived();
      for (const one of done) seen.add(one.result);
      first = false;
    } catch (error) {
      if (context.signal.aborted) return;
      replace(state, problemBox(error));
    }
    if (!context.signal.aborted) timer = window.setTimeout(() => void look(), WATCH_MS);
  };
  context.signal.addEventListener("abort", () => clearTimeout(timer));
  void look();
  return card(t("captures.title"), [state, form, said], { wide: true, note: t("captures.what") });
}

/** Whether a run of which nothing could be opened may be opened now: it was tried before its first capture was whole. */
function triesAgain(context: Context, captures: number): boolean {
  if (context.run.generation > 0) return false;
  const key = `${context.run.run}/${captures}`;
  const before = tries.get(key) ?? 0;
  tries.set(key, before + 1);
  return before < MOST_TRIES;
}

function shown(found: Captures): Child {
  if (found.folder === null) return nothing(t("captures.none"), t("captures.none.why"));
  if (!found.processes.length)
    return [h("p", null, h("code", null, found.folder)), nothing(t("captures.nobody"), t("captures.none.why"))];
  const requests = found.processes
    .flatMap((process) => process.requests.map((request) => ({ process, request })))
    .slice(-MOST_REQUESTS)
    .reverse();
  return [
    smallTable(
      t("captures.title"),
      [t("rank"), t("captures.process"), t("captures.state"), t("step"), t("captures.since"), t("captures.can")],
      found.processes
        .slice(0, 64)
        .map((one) => [
          one.rank >= 0 ? String(one.rank) : format.NOTHING,
          `${one.pid} ${format.shorten(one.program, 60)}`,
          stateOf(one),
          one.step === null ? format.NOTHING : format.count(one.step),
          one.step_age_ns === null ? format.NOTHING : format.time(Math.max(one.step_age_ns, 0)),
          one.eligible ? t("captures.yes") : one.why_not,
        ]),
      [3, 4],
    ),
    [...new Set(found.processes.map((one) => one.problem).filter(Boolean))].map((one) => h("p", { class: "callout" }, one)),
    requests.length
      ? smallTable(
          t("captures.requests"),
          [t("captures.request"), t("rank"), t("captures.state"), t("steps"), t("captures.result")],
          requests.map(({ process, request }) => [
            h("code", null, request.id),
            process.rank >= 0 ? String(process.rank) : format.NOTHING,
            requestState(request),
            stepsOf(request),
            request.reason || format.shorten(request.result.split("/").at(-1) ?? "", 80),
          ]),
        )
      : null,
  ];
}

const stateOf = (one: Process): string =>
  one.recorded !== null && one.wanted !== null && one.state === "recording"
    ? `${named("value", "capture.recording")} ${Math.max(one.recorded + 1, 0)}/${one.wanted}`
    : named("value", `capture.${one.state}`, one.state);
const requestState = (one: CaptureRequest): string =>
  one.state === "done" && one.analysed ? named("value", "capture.analysed") : named("value", `capture.${one.state}`, one.state);
const stepsOf = (one: CaptureRequest): string =>
  one.first_step === null || one.last_step === null
    ? format.NOTHING
    : one.last_step - one.first_step === 1
      ? String(one.first_step)
      : `${one.first_step} – ${one.last_step - 1}`;

function captureForm(context: Context, said: HTMLElement): HTMLFormElement {
  const number = (label: string, value: number, least: number): HTMLInputElement =>
    h("input", { type: "number", min: least, max: 1000, value, "aria-label": label });
  const [steps, warmup] = [number(t("captures.steps"), 3, 1), number(t("captures.warmup"), 0, 0)];
  const ranks = h("input", {
    type: "search",
    "aria-label": t("captures.ranks"),
    placeholder: t("captures.ranks.hint"),
    autocomplete: "off",
  });
  const boxes = RECORD.map((name) => [name, h("input", { type: "checkbox" })] as const);
  const ask = async (): Promise<void> => {
    const words = ranks.value.split(/[\s,]+/).filter(Boolean);
    if (words.some((one) => !/^\d{1,6}$/.test(one)))
      return replace(said, h("p", { class: "error", role: "alert" }, t("captures.ranks.wrong")));
    try {
      const { request } = await context.api.capture({
        steps: Number(steps.value),
        warmup: Number(warmup.value),
        record: boxes.filter(([, box]) => box.checked).map(([name]) => name),
        ranks: words.length ? words.map(Number) : null,
      });
      replace(said, h("p", null, t("captures.asked", { request })));
    } catch (error) {
      if (!context.signal.aborted) replace(said, problemBox(error));
    }
  };
  return h(
    "form",
    { class: "capture-form", onsubmit: (event: Event) => (event.preventDefault(), void ask()) },
    h(
      "div",
      { class: "controls" },
      h("label", { class: "choice" }, h("span", null, t("captures.steps")), steps),
      h("label", { class: "choice" }, h("span", null, t("captures.warmup")), warmup),
      h("label", { class: "choice" }, h("span", null, t("captures.ranks")), ranks),
    ),
    h(
      "div",
      { class: "controls" },
      boxes.map(([name, box]) => h("label", { class: "choice" }, box, h("code", null, name))),
      h("button", { type: "submit", class: "primary" }, t("captures.ask")),
    ),
  );
}
