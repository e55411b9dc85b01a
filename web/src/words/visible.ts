/** Names as they are: characters that nobody sees, or that turn the text around them, are shown by their number. */

// controls but tab and line feed; marks and overrides of direction; characters without width but the joiners of emoji and scripts
const HIDDEN =
  // eslint-disable-next-line no-control-regex -- to find them is its purpose
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

export function visible(text: string): string {
  return text.replace(HIDDEN, (one) => `\u27e8U+${one.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}\u27e9`);
}

/** The same for every text in the data of a chart; functions and elements stay. */
export function visibleIn<A>(value: A): A {
  // ECharts keeps series and data by their names in plain objects, and this one breaks them: a space that nobody sees tells it apart
  if (typeof value === "string") return (value === "__proto__" ? "__proto__\u00a0" : visible(value)) as A;
  if (Array.isArray(value))
    return (
      value.some((one) => typeof one === "string" || (typeof one === "object" && one !== null)) ? value.map(visibleIn) : value
    ) as A;
  if (typeof value !== "object" || value === null || Object.getPrototypeOf(value) !== Object.prototype) return value;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, visibleIn(one)])) as A;
}
