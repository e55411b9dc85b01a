/** The words of the pages, in one catalogue per language. */

import { keep, kept } from "../browser/storage";
import en from "./en.json";
import { setLocale } from "./format";
import zh from "./zh.json";

export type Key = keyof typeof en;
type Catalogue = Readonly<Record<Key, string>>;

export const LANGUAGES = { en: "English", zh: "中文" } as const;
export type Language = keyof typeof LANGUAGES;

const CATALOGUES: Readonly<Record<Language, Catalogue>> = { en, zh };
const KEPT = "steplens.language";

let language: Language = chosen();
setLocale(language);

function chosen(): Language {
  // a report may say in which language it opens
  const wanted = globalThis.document?.documentElement.dataset["language"] ?? kept(KEPT) ?? globalThis.navigator?.language ?? "en";
  return wanted.startsWith("zh") ? "zh" : "en";
}

export const current = (): Language => language;

export function setLanguage(wanted: Language): void {
  language = wanted;
  setLocale(wanted);
  keep(KEPT, wanted);
}

/** The words of a key; `{name}` in them is filled in. A `{count}` of 1 has words of its own where the catalogue has `key.one`. */
export function t(key: Key, values: Readonly<Record<string, string | number>> = {}): string {
  const words: Readonly<Record<string, string>> = CATALOGUES[language];
  const chosen = (String(values["count"]) === "1" ? words[`${key}.one`] : undefined) ?? CATALOGUES[language][key];
  return chosen.replace(/\{(\w+)\}/g, (whole, name: string) => String(values[name] ?? whole));
}

/** behind the names of the server's tables whose rows are of a step */
export const PER_STEP = "_per_step";

/** The words of a name that comes from the server, or what is said where the catalogue has none. */
export function named(kind: "table" | "column" | "part" | "lane" | "value", name: string, otherwise?: string): string {
  if (kind === "table" && name.endsWith(PER_STEP)) {
    const whole = named(kind, name.slice(0, -PER_STEP.length), otherwise);
    return t("basis.title", { table: whole.replace(/, per step$/, "") });
  }
  const found = (CATALOGUES[language] as Readonly<Record<string, string>>)[`${kind}.${name}`];
  return found ?? otherwise ?? readable(name);
}

/** `self_ns` -> "Self": the unit stands beside the figures. */
function readable(name: string): string {
  const words = name.replace(/_(ns2|ns|us|ms|bytes|mb|gbps|percent|ratio|share)$/, "").replaceAll("_", " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** One of the texts that the server gives in all its languages. */
export function inLanguage<T>(texts: Readonly<Record<string, T>>): T | undefined {
  return texts[language] ?? texts["en"] ?? Object.values(texts)[0];
}
