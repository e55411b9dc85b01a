/** Figures as people read them. */

const TIMES: readonly (readonly [number, string])[] = [
  [1e9, "s"],
  [1e6, "ms"],
  [1e3, "µs"],
  [1, "ns"],
];
/** of variances */
const SQUARES: readonly (readonly [number, string])[] = [
  [1e18, "s²"],
  [1e12, "ms²"],
  [1e6, "µs²"],
  [1, "ns²"],
];
const SIZES: readonly (readonly [number, string])[] = [
  [2 ** 40, "TiB"],
  [2 ** 30, "GiB"],
  [2 ** 20, "MiB"],
  [2 ** 10, "KiB"],
  [1, "B"],
];
/** prefixes of what is counted in large numbers */
const COUNTS: readonly (readonly [number, string])[] = [
  [1e12, "T"],
  [1e9, "G"],
  [1e6, "M"],
  [1e3, "k"],
  [1, ""],
];
export const NOTHING = "–";
/** a space that does not break the line between a figure and its unit */
const SPACE = " ";

let locale = "en";
const known = new Map<string, Intl.NumberFormat>();

export function setLocale(tag: string): void {
  locale = tag;
  known.clear();
}

function digits(value: number, options: Intl.NumberFormatOptions): string {
  const key = JSON.stringify(options);
  let format = known.get(key);
  if (!format) known.set(key, (format = new Intl.NumberFormat(locale, options)));
  return format.format(value);
}

/** Four significant digits, all of them before the point. */
function short(value: number): string {
  const whole = Math.abs(value) >= 1000;
  return digits(value, whole ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: 4 });
}

function scaled(value: number, units: readonly (readonly [number, string])[]): string {
  const size = Math.abs(value);
  // 999.96 us would be shown as 1,000 us
  const unit = units.find(([factor]) => size >= factor * 0.99995) ?? units[units.length - 1]!;
  return short(value / unit[0]) + SPACE + unit[1];
}

export const count = (value: number): string => digits(value, { maximumFractionDigits: 0 });
export const plain = (value: number): string => short(value);
export const time = (ns: number): string => (ns === 0 ? `0${SPACE}ns` : scaled(ns, TIMES));
export const bytes = (value: number): string => (value === 0 ? `0${SPACE}B` : scaled(value, SIZES));
export const percent = (value: number): string =>
  `${digits(value, { maximumFractionDigits: Math.abs(value) < 10 ? 2 : 1 })}${SPACE}%`;
/** A change: what is more has a sign as well. */
export const signedShare = (value: number): string => (value > 0 ? "+" : "") + share(value);
export const share = (value: number): string => percent(value * 100);

const estimated = (value: number): string => digits(value, { maximumSignificantDigits: 2 });
/** A number with so many significant digits, rounded down. */
function cutOff(value: number, significant: number): number {
  if (value <= 0) return 0;
  const scale = 10 ** (significant - 1 - Math.floor(Math.log10(value)));
  // 1.15 times 100 is a little less than 115
  return Math.floor(value * scale * (1 + 1e-12)) / scale;
}
function lengthCutOff(ns: number, significant: number): string {
  const [factor, unit] = TIMES.find(([size]) => ns >= size) ?? TIMES[TIMES.length - 1]!;
  return ns > 0 ? digits(cutOff(ns / factor, significant), { maximumSignificantDigits: significant }) + SPACE + unit : "0";
}
/** What is only estimated: more digits would promise too much, and no more than the most there is, as that is shown. */
export function estimate(ns: number, most_ns = Infinity): string {
  const [factor, unit] = TIMES.find(([size]) => Math.abs(ns) >= size * 0.995) ?? TIMES[TIMES.length - 1]!;
  if (ns === 0) return "0";
  const value = Number((ns / factor).toPrecision(2));
  return value * factor > most_ns ? mostOf(most_ns) : estimated(value) + SPACE + unit;
}
/** The low end of a range: no more than it is. */
export const leastOf = (ns: number): string => lengthCutOff(ns, 2);
/** The high end of a range: no more than it is, and with more digits, as the evidence beside it has them. */
export const mostOf = (ns: number): string => lengthCutOff(ns, 3);
/** Both ends of a saving, with what is likely between them. */
export function range(saving: { low_ns: number; likely_ns: number; high_ns: number }): [string, string, string] {
  const likely = estimate(saving.likely_ns, saving.high_ns);
  if (saving.low_ns === saving.high_ns) return [likely, likely, likely];
  return [leastOf(saving.low_ns), likely, mostOf(saving.high_ns)];
}
/** Shares, as ``estimate`` and ``mostOf`` show lengths. */
export function estimatedShare(share: number, most = Infinity): string {
  const value = Number((share * 100).toPrecision(2));
  return value > most * 100 ? mostShare(most) : `${estimated(value)}${SPACE}%`;
}
export const mostShare = (value: number): string => `${digits(cutOff(value * 100, 3), { maximumSignificantDigits: 3 })}${SPACE}%`;

/** A place in time with as many digits as tell two pixels apart. */
export function moment(ns: number, resolution_ns = 1): string {
  const unit = TIMES.find(([factor]) => Math.abs(ns) >= factor) ?? TIMES[3]!;
  const fraction = Math.min(Math.max(Math.ceil(Math.log10(unit[0] / Math.max(resolution_ns, 1))), 0), 9);
  return digits(ns / unit[0], { minimumFractionDigits: fraction, maximumFractionDigits: fraction }) + SPACE + unit[1];
}

/** A place on an axis whose marks are so far apart: as many digits as they need. */
export const rounded = (ns: number, step_ns: number): string => {
  const unit = TIMES.find(([factor]) => Math.abs(ns) >= factor * 0.99995) ?? TIMES[3]!;
  const fraction = Math.min(Math.max(Math.ceil(Math.log10(unit[0] / Math.max(step_ns, 1)) - 1e-9), 0), 9);
  return digits(ns / unit[0], { maximumFractionDigits: fraction }) + SPACE + unit[1];
};

/** A value of a unit as the server names it. */
export function value(cell: unknown, unit: string): string {
  if (cell === null || cell === undefined || cell === "") return NOTHING;
  if (typeof cell === "boolean") return cell ? "✓" : "✗";
  if (Array.isArray(cell)) return cell.map((one) => (typeof one === "number" ? short(one) : String(one))).join(", ");
  if (typeof cell !== "number") return String(cell);
  switch (unit) {
    case "ns":
      return time(cell);
    case "us":
      return time(cell * 1e3);
    case "ms":
      return time(cell * 1e6);
    case "moment":
      // the next digit is below what clocks tell
      return moment(cell, 1e3);
    case "bytes":
      return bytes(cell);
    case "ns2":
      return scaled(cell, SQUARES);
    case "B/s":
      return `${bytes(cell)}/s`;
    case "FLOP":
    case "FLOP/s":
      return scaled(cell, COUNTS) + unit;
    case "percent":
    case "%":
      return percent(cell);
    case "factor":
      return `${short(cell / 100)}${SPACE}×`;
    case "ratio":
      return share(cell);
    case "":
    case "count":
      return Number.isInteger(cell) ? count(cell) : short(cell);
    default:
      return short(cell) + SPACE + unit;
  }
}

const FACTORS: Readonly<Record<string, number>> = {
  ns: 1,
  us: 1e3,
  µs: 1e3,
  ms: 1e6,
  s: 1e9,
  b: 1,
  kb: 1e3,
  mb: 1e6,
  gb: 1e9,
  kib: 2 ** 10,
  mib: 2 ** 20,
  gib: 2 ** 30,
};

/** What somebody typed for a column: "1.5 ms", "2MiB", "12 %", "3e6"; NaN for anything else. */
export function typed(text: string, unit: string): number {
  const match = /^\s*([-+]?[\d.]+(?:e[-+]?\d+)?)\s*([a-zµ]*|%|×)\s*$/i.exec(text);
  if (!match) return NaN;
  const figure = Number(match[1]);
  const word = match[2]!.toLowerCase();
  if (unit === "factor") return word === "%" ? figure : word === "" || word === "×" || word === "x" ? figure * 100 : NaN;
  if (word === "") return figure;
  if (word === "%") return unit === "ratio" ? figure / 100 : unit === "percent" ? figure : NaN;
  const factor = FACTORS[word];
  const base = unit === "moment" ? 1 : FACTORS[unit === "bytes" ? "b" : unit.toLowerCase()];
  return factor === undefined || base === undefined ? NaN : (figure * factor) / base;
}

/** A text that fits into so many characters. */
export function shorten(text: string, most: number): string {
  return text.length <= most ? text : `${text.slice(0, Math.max(most - 1, 1))}…`;
}
