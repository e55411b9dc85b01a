/** Names with a bar of their share: a chart that is a list, so that it can be read aloud and followed. */

import { h } from "../ui/dom";
import * as format from "../words/format";

export interface ShareBar {
  name: string;
  value: number;
  share: number;
  note?: string;
  href?: string;
  unit?: string;
  /** what the name is short for */
  title?: string;
  /** class of the colour of its bar */
  look?: string;
}

/** `share` is in percent; bars are relative to the largest. */
export function shareBars(bars: readonly ShareBar[]): HTMLElement {
  const most = Math.max(...bars.map((one) => one.share), 1e-9);
  return h(
    "ol",
    { class: "share-bars" },
    bars.map((one) =>
      h(
        "li",
        null,
        h(
          "span",
          { class: "share-name", title: format.shorten(one.title ?? one.name, 2000) },
          one.href ? h("a", { href: one.href }, format.shorten(one.name, 200)) : format.shorten(one.name, 200),
        ),
        h(
          "span",
          { class: "share-bar", "aria-hidden": "true" },
          h("span", {
            class: one.look ? `part-${one.look}` : null,
            style: { width: `${Math.max((one.share / most) * 100, 0)}%` },
          }),
        ),
        h("span", { class: "share-value" }, format.value(one.value, one.unit ?? "ns")),
        h("span", { class: "share-percent" }, format.percent(one.share)),
        h("span", { class: "share-note note" }, one.note ?? ""),
      ),
    ),
  );
}
