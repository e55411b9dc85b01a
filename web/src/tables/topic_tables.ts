/** The tables about one topic: a list to choose from, and the chosen one. */

import type { TableShown } from "../api/types";
import { h, replace, type Child } from "../ui/dom";
import type { Context } from "../ui/page";
import { card, choice } from "../ui/ui";
import { named, t } from "../words/i18n";
import { table } from "./table";

/**
 * A card with the tables of a topic.
 *
 * @param listed what the server has
 * @param wanted names, the first of which is shown first
 * @param without columns that are left out unless somebody chooses them
 * @param note what the figures of all of them are
 */
export function topicTables(
  context: Context,
  title: string,
  listed: readonly TableShown[],
  wanted: readonly string[],
  trace: number | null,
  without: readonly string[] = [],
  note: string | null = null,
): Child {
  const tables = wanted.flatMap((name) => listed.filter((one) => one.name === name));
  if (!tables.length) return null;
  const place = h("div");
  const show = (name: string): void => {
    const one = tables.find((other) => other.name === name) ?? tables[0]!;
    replace(place, table(context, { name: one.name, trace: one.per_trace ? trace : null, height: 400, without }));
  };
  const kept = context.params["more"] ?? "";
  show(kept);
  return card(
    title,
    [
      h(
        "div",
        { class: "controls" },
        choice(
          t("more.choose"),
          tables.map((one) => [one.name, named("table", one.name, one.title)]),
          tables.some((one) => one.name === kept) ? kept : tables[0]!.name,
          (name) => {
            context.note({ more: name });
            show(name);
          },
        ),
      ),
      place,
    ],
    { wide: true, note },
  );
}
