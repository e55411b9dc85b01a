/** A cell that holds JSON, such as what a framework knows of an operator, as a tree of names and values. */

import { h, type Child } from "../ui/dom";
import * as format from "../words/format";

/** what is nested more deeply, or comes later, is shown as it stands */
const DEEPEST = 6;
const MOST = 500;

/** The tree of a text that is a JSON object or list; null for anything else. */
export function detail(cell: unknown): HTMLElement | null {
  if (typeof cell !== "string" || !/^\s*[[{]/.test(cell)) return null;
  try {
    const found: unknown = JSON.parse(cell);
    return typeof found === "object" && found !== null ? tree(found, 0) : null;
  } catch {
    return null;
  }
}

function tree(value: object, depth: number): HTMLElement {
  const entries = Object.entries(value);
  const rest = entries.length - MOST;
  return h(
    "ul",
    { class: "tree" },
    entries.slice(0, MOST).map(([name, inner]) => h("li", null, h("b", null, `${name}: `), shown(inner, depth))),
    rest > 0 ? h("li", null, `+${format.count(rest)}`) : null,
  );
}

function shown(value: unknown, depth: number): Child {
  if (typeof value !== "object" || value === null) return format.shorten(String(value), 2000);
  return depth < DEEPEST ? tree(value, depth + 1) : format.shorten(JSON.stringify(value), 2000);
}
