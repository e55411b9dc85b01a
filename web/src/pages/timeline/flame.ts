/** A selection as a flame: boxes below one another, as wide as their time, the outermost at the top. */

import type { Flame } from "../../api/types";
import { palette } from "../../browser/theme";
import { Colours } from "../../timeline/colours";
import { flameBoxes, flameWay } from "../../timeline/flame_boxes";
import { type Child, h, replace } from "../../ui/dom";
import { nothing } from "../../ui/ui";
import * as format from "../../words/format";
import { named, t } from "../../words/i18n";

/** The flame of an answer; a click on a box makes it as wide as there is room, one on the way back leads there. */
export function flameView(found: Flame): Child {
  if (!found.nodes.length || !found.total_ns) return nothing(t("timeline.flame.none"), "");
  const colours = new Colours(palette());
  const way = h("p", { class: "flame-way note" });
  const said = h("p", { class: "note", role: "status" });
  const parents = found.nodes.map((node) => node.parent);
  const name = (place: number): string => found.nodes[place]!.name;
  const say = (place: number): string => {
    const node = found.nodes[place]!;
    return [
      node.name,
      `${format.time(node.total_ns)} (${format.share(node.total_ns / found.total_ns)})`,
      `${named("column", "self_ns")} ${format.time(node.self_ns)}`,
      node.count ? `${format.count(node.count)} ×` : "",
    ]
      .filter(Boolean)
      .join(" · ");
  };
  const boxes = flameBoxes({
    label: t("timeline.flame"),
    parents,
    sizes: found.nodes.map((node) => node.total_ns),
    name,
    says: say,
    colour: (place) => {
      const colour = colours.of(name(place), "operators");
      return [colour, colours.on(colour)];
    },
    onPick: (place) => show(place, true),
    onLook: (place) => (said.textContent = say(place)),
  });
  const show = (top: number, focus = false): void => {
    replace(
      way,
      flameWay(parents, top, name, (place) => show(place, true)),
    );
    said.textContent = top < 0 ? "" : say(top);
    boxes.show(top, { focus, whole: top < 0 ? found.total_ns : found.nodes[top]!.total_ns });
  };
  show(-1);
  return h(
    "div",
    { class: "flame" },
    way,
    boxes.element,
    said,
    found.left_out ? h("p", { class: "note" }, t("timeline.flame.left_out", { count: format.count(found.left_out) })) : null,
  );
}
