/** The tables about one topic: a list to choose from, and the chosen one. */

import type { TableShown } from "../api/types";
import { h, replace, type Child } from "../ui/dom";
import type { Context } from "../ui/page";
import { card, choice, ofRecording } from "../ui/ui";
import { PER_STEP, named, t } from "../words/i18n";
import { table } from "./table";

/** Whether a table is the one of an address, which may be of a step. */
const isOf = (name: string, asked: string): boolean => name === asked || name === asked + PER_STEP || name + PER_STEP === asked;

/**
 * A card with the tables of a topic.
 *
 * @param listed what the server has
 * @param wanted names, the first of which is shown first
 * @param without columns that are left out unless somebody chooses them
 * @param note what is said of a table
 */
export function topicTables(
  context: Context,
  title: string,
  listed: readonly TableShown[],
  wanted: readonly string[],
  trace: number | null,
  without: readonly string[] = [],
  note: (name: string) => string | null = () => null,
): Child {
  // of a step, where a table can be and nobody wants sums
  const whole = ofRecording(context);
  const named_so = (name: string): readonly TableShown[] => listed.filter((one) => one.name === name);
  const tables = wanted.flatMap((name) => {
    const per_step = whole ? [] : named_so(name + PER_STEP);
    return per_step.length ? per_step : named_so(name);
  });
  if (!tables.length) return null;
  const place = h("div");
  const show = (name: string): void => {
    const one = tables.find((other) => isOf(other.name, name)) ?? tables[0]!;
    const of = note(one.name);
    replace(
      place,
      of ? h("p", { class: "note" }, of) : null,
      table(context, { name: one.name, trace: one.per_trace ? trace : null, height: 400, without }),
    );
  };
  const kept = context.params["more"] ?? "";
  show(kept);
  const list = choice(
    t("more.choose"),
    tables.map((one) => [one.name, named("table", one.name, one.title)]),
    (tables.find((one) => isOf(one.name, kept)) ?? tables[0]!).name,
    (name) => {
      context.note({ more: name });
      show(name);
    },
  );
  withoutEmpty(context, list, tables, trace);
  return card(title, [h("div", { class: "controls" }, list), place], { wide: true });
}

/** Takes tables without a row from a list, once somebody comes near it: until then nobody has to work them all out. */
function withoutEmpty(context: Context, list: HTMLElement, tables: readonly TableShown[], trace: number | null): void {
  const chooser = list.querySelector("select")!;
  const look = async (): Promise<void> => {
    for (const event of ["pointerenter", "focusin"]) list.removeEventListener(event, begin);
    for (const { name, per_trace } of tables) {
      // a table that cannot be had says why when it is chosen
      const page = await context.api.table(name, { trace: per_trace ? trace : null, limit: 1 }).catch(() => null);
      if (context.signal.aborted) return;
      const option = chooser.querySelector(`option[value="${CSS.escape(name)}"]`);
      if (page?.total === 0 && chooser.value !== name) option?.remove();
    }
    list.dataset["counted"] = "";
  };
  const begin = (): void => void look();
  for (const event of ["pointerenter", "focusin"]) list.addEventListener(event, begin);
}
