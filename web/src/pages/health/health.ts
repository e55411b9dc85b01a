/** What is doubtful about the data, and what not to trust because of it. */

import { report } from "../../report/embedded";
import { type Child, h, replace } from "../../ui/dom";
import { conclusion, findingWords } from "../../ui/health_words";
import { type Context, type Page, reopen } from "../../ui/page";
import { missingCard } from "../../ui/not_recorded";
import { card, level, smallTable } from "../../ui/ui";
import * as format from "../../words/format";
import { t } from "../../words/i18n";

export const health: Page = {
  id: "health",
  title: "page.health",
  async show(context) {
    const found = await context.api.get("health");
    const missing = missingCard(context.run);
    if (!found.length) return [h("p", null, t("health.good")), missing];
    return [
      newer(context),
      card(
        t("health.findings"),
        smallTable(
          t("health.findings"),
          [t("health.severity"), t("health.message"), t("health.number"), t("health.unsafe"), t("path")],
          found.map((one) => [
            level(one.severity),
            findingWords(one),
            format.count(one.count),
            one.unsafe.map(conclusion).join(", "),
            h("code", { title: one.source }, format.shorten(one.source.split("/").slice(-2).join("/"), 80)),
          ]),
          [2],
        ),
        { wide: true, note: t("health.what") },
      ),
      missing,
    ];
  },
};

/** Data that lacks something may have been read while it was still being written or copied: say so where there is more now. */
function newer(context: Context): Child {
  const said = h("div", { role: "status" });
  if (report()) return null;
  context.api
    .get("live")
    .then((found) => {
      const again = h("button", { type: "button", onclick: () => void reopen(context) }, t("live.again"));
      if (found.changed)
        replace(said, h("p", { class: "callout" }, t("live.changed", { files: format.count(found.files) }), " ", again));
    })
    .catch(() => undefined);
  return said;
}
