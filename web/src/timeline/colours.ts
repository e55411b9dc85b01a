/** Colours of events: a hue for each phase of a step, as everywhere else, and a shade of it for each name. */

import type { Lane, PhaseRuns, Phases } from "../api/types";
import type { Palette } from "../browser/theme";

const HUES = 24;
/** what the boxes of each shade have as their contrast to the ground; the names on them still have 4.5 */
const LIGHT = { saturation: 0.58, contrasts: [3.1, 3.5, 3.9], text: "#10151f" };
const DARK = { saturation: 0.42, contrasts: [3.1, 3.25, 3.4], text: "#f4f6fa" };
/** names of one phase differ by so many degrees of hue at most, in steps */
const SPREAD = 11;
const SPREAD_STEPS = 7;

/** A number for a name, the same in every session. */
export function hash(name: string): number {
  let value = 2166136261;
  for (let place = 0; place < name.length; place++) value = Math.imul(value ^ name.charCodeAt(place), 16777619);
  return value >>> 0;
}

const STATES: Readonly<Record<string, string>> = {
  computing: "computing",
  "exposed communication": "exposed_communication",
  "overlapped communication": "overlapped_communication",
  "exposed copies": "exposed_copy",
  idle: "idle",
};

/** the parts of a step whose hue the events of a phase have */
export const PHASE_PARTS: Readonly<Record<string, string>> = {
  data: "data_wait",
  forward: "forward",
  backward: "backward",
  optimizer: "optimizer",
  communication: "exposed_communication",
  copy: "exposed_copy",
  device_wait: "device_wait",
  between: "between",
  computing: "computing",
};
/** sources whose events are all of one phase */
const SOURCE_PHASES: Readonly<Record<string, string>> = { communication: "communication", batches: "data", loader: "data" };
/** sources of lanes whose events are of the phase in which they began on the host */
const HOST_SOURCES = new Set(["operators", "python", "runtime", "enqueue", "dequeue"]);
const COMMUNICATES =
  /^(?:c10d::|nccl|rccl|gloo|hccl|hcom_|mpi:)|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast_coalesced/i;
/** what names say where nothing was recorded that says it better */
const BY_NAME: readonly [RegExp, string][] = [
  [/DataLoader/, "data"],
  [/Optimizer\.|^Optimizer/, "optimizer"],
  [/Backward\d*$|^autograd::|_backward/, "backward"],
];

/** The phases along a lane, for times that increase. */
export class Along {
  private place = 0;

  constructor(private readonly runs: PhaseRuns) {}

  at(time: number): string {
    const { start_ns: starts, phase } = this.runs;
    if (this.place && starts[this.place - 1]! > time) this.place = 0;
    if (!this.place) {
      let [low, high] = [0, starts.length];
      while (low < high) {
        const middle = (low + high) >> 1;
        if (starts[middle]! <= time) low = middle + 1;
        else high = middle;
      }
      this.place = low;
    }
    while (this.place < starts.length && starts[this.place]! <= time) this.place++;
    return this.place ? phase[this.place - 1]! : "";
  }
}

export class Colours {
  private readonly byName = new Map<string, Map<string, string>>();
  private readonly labels = new Map<string, string>();

  constructor(
    readonly palette: Palette,
    /** the phases of each trace, as far as they are known */
    private readonly phases: ReadonlyMap<number, Phases> = new Map(),
  ) {}

  /** The phases along a lane; null where nothing says of which its events are. */
  along(trace: number, lane: Lane): Along | null {
    const found = this.phases.get(trace);
    if (!found) return null;
    const runs = lane.source === "kernels" ? found.lanes[lane.lane] : HOST_SOURCES.has(lane.source) ? found.host : undefined;
    return runs?.start_ns.length ? new Along(runs) : null;
  }

  /** The colour of a name on a box of this colour. */
  on(colour: string): string {
    let label = this.labels.get(colour);
    if (!label) {
      label = contrast(LIGHT.text, colour) > contrast(DARK.text, colour) ? LIGHT.text : DARK.text;
      this.labels.set(colour, label);
    }
    return label;
  }

  /** The colour of an event; `phase` is the one that was recorded, "" where it is of none. */
  of(name: string, source: string, phase?: string): string {
    if (source === "device_states" && STATES[name]) return this.palette.parts[STATES[name]]!;
    const key = `${source === "kernels" ? "k" : source in SOURCE_PHASES ? source : "h"}${phase ?? "-"}`;
    let ofPhase = this.byName.get(key);
    if (!ofPhase) this.byName.set(key, (ofPhase = new Map()));
    let colour = ofPhase.get(name);
    if (!colour) ofPhase.set(name, (colour = this.make(name, phaseOf(name, source, phase))));
    return colour;
  }

  private make(name: string, phase: string): string {
    const number = hash(name);
    const { saturation, contrasts } = this.palette.dark ? DARK : LIGHT;
    const shade = contrasts[(number >>> 8) % contrasts.length]!;
    const part = this.palette.parts[PHASE_PARTS[phase] ?? ""];
    if (!part) return ofContrast(((number % HUES) * 360) / HUES, saturation, shade, this.palette);
    const [hue, strong] = hueOf(part);
    const aside = (((number >>> 16) % SPREAD_STEPS) / (SPREAD_STEPS - 1) - 0.5) * 2 * SPREAD;
    return ofContrast((hue + aside + 360) % 360, Math.min(Math.max(strong, 0.12), 0.75), shade, this.palette);
  }
}

/** The phase that an event is coloured as. */
export function phaseOf(name: string, source: string, phase: string | undefined): string {
  const fixed = SOURCE_PHASES[source];
  if (fixed) return fixed;
  if ((source === "operators" || source === "kernels") && COMMUNICATES.test(name)) return "communication";
  if (phase && phase !== "between") return phase;
  if (source === "operators" || source === "kernels") for (const [pattern, said] of BY_NAME) if (pattern.test(name)) return said;
  return phase ?? "";
}

/** The colour of a hue that stands out from the surface by so much, and not more. */
function ofContrast(hue: number, saturation: number, wanted: number, { dark, surface }: Palette): string {
  let [low, high] = [0, 1];
  for (let turn = 0; turn < 12; turn++) {
    const middle = (low + high) / 2;
    // towards the surface the contrast falls
    if (contrast(hex(hue, saturation, middle), surface) >= wanted === dark) high = middle;
    else low = middle;
  }
  return hex(hue, saturation, dark ? high : low);
}

/** `#rrggbb` of a hue in degrees, saturation and lightness of 0 to 1. */
function hex(hue: number, saturation: number, lightness: number): string {
  const spread = saturation * Math.min(lightness, 1 - lightness);
  const channel = (at: number): string => {
    const turn = (at + hue / 30) % 12;
    const part = lightness - spread * Math.max(Math.min(turn - 3, 9 - turn, 1), -1);
    return Math.round(part * 255)
      .toString(16)
      .padStart(2, "0");
  };
  return `#${channel(0)}${channel(8)}${channel(4)}`;
}

/** Red, green and blue of `#rrggbb` or `#rgb`, which the build makes of it, from 0 to 1. */
function channels(short: string): [number, number, number] {
  const colour = short.length === 4 ? short.replace(/[0-9a-f]/gi, "$&$&") : short;
  return [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16) / 255) as [number, number, number];
}

/** Hue in degrees and saturation of a colour. */
function hueOf(colour: string): [number, number] {
  const [red, green, blue] = channels(colour);
  const [low, high] = [Math.min(red, green, blue), Math.max(red, green, blue)];
  const spread = high - low;
  if (!spread) return [0, 0];
  const sum = high + low;
  const turn =
    high === red ? (green - blue) / spread + 6 : high === green ? (blue - red) / spread + 2 : (red - green) / spread + 4;
  return [(turn * 60) % 360, spread / (sum > 1 ? 2 - sum : sum)];
}

/** Relative luminance as WCAG defines it. */
function luminance(colour: string): number {
  const [red, green, blue] = channels(colour).map((part) =>
    part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4,
  ) as [number, number, number];
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** How much two colours `#rrggbb` differ in brightness: 1 (not at all) to 21. */
export function contrast(one: string, other: string): number {
  const [dim, bright] = [luminance(one), luminance(other)].sort((left, right) => left - right) as [number, number];
  return (bright + 0.05) / (dim + 0.05);
}
