/** Light and dark: as the system has it, or as the user says. */

import { keep, kept } from "./storage";

export const THEMES = ["system", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];

const KEPT = "steplens.theme";
const watchers = new Set<() => void>();

let chosen: string | null = null;

export function chosenTheme(): Theme {
  chosen ??= kept(KEPT);
  return THEMES.find((one) => one === chosen) ?? "system";
}

export function setTheme(theme: Theme): void {
  chosen = theme;
  keep(KEPT, theme);
  apply();
}

export function apply(): void {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const theme = chosenTheme();
  document.documentElement.dataset["theme"] = theme === "system" ? (dark ? "dark" : "light") : theme;
  for (const watcher of watchers) watcher();
}

export function start(): void {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply);
  apply();
}

/** Call something whenever the colours change, until the signal is given. */
export function onChange(watcher: () => void, signal: AbortSignal): void {
  watchers.add(watcher);
  signal.addEventListener("abort", () => watchers.delete(watcher));
}

export interface Palette {
  dark: boolean;
  text: string;
  faint: string;
  line: string;
  surface: string;
  accent: string;
  /** of what became more, less, or stayed as it was */
  grew: string;
  shrank: string;
  unchanged: string;
  /** of series without a meaning of their own */
  series: readonly string[];
  /** of the parts of a step */
  parts: Readonly<Record<string, string>>;
}

/** how many colours there are for series without a meaning of their own */
const SERIES = 20;

export const PARTS = [
  "data_wait",
  "forward",
  "backward",
  "gradient_sync",
  "optimizer",
  "device_wait",
  "between",
  "python",
  "host_rest",
  "computing",
  "exposed_communication",
  "overlapped_communication",
  "exposed_copy",
  "idle",
] as const;

export function palette(): Palette {
  const style = getComputedStyle(document.documentElement);
  const read = (name: string): string => style.getPropertyValue(`--${name}`).trim();
  return {
    dark: document.documentElement.dataset["theme"] === "dark",
    text: read("text"),
    faint: read("faint"),
    line: read("line"),
    surface: read("surface"),
    accent: read("accent"),
    grew: read("grew"),
    shrank: read("shrank"),
    unchanged: read("unchanged"),
    series: Array.from({ length: SERIES }, (_, place) => read(`series-${place}`)),
    parts: Object.fromEntries(PARTS.map((name) => [name, read(`part-${name.replaceAll("_", "-")}`)])),
  };
}
