/** The drawing of every flame graph: boxes below one another, as wide as what they stand for, with a way back and arrow keys. */

import { type Child, h, replace } from "../ui/dom";
import * as format from "../words/format";
import { t } from "../words/i18n";

const ROW_PX = 20;
/** boxes that are narrower are left out */
const LEAST_SHARE = 0.001;
/** a name is written where its box has this share of the width */
const NAMED_SHARE = 0.015;
/** of a name on the way back */
const LONGEST_NAME = 60;

/** Where a box lies: from the left and how wide, both as shares of the width, and in which row. */
export interface Placed {
  place: number;
  left: number;
  share: number;
  depth: number;
}

/**
 * The boxes from one on, which fills the width; parents stand before their children in every list.
 *
 * @param parents of each box the one above it, -1 without one
 * @param sizes of each box, with everything below it
 * @param top the box that fills the width; -1 for all of them beside each other
 * @param whole the size that fills it
 */
export function placeBoxes(parents: readonly number[], sizes: readonly number[], top: number, whole: number): Placed[] {
  const children = new Map<number, number[]>();
  parents.forEach((parent, place) => {
    const row = children.get(parent);
    if (row) row.push(place);
    else children.set(parent, [place]);
  });
  const placed: Placed[] = [];
  const put = (place: number, left: number, depth: number): void => {
    const share = sizes[place]! / whole;
    if (!(share >= LEAST_SHARE)) return;
    placed.push({ place, left, share, depth });
    let at = left;
    for (const child of children.get(place) ?? []) {
      put(child, at, depth + 1);
      at += sizes[child]! / whole;
    }
  };
  if (top >= 0) put(top, 0, 0);
  else {
    let at = 0;
    for (const place of children.get(-1) ?? []) {
      put(place, at, 0);
      at += sizes[place]! / whole;
    }
  }
  return placed;
}

export interface FlameSpec {
  /** what it shows, for those who do not see it */
  label: string;
  parents: readonly number[];
  sizes: readonly number[];
  /** what is written on a box where there is room */
  name: (place: number) => string;
  /** what is said of it when it is pointed at, and read aloud */
  says: (place: number) => string;
  /** its ground, and what is written on it */
  colour: (place: number) => readonly [ground: string, text: string];
  /** a click, Enter */
  onPick: (place: number) => void;
  /** it is pointed at, or has the keys */
  onLook: (place: number) => void;
}

export interface FlameBoxes {
  element: HTMLElement;
  /** Let a box, or all with -1, fill the width; `whole` is another size for that, `focus` gives the first one the keys. */
  show: (top: number, options?: { focus?: boolean; whole?: number }) => void;
}

/** The boxes of a flame graph. The arrow keys lead from one to those around it; only one is a stop of the Tab key. */
export function flameBoxes(spec: FlameSpec): FlameBoxes {
  const sum = spec.parents.reduce((all, parent, place) => (parent < 0 ? all + spec.sizes[place]! : all), 0);
  let drawn: readonly (readonly [Placed, HTMLElement])[] = [];
  const element = h("div", { class: "flame-boxes", role: "group", "aria-label": spec.label });

  const reach = (box: HTMLElement): void => {
    for (const [, other] of drawn) other.tabIndex = other === box ? 0 : -1;
  };
  element.addEventListener("keydown", (event) => {
    const here = drawn.findIndex(([, box]) => box === event.target);
    const next = here < 0 ? undefined : beside(drawn, here, spec.parents, event.key);
    if (!next) return;
    event.preventDefault();
    next.focus();
  });

  const show: FlameBoxes["show"] = (top, { focus = false, whole } = {}) => {
    const placed = placeBoxes(spec.parents, spec.sizes, top, whole ?? (top < 0 ? sum : spec.sizes[top]!));
    drawn = placed.map((one, number) => {
      const { place, left, share, depth } = one;
      const [ground, text] = spec.colour(place);
      const said = spec.says(place);
      const box: HTMLElement = h(
        "button",
        {
          type: "button",
          class: "flame-box",
          tabindex: number ? -1 : 0,
          style: {
            left: `${left * 100}%`,
            width: `${share * 100}%`,
            top: `${depth * ROW_PX}px`,
            height: `${ROW_PX - 1}px`,
            background: ground,
            color: text,
          },
          title: said,
          "aria-label": said,
          onclick: () => spec.onPick(place),
          onpointerenter: () => spec.onLook(place),
          onfocus: () => {
            reach(box);
            spec.onLook(place);
          },
        },
        share >= NAMED_SHARE ? spec.name(place) : "",
      );
      return [one, box] as const;
    });
    const deepest = Math.max(...placed.map((one) => one.depth), 0);
    element.style.height = `${(deepest + 1) * ROW_PX}px`;
    replace(
      element,
      drawn.map(([, box]) => box),
    );
    if (focus) drawn[0]?.[1].focus();
  };
  return { element, show };
}

/** The box to which a key leads. */
function beside(
  drawn: readonly (readonly [Placed, HTMLElement])[],
  here: number,
  parents: readonly number[],
  key: string,
): HTMLElement | undefined {
  const { place, depth } = drawn[here]![0];
  switch (key) {
    case "ArrowUp":
      return drawn.find(([one]) => one.place === parents[place])?.[1];
    case "ArrowDown":
      return drawn.find(([one]) => parents[one.place] === place)?.[1];
    case "ArrowLeft":
      return drawn.slice(0, here).findLast(([one]) => one.depth === depth)?.[1];
    case "ArrowRight":
      return drawn.slice(here + 1).find(([one]) => one.depth === depth)?.[1];
    default:
      return undefined;
  }
}

/** The boxes above the one that fills the width, each of which leads back to itself; nothing where all are shown. */
export function flameWay(
  parents: readonly number[],
  top: number,
  name: (place: number) => string,
  go: (place: number) => void,
): Child {
  if (top < 0) return null;
  const above: number[] = [];
  for (let place = top; place >= 0; place = parents[place]!) above.unshift(place);
  const link = (text: string, place: number): HTMLElement =>
    h("button", { type: "button", class: "plain", onclick: () => go(place) }, text);
  return [
    link(t("timeline.flame.all"), -1),
    above.map((place) => {
      const text = format.shorten(name(place), LONGEST_NAME);
      return [" › ", place === top ? text : link(text, place)];
    }),
  ];
}
