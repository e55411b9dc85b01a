/**
 * The token of the link that was opened, which every question to the server brings.
 *
 * Never a cookie: browsers send those of a host to all of its ports, and so to servers of other users. What is kept here is
 * bound to the origin, port included, and shared by its tabs.
 */

import { keep, kept } from "./storage";

const KEPT = "steplens.token";
/** of the address of this page, where the browser keeps nothing */
let unkept: string | null = null;

/** Take the token out of the address, so that it is in neither the history nor a copied link. */
export function enter(): void {
  const given = new URLSearchParams(location.search).get("token");
  if (!given) return;
  keep(KEPT, given);
  // without a place for it, a reload needs it where it is
  if (kept(KEPT) === given) history.replaceState(null, "", location.pathname + location.hash);
  else unkept = given;
}

/** Headers of a question with the token, if there is one. */
export function withToken(headers?: HeadersInit): Headers {
  const made = new Headers(headers);
  // that of another tab may be newer: of a server that was started again at the same port
  const token = unkept ?? kept(KEPT);
  if (token) made.set("Authorization", `Bearer ${token}`);
  return made;
}
