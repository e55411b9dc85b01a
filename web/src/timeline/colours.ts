/** Colours of events: the same name has the same colour everywhere. */

import type { Palette } from "../browser/theme";

const HUES = 24;
/** what the boxes of each shade have as their contrast to the ground; the names on them still have 4.5 */
const LIGHT = { saturation: 0.58, contrasts: [3.1, 3.5, 3.9], text: "#10151f" };
const DARK = { saturation: 0.42, contrasts: [3.1, 3.25, 3.4], text: "#f4f6fa" };

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

export class Colours {
  private readonly byName = new Map<string, string>();
  private readonly labels = new Map<string, string>();

  constructor(readonly palette: Palette) {}

  /** The colour of a name on a box of this colour. */
  on(colour: string): string {
    let label = this.labels.get(colour);
    if (!label) {
      label = contrast(LIGHT.text, colour) > contrast(DARK.text, colour) ? LIGHT.text : DARK.text;
      this.labels.set(colour, label);
    }
    return label;
  }

  of(name: string, source: string): string {
    if (source === "device_states" && STATES[name]) return this.palette.parts[STATES[name]]!;
    let colour = this.byName.get(name);
    if (!colour) {
      const number = hash(name);
      const { saturation, contrasts } = this.palette.dark ? DARK : LIGHT;
      colour = ofContrast(
        ((number % HUES) * 360) / HUES,
        saturation,
        contrasts[(number >>> 8) % contrasts.length]!,
        this.palette,
      );
      this.byName.set(name, colour);
    }
    return colour;
  }
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

/** Relative luminance of `#rrggbb` or `#rgb`, which the build makes of it, as WCAG defines it. */
function luminance(short: string): number {
  const colour = short.length === 4 ? short.replace(/[0-9a-f]/gi, "$&$&") : short;
  const [red, green, blue] = [1, 3, 5].map((at) => {
    const part = parseInt(colour.slice(at, at + 2), 16) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  }) as [number, number, number];
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** How much two colours `#rrggbb` differ in brightness: 1 (not at all) to 21. */
export function contrast(one: string, other: string): number {
  const [dim, bright] = [luminance(one), luminance(other)].sort((left, right) => left - right) as [number, number];
  return (bright + 0.05) / (dim + 0.05);
}
