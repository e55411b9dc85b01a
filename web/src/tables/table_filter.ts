/** The conditions of a table: what is filtered now, and a form for one more. */

import type { Column, Condition } from "../api/types";
import { h, type Child } from "../ui/dom";
import * as format from "../words/format";
import { named, t } from "../words/i18n";

type Change = (where: Condition[]) => void;

/** The form to filter the table `title`, and its conditions, each with a button that takes it away. */
export function filterBar(title: string, columns: readonly Column[], where: readonly Condition[], change: Change): Child {
  if (!columns.length) return null;
  const choose = h(
    "select",
    { "aria-label": t("table.column") },
    columns.map((one) => h("option", { value: one.name, selected: one.name === preferred(columns) }, named("column", one.name))),
  );
  const how = h("select", { "aria-label": t("table.condition") });
  const what = h("input", {
    type: "search",
    "data-control": "value",
    "aria-label": t("table.value"),
    placeholder: t("table.search"),
    autocomplete: "off",
  });
  const said = h("span", { class: "error", role: "alert" });
  const column = (): Column => columns.find((one) => one.name === choose.value) ?? columns[0]!;
  const offer = (): void => {
    const numeric = column().type === "integer" || column().type === "number";
    how.replaceChildren(
      ...(numeric ? (["at_least", "at_most"] as const) : (["contains"] as const)).map((one) =>
        h("option", { value: one }, t(`table.${one}`)),
      ),
    );
    what.placeholder = numeric ? hint(column().unit) : t("table.search");
  };
  choose.addEventListener("change", offer);
  offer();
  const submit = (event: Event): void => {
    event.preventDefault();
    said.textContent = "";
    if (!what.value.trim()) return;
    const made = condition(column(), how.value, what.value);
    if (made) change([...where, made]);
    else said.textContent = t("table.wrong", { example: hint(column().unit) });
  };
  return [
    h(
      "form",
      { class: "filter", "aria-label": `${t("table.filter")}: ${title}`, onsubmit: submit },
      choose,
      how,
      what,
      h("button", { type: "submit" }, t("table.filter")),
      said,
    ),
    where.map((one, place) =>
      h(
        "button",
        {
          type: "button",
          class: "chip",
          "aria-label": `${t("table.remove")}: ${describe(one, columns)}`,
          onclick: () => change(where.filter((_, at) => at !== place)),
        },
        format.shorten(describe(one, columns), 80),
        " ✕",
      ),
    ),
  ];
}

function preferred(columns: readonly Column[]): string {
  return (columns.find((one) => one.name === "name") ?? columns.find((one) => one.type === "text") ?? columns[0]!).name;
}

const HINTS: Readonly<Record<string, string>> = {
  ns: "1.5 ms",
  us: "200 µs",
  ms: "3 ms",
  moment: "120 ms",
  bytes: "4 MiB",
  percent: "5 %",
  ratio: "5 %",
};
const hint = (unit: string): string => HINTS[unit] ?? "100";

/** The condition that somebody typed; null where the value is not one of the column. */
export function condition(column: Column, how: string, text: string): Condition | null {
  if (how === "contains") return { column: column.name, contains: text.trim() };
  const figure = format.typed(text, column.unit);
  if (!Number.isFinite(figure)) return null;
  return how === "at_least" ? { column: column.name, at_least: figure } : { column: column.name, at_most: figure };
}

function describe(one: Condition, columns: readonly Column[]): string {
  const unit = columns.find((column) => column.name === one.column)?.unit ?? "";
  const parts = [
    one.contains == null ? null : `∋ ${one.contains}`,
    one.one_of == null ? null : `= ${one.one_of.map((value) => format.value(value, unit)).join(", ")}`,
    one.at_least == null ? null : `≥ ${format.value(one.at_least, unit)}`,
    one.at_most == null ? null : `≤ ${format.value(one.at_most, unit)}`,
    one.missing == null ? null : one.missing ? "= –" : "≠ –",
  ];
  return `${named("column", one.column)} ${parts.filter(Boolean).join(", ")}`;
}
