/** All keys and gestures of the timeline, over the page. */

import { h } from "../../ui/dom";
import { type Key, t } from "../../words/i18n";

const ROWS: readonly (readonly [string, Key])[] = [
  ["W / S", "timeline.help.zoom"],
  ["A / D, ← / →", "timeline.help.move"],
  ["Ctrl + ⟳", "timeline.help.wheel"],
  ["Shift + ⇿, Shift + ⟳", "timeline.help.drag"],
  ["⇿", "timeline.help.box"],
  ["F", "timeline.help.fit"],
  ["0, Home", "timeline.help.whole"],
  ["● ●", "timeline.help.double"],
  ["●", "timeline.help.click"],
  ["M", "timeline.help.measure"],
  ["N", "timeline.help.note"],
  ["/", "timeline.help.find"],
  ["Esc", "timeline.help.escape"],
  ["?", "timeline.help.help"],
];
const WORDS: Readonly<Record<string, Key>> = {
  "⟳": "timeline.help.word.wheel",
  "⇿": "timeline.help.word.drag",
  "● ●": "timeline.help.word.double",
  "●": "timeline.help.word.click",
};

export function helpDialog(): HTMLDialogElement {
  const close = (): void => dialog.close();
  const dialog = h(
    "dialog",
    { class: "timeline-help", "aria-label": t("timeline.help") },
    h("h2", null, t("timeline.help")),
    h(
      "table",
      null,
      h(
        "tbody",
        null,
        ROWS.map(([keys, what]) => h("tr", null, h("th", { scope: "row" }, said(keys)), h("td", null, t(what)))),
      ),
    ),
    h("p", { class: "actions" }, h("button", { type: "button", onclick: close }, t("timeline.help.close"))),
  );
  dialog.addEventListener("click", (event) => {
    // beside what it holds
    if (event.target === dialog) close();
  });
  dialog.addEventListener("keydown", (event) => {
    if (event.key !== "?") return;
    event.preventDefault();
    close();
  });
  return dialog;
}

/** Keys as they stand on them, gestures in words. */
function said(keys: string): string {
  return Object.entries(WORDS).reduce((text, [sign, key]) => text.replaceAll(sign, t(key)), keys);
}
