/** A box to choose one of many ranks: by number, host or stage; the slowest ones are offered first. */

import type { SideBySide, TraceState } from "../api/types";
import { h, replace } from "./dom";
import type { Context } from "./page";
import { t } from "../words/i18n";
import { findRows, tellingFigure } from "./rank_places";

/** ranks that are offered at once */
const OFFERED = 12;

interface Offer {
  trace: number | null;
  text: string;
}

let numbered = 0;

/** What is known of the places of ranks; without hosts and stages where a report does not have them. */
async function placesOf(context: Context, ranks: readonly TraceState[]): Promise<SideBySide> {
  const plain: SideBySide = {
    trace: ranks.map((one) => one.trace),
    rank: ranks.map((one) => one.rank ?? one.trace),
    stage: ranks.map(() => null),
    host: ranks.map(() => ""),
    steps: ranks.map(() => 0),
    figures: {},
    stages: 1,
    groups: [],
  };
  return context.api.get("cluster/side-by-side").catch(() => plain);
}

/** Where a rank is: "Rank 517 · node0064 · Stage 3". */
export function placeText(found: SideBySide, row: number): string {
  const parts = [t("rank.n", { number: found.rank[row]! }), found.host[row]!];
  if (found.stages > 1 && found.stage[row] !== null) parts.push(t("stage.n", { number: found.stage[row]! }));
  return parts.filter(Boolean).join(" · ");
}

/** The ranks that a text means; of no text those that take the longest. */
export function offers(found: SideBySide, text: string): number[] {
  if (text.trim()) return findRows(found, text);
  const values = found.figures[tellingFigure(found)] ?? [];
  return found.rank.map((_, row) => row).sort((one, other) => (values[other] ?? -1) - (values[one] ?? -1));
}

/**
 * The box.
 *
 * @param chosen what is chosen now, as text; empty where nothing is
 * @param everyone whether all ranks can be chosen
 * @param onPick told the trace, or null for all of them
 */
export function rankPicker(
  context: Context,
  ranks: readonly TraceState[],
  chosen: string,
  everyone: boolean,
  onPick: (trace: number | null) => void,
): HTMLElement {
  const id = `ranks-${++numbered}`;
  const input = h("input", {
    type: "search",
    role: "combobox",
    "aria-expanded": "false",
    "aria-controls": id,
    "aria-autocomplete": "list",
    "aria-label": t("rank"),
    autocomplete: "off",
    placeholder: t("ranks.find"),
    value: chosen,
  });
  const list = h("ul", { id, class: "rank-offers", role: "listbox", "aria-label": t("ranks") });
  list.hidden = true;
  let offered: Offer[] = [];
  let marked = 0;
  let places: Promise<SideBySide> | null = null;
  const close = (): void => {
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  };
  const pick = (one: Offer | undefined): void => {
    if (!one) return;
    input.value = one.text;
    close();
    onPick(one.trace);
  };
  const draw = (matching: number): void => {
    const values = { shown: offered.length, count: matching };
    const note = !matching ? t("search.nothing") : matching > offered.length ? t("ranks.matching", values) : "";
    replace(
      list,
      offered.map((one, place) =>
        h(
          "li",
          {
            id: `${id}-${place}`,
            role: "option",
            "aria-selected": place === marked ? "true" : "false",
            // before the box loses the focus
            onpointerdown: (event: Event) => {
              event.preventDefault();
              pick(one);
            },
          },
          one.text,
        ),
      ),
      note ? h("li", { class: "note", role: "presentation" }, note) : null,
    );
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    if (offered.length) input.setAttribute("aria-activedescendant", `${id}-${marked}`);
  };
  const offer = async (): Promise<void> => {
    const found = await (places ??= placesOf(context, ranks));
    if (context.signal.aborted || document.activeElement !== input) return;
    const text = input.value === chosen ? "" : input.value;
    const rows = offers(found, text);
    offered = rows.slice(0, OFFERED).map((row) => ({ trace: found.trace[row]!, text: placeText(found, row) }));
    if (everyone && !text.trim()) offered.unshift({ trace: null, text: t("ranks.all") });
    marked = 0;
    draw(rows.length);
  };
  input.addEventListener("focus", () => {
    input.select();
    void offer();
  });
  input.addEventListener("input", () => void offer());
  input.addEventListener("blur", () => {
    close();
    input.value = chosen;
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return close();
    if (event.key === "Enter") {
      event.preventDefault();
      return list.hidden ? void offer() : pick(offered[marked]);
    }
    if ((event.key !== "ArrowDown" && event.key !== "ArrowUp") || !offered.length) return;
    event.preventDefault();
    marked = (marked + (event.key === "ArrowDown" ? 1 : -1) + offered.length) % offered.length;
    [...list.children].forEach((one, place) => one.setAttribute("aria-selected", String(place === marked)));
    input.setAttribute("aria-activedescendant", `${id}-${marked}`);
  });
  return h("div", { class: "choice rank-picker" }, h("span", { "aria-hidden": "true" }, t("rank")), input, list);
}
