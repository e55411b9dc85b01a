/** Puts text on the clipboard. */

/** @throws Error where the browser does not let the page */
export async function copy(text: string): Promise<void> {
  // only pages of this machine and of https have a clipboard of their own
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const put = (event: ClipboardEvent): void => {
    event.preventDefault();
    event.clipboardData?.setData("text/plain", text);
  };
  document.addEventListener("copy", put);
  const done = document.execCommand("copy");
  document.removeEventListener("copy", put);
  if (!done) throw new Error("the browser does not let this page copy");
}
