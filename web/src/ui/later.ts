/** Parts of a page that come when they are worked out, so that nothing waits for the slowest. */

import { t } from "../words/i18n";
import { type Child, append, h } from "./dom";
import { problemBox } from "./notices";
import type { Context } from "./page";
import { card } from "./ui";

/** what is there within this time comes with the page: nothing moves under the eyes of the reader */
const TOGETHER_MS = 300;

/** One part: what it is called while it is worked out, and what it will be. */
export type Part = readonly [title: string, content: Promise<Child>];

/** Some parts, once all of them are there or a moment has passed; the others take their places later. */
export async function parts(context: Context, wanted: readonly Part[]): Promise<Child[]> {
  const there = new Map<number, Child>();
  const coming = wanted.map(async ([title, content], number) => {
    // what goes wrong stands in the place of its part
    const shown = await content.catch((error: unknown) => (context.signal.aborted ? null : card(title, problemBox(error))));
    there.set(number, shown);
    return shown;
  });
  const all = Promise.all(coming);
  await Promise.race([all, new Promise((next) => setTimeout(next, TOGETHER_MS))]);
  return wanted.map(([title], number) => (there.has(number) ? there.get(number) : place(context, title, coming[number]!)));
}

/** Says that a part is being worked out until it is there. */
function place(context: Context, title: string, content: Promise<Child>): HTMLElement {
  const held = card(title, h("p", { class: "note", role: "status" }, t("later.working")));
  const put = async (): Promise<void> => {
    const shown = document.createDocumentFragment();
    append(shown, [await content]);
    // the page itself may not be there yet
    while (!held.isConnected && !context.signal.aborted) await new Promise((next) => setTimeout(next));
    held.replaceWith(shown);
  };
  context.pending.push(put());
  return held;
}
