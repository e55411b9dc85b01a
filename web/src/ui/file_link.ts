/** Links to files that the server makes. */

import { fileAddress } from "../api/client";
import { type Attributes, h } from "./dom";
import { problemBox } from "./notices";
import { aimed } from "./ui";

/**
 * A link to a file; a function gives the address as it is when the link is used.
 *
 * The browser fetches what it saves by itself, without headers of the page. So it is given an address that needs no token and
 * holds once.
 */
export function fileLink(text: string, href: string | (() => string), attributes: Attributes = {}): HTMLAnchorElement {
  const now = typeof href === "string" ? (): string => href : href;
  let said: HTMLElement | null = null;
  const save = async (event: Event): Promise<void> => {
    event.preventDefault();
    said?.remove();
    try {
      h("a", { download: "", href: await fileAddress(now()) }).click();
    } catch (error) {
      link.after((said = problemBox(error)));
    }
  };
  const link = h(
    "a",
    { class: "button", download: "", ...attributes, href: now(), onclick: (event: Event) => void save(event) },
    text,
  );
  return aimed(link, now);
}
