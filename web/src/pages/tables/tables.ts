/** Every table of the run, to filter, sort and export. */

import { numberOf } from "../../browser/route";
import { table } from "../../tables/table";
import { h } from "../../ui/dom";
import type { Page } from "../../ui/page";
import { card, choice, rankChoice } from "../../ui/ui";
import { named, t } from "../../words/i18n";

export const tables: Page = {
  id: "tables",
  title: "page.tables",
  async show(context) {
    const [ranks, found] = await Promise.all([context.api.get("ranks"), context.api.get("tables")]);
    const shown = found.find((one) => one.name === context.params["table"]) ?? found[0];
    if (!shown) return null;
    const title = named("table", shown.name, shown.title);
    return [
      h(
        "div",
        { class: "controls" },
        choice(
          t("page.tables"),
          found.map((one) => [one.name, named("table", one.name, one.title)]),
          shown.name,
          (value) => context.visit({ table: value }),
        ),
        shown.per_trace ? rankChoice(context, ranks, true) : null,
      ),
      card(
        title,
        table(context, {
          name: shown.name,
          trace: shown.per_trace ? numberOf(context.params, "rank") : null,
          height: Math.max(innerHeight - 330, 320),
        }),
        { wide: true },
      ),
    ];
  },
};
