/** A running training: what it does, asking it for a capture, whether it has written more, and reading it again. */

import { Refused } from "../../api/refused";
import { stepBars } from "../../charts/step_charts";
import { h, replace, type Child } from "../../ui/dom";
import { problemBox, problemLine } from "../../ui/notices";
import { type Context, type Page, reopen } from "../../ui/page";
import { card, figure, figures } from "../../ui/ui";
import * as format from "../../words/format";
import { t } from "../../words/i18n";
import { capturesCard } from "./captures_card";

const WATCH_MS = 2000;

export const live: Page = {
  id: "live",
  title: "page.live",
  // a training may be asked for its first capture before there is anything to show
  unopened: true,
  live: true,
  // of a training that ended nothing more comes; a folder without anything to show may be the one of a training about to start
  listed: (session, run) => {
    const one = session.runs[run];
    return one?.growing === true || (one?.generation === 0 && one.progress.state === "failed");
  },
  async show(context) {
    const said = h("p", { role: "status" });
    const automatic = h("input", {
      type: "checkbox",
      checked: context.params["follow"] === "1",
      onchange: () => context.note({ follow: automatic.checked ? "1" : null }),
    });
    const again = h("button", { type: "button", onclick: () => void reopen(context) }, t("live.again"));
    const look = async (): Promise<void> => {
      try {
        const found = await context.api.get("live");
        replace(
          said,
          found.changed
            ? t("live.changed", { files: format.count(found.files) })
            : t("live.same", { files: format.count(found.files) }),
        );
        if (found.changed && automatic.checked) return void (await reopen(context));
      } catch (error) {
        if (context.signal.aborted) return;
        replace(said, problemLine(error));
      }
      timer = window.setTimeout(() => void look(), WATCH_MS);
    };
    let timer = window.setTimeout(() => void look(), 0);
    context.signal.addEventListener("abort", () => clearTimeout(timer));
    return [
      context.run.progress.problem && context.run.generation === 0
        ? problemBox(new Refused(409, context.run.progress.problem))
        : null,
      capturesCard(context, () => void reopen(context)),
      card(
        t("live.files"),
        [
          said,
          h("div", { class: "controls" }, again, h("label", { class: "choice" }, automatic, h("span", null, t("live.follow")))),
        ],
        { wide: true, note: t("live.what") },
      ),
      context.run.generation > 0 ? await recorded(context) : null,
    ];
  },
};

async function recorded(context: Context): Promise<Child> {
  const [ranks, steps] = await Promise.all([context.api.get("ranks"), context.api.get("steps", { trace: null })]);
  return [
    figures(
      figure(t("traces"), format.count(ranks.length)),
      figure(t("steps"), format.count(steps.steps.length)),
      figure(t("live.generation"), format.count(context.run.generation)),
    ),
    steps.steps.length ? card(t("steps.chart"), stepBars(context, steps.steps, 260), { wide: true }) : null,
  ];
}
