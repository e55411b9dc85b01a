/** A selection as a flame: boxes below one another, as wide as their time, the outermost at the top. */

import type { Flame, FlameNode } from "../../api/types";
import { palette } from "../../browser/theme";
import { Colours } from "../../timeline/colours";
import { type Child, h, replace } from "../../ui/dom";
import { nothing } from "../../ui/ui";
import * as format from "../../words/format";
import { named, t } from "../../words/i18n";

const ROW_PX = 20;
/** boxes that are narrower are left out */
const LEAST_SHARE = 0.001;
/** a name is written where its box has this share of the width */
const NAMED_SHARE = 0.015;

/** The flame of an answer; a click on a box makes it as wide as there is room, one on the way back leads there. */
export function flameView(found: Flame): Child {
  if (!found.nodes.length || !found.total_ns) return nothing(t("timeline.flame.none"), "");
  const children = new Map<number, number[]>();
  found.nodes.forEach((node, place) => {
    const row = children.get(node.parent);
    if (row) row.push(place);
    else children.set(node.parent, [place]);
  });
  const colours = new Colours(palette());
  const boxes = h("div", { class: "flame-boxes" });
  const way = h("p", { class: "flame-way note" });
  const said = h("p", { class: "note", role: "status" });

  const say = (node: FlameNode): string =>
    [
      node.name,
      `${format.time(node.total_ns)} (${format.share(node.total_ns / found.total_ns)})`,
      `${named("column", "self_ns")} ${format.time(node.self_ns)}`,
      node.count ? `${format.count(node.count)} ×` : "",
    ]
      .filter(Boolean)
      .join(" · ");

  const show = (top: number, focus = false): void => {
    const made: HTMLElement[] = [];
    let deepest = 0;
    const whole = top < 0 ? found.total_ns : found.nodes[top]!.total_ns;
    const put = (place: number, left: number, depth: number): void => {
      const node = found.nodes[place]!;
      const share = node.total_ns / whole;
      if (share < LEAST_SHARE) return;
      deepest = Math.max(deepest, depth);
      const colour = colours.of(node.name, "operators");
      const text = say(node);
      made.push(
        h(
          "button",
          {
            type: "button",
            class: "flame-box",
            style: {
              left: `${left * 100}%`,
              width: `${share * 100}%`,
              top: `${depth * ROW_PX}px`,
              height: `${ROW_PX - 1}px`,
              background: colour,
              color: colours.on(colour),
            },
            title: text,
            "aria-label": text,
            onclick: () => show(place, true),
            onpointerenter: () => (said.textContent = text),
            onfocus: () => (said.textContent = text),
          },
          share >= NAMED_SHARE ? node.name : "",
        ),
      );
      let at = left;
      for (const child of children.get(place) ?? []) {
        put(child, at, depth + 1);
        at += found.nodes[child]!.total_ns / whole;
      }
    };
    if (top >= 0) put(top, 0, 0);
    else {
      let at = 0;
      for (const place of children.get(-1) ?? []) {
        put(place, at, 0);
        at += found.nodes[place]!.total_ns / whole;
      }
    }
    boxes.style.height = `${(deepest + 1) * ROW_PX}px`;
    replace(boxes, made);
    const above: number[] = [];
    for (let place = top; place >= 0; place = found.nodes[place]!.parent) above.unshift(place);
    replace(
      way,
      top < 0
        ? null
        : [
            h("button", { type: "button", class: "plain", onclick: () => show(-1, true) }, t("timeline.flame.all")),
            above.map((place) => [
              " › ",
              place === top
                ? format.shorten(found.nodes[place]!.name, 60)
                : h(
                    "button",
                    { type: "button", class: "plain", onclick: () => show(place, true) },
                    format.shorten(found.nodes[place]!.name, 60),
                  ),
            ]),
          ],
    );
    said.textContent = top < 0 ? "" : say(found.nodes[top]!);
    if (focus) boxes.querySelector("button")?.focus();
  };
  show(-1);
  return h(
    "div",
    { class: "flame" },
    way,
    boxes,
    said,
    found.left_out ? h("p", { class: "note" }, t("timeline.flame.left_out", { count: format.count(found.left_out) })) : null,
  );
}
