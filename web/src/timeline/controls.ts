/** Boxes above the timeline: which ranks, lanes and curves are shown; the address keeps all of them. */

import type { TraceState } from "../api/types";
import { rankPicker } from "../ui/rank_picker";
import { isMany } from "../ui/rank_places";
import { type Child, h } from "../ui/dom";
import type { Context } from "../ui/page";
import { rankName } from "../ui/ui";
import { t } from "../words/i18n";

/** ranks that are shown at once at most */
const MOST_RANKS = 8;

/** The ranks of the address that the run has; its first one without any. */
export function chosenTraces(context: Context, ranks: readonly TraceState[]): number[] {
  const wanted = (context.params["rank"] ?? "")
    .split(",")
    .filter((one) => /^\d{1,9}$/.test(one))
    .map(Number);
  const known = ranks
    .map((one) => one.trace)
    .filter((one) => wanted.includes(one))
    .slice(0, MOST_RANKS);
  return known.length ? known : [ranks[0]!.trace];
}

/** The lanes of an address such as `0.3,1.2`: rank and lane. */
export function heldLanes(text: string | undefined): { trace: number; lane: number }[] {
  const found = (text ?? "").split(",").map((one) => /^(\d{1,9})\.(\d{1,9})$/.exec(one));
  return found.flatMap((one) => (one ? [{ trace: Number(one[1]), lane: Number(one[2]) }] : []));
}

export function rankBoxes(context: Context, ranks: readonly TraceState[], traces: readonly number[]): Child {
  if (ranks.length < 2) return null;
  return h(
    "details",
    { class: "drop" },
    h(
      "summary",
      null,
      `${t("ranks")}: ${traces
        .map((one) =>
          rankName(
            ranks.find((rank) => rank.trace === one)!,
            ranks,
          ),
        )
        .join(", ")}`,
    ),
    h(
      "div",
      { class: "drop-list" },
      isMany(ranks) ? addRank(context, ranks, traces) : null,
      listedOnes(ranks, traces).map((one) => {
        const box = h("input", {
          type: "checkbox",
          checked: traces.includes(one.trace),
          onchange: () => {
            const next = box.checked ? [...traces, one.trace] : traces.filter((trace) => trace !== one.trace);
            context.visit({ rank: next.sort((left, right) => left - right).join(",") || null, event: null });
          },
        });
        return h("label", null, box, rankName(one, ranks));
      }),
      h("p", { class: "note" }, t("timeline.most_ranks", { count: MOST_RANKS })),
    ),
  );
}

/** The ranks with a box each: all, or of very many those that are shown. */
const listedOnes = (ranks: readonly TraceState[], traces: readonly number[]): readonly TraceState[] =>
  isMany(ranks) ? ranks.filter((one) => traces.includes(one.trace)) : ranks;

function addRank(context: Context, ranks: readonly TraceState[], traces: readonly number[]): Child {
  return rankPicker(context, ranks, "", false, (trace) => {
    if (trace === null || traces.includes(trace)) return;
    const next = [...traces, trace].slice(-MOST_RANKS);
    context.visit({ rank: next.sort((left, right) => left - right).join(","), event: null });
  });
}

/** A list of the address: sources of lanes that are hidden, curves that are shown. */
export function listed(context: Context, name: "hide" | "curves"): Set<string> {
  try {
    const found: unknown = JSON.parse(context.params[name] ?? "[]");
    return new Set(Array.isArray(found) ? found.filter((one) => typeof one === "string") : []);
  } catch {
    return new Set();
  }
}

/** Keep in the address that something is in a list of it, or not. */
export function list(context: Context, name: "hide" | "curves", value: string, on: boolean): void {
  const kept = listed(context, name);
  if (on) kept.add(value);
  else kept.delete(value);
  context.note({ [name]: kept.size ? JSON.stringify([...kept]) : null });
}

export function check(text: string, checked: boolean, onChange: (shown: boolean) => void): HTMLElement {
  const box = h("input", { type: "checkbox", checked, onchange: () => onChange(box.checked) });
  return h("label", { class: "choice" }, box, h("span", null, text));
}

export function drop(title: string, content: Child): HTMLElement {
  return h("details", { class: "drop" }, h("summary", null, title), h("div", { class: "drop-list" }, content));
}

/** Close every open menu in an element; whether one was. The focus goes to what opens it. */
export function closeMenus(page: HTMLElement, but: Element | null = null): boolean {
  const open = [...page.querySelectorAll<HTMLDetailsElement>("details.drop[open]")].filter((one) => one !== but);
  for (const one of open) {
    if (one.contains(document.activeElement)) one.querySelector("summary")?.focus();
    one.open = false;
  }
  return open.length > 0;
}

/** Menus of an element never lie over one another: opening one, or pressing beside it, closes the others. */
export function oneMenu(page: HTMLElement, signal: AbortSignal): void {
  page.addEventListener(
    "toggle",
    ({ target }) => {
      if (target instanceof HTMLDetailsElement && target.open && target.matches(".drop")) closeMenus(page, target);
    },
    { capture: true, signal },
  );
  document.addEventListener(
    "pointerdown",
    ({ target }) => {
      if (!page.isConnected || !(target instanceof Element)) return;
      closeMenus(page, target.closest("details.drop"));
    },
    { signal },
  );
  page.addEventListener(
    "keydown",
    (event) => {
      // in a text, too
      if (event.key === "Escape" && closeMenus(page)) event.preventDefault();
    },
    { signal },
  );
}
