/** Elements without a framework. Data becomes text nodes and attributes here, never markup. */

import { visible } from "../words/visible";

/** attributes that are read by people */
const READ = new Set(["title", "aria-label", "placeholder"]);

export type Child = Node | string | number | null | undefined | false | readonly Child[];
type Value = string | number | boolean | null | undefined | ((event: never) => void) | Record<string, string>;
export type Attributes = Record<string, Value>;

/**
 * An element with attributes and children.
 *
 * A function under `onclick` and the like is listened with; `style` is an object of properties; `true` is an attribute
 * without a value; `false`, null and undefined leave it out.
 */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes | null = null,
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  describe(element, attributes);
  append(element, children);
  return element;
}

/** The same for SVG. */
export function svg(tag: string, attributes: Attributes | null = null, ...children: Child[]): SVGElement {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  describe(element, attributes);
  append(element, children);
  return element;
}

function describe(element: HTMLElement | SVGElement, attributes: Attributes | null): void {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), value as EventListener);
    else if (typeof value === "object") for (const [key, text] of Object.entries(value)) element.style.setProperty(key, text);
    else element.setAttribute(name, value === true ? "" : READ.has(name) ? visible(String(value)) : String(value));
  }
}

export function append(parent: Node, children: readonly Child[]): void {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(parent, child as readonly Child[]);
    else parent.appendChild(child instanceof Node ? child : document.createTextNode(visible(String(child))));
  }
}

/** Give an element other children. */
export function replace(parent: Element, ...children: Child[]): void {
  parent.replaceChildren();
  append(parent, children);
}
