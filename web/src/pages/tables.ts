/** Every table of the run, to filter, sort and export. */

import { h } from "../dom";
import { named, t } from "../i18n";
import type { Page } from "../page";
import { numberOf } from "../route";
import { table } from "../table";
import { card, choice, rankChoice } from "../ui";

export const tables: Page = {
  id: "tables",
  title: "page.tables",
  async show(context) {
    const [ranks, found] = await Promise.all([context.api.ranks(), context.api.tables()]);
    const shown = found.find((one) => one.name === context.params["table"]) ?? found[0];
    if (!shown) return null;
    const title = named("table", shown.name, shown.title);
    return [
      h(
        "div",
        { class: "controls" },
        choice(t("page.tables"), found.map((one) => [one.name, named("table", one.name, one.title)]), shown.name, (value) => context.visit({ table: value })),
        shown.per_trace ? rankChoice(context, ranks, true) : null,
      ),
      card(title, table(context, { name: shown.name, trace: shown.per_trace ? numberOf(context.params, "rank") : null, height: Math.max(innerHeight - 330, 320) }), { wide: true }),
    ];
  },
};
