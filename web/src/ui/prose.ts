/** Sentences of the server, which have code between backticks, as its catalogues are written. */

import { type Child, h } from "./dom";

/** Code or words of a sentence. */
export interface Piece {
  text: string;
  code: boolean;
}

/** The pieces of a text; a backtick without a second one is a letter as any other. */
export function pieces(text: string): Piece[] {
  return text
    .split(/`([^`\n]+)`/)
    .map((one, place): Piece => ({ text: one, code: place % 2 === 1 }))
    .filter((one) => one.text);
}

/** A text with its code as code. */
export const prose = (text: string): Child => pieces(text).map((one) => (one.code ? h("code", null, one.text) : one.text));
