/** Charts: ECharts in the colours of the theme. */

import type { EChartsCoreOption, EChartsType } from "echarts/core";

import { type Palette, onChange, palette } from "../browser/theme";
import { h, replace, svg } from "../ui/dom";
import { bytes, plain, time } from "../words/format";
import { t } from "../words/i18n";
import { visibleIn } from "../words/visible";
import { chartTable } from "./chart_table";

/** the library, once there is a chart to draw */
let library: typeof import("./echarts") | null = null;

export interface ChartSpec {
  /** what it shows, for those who do not see it */
  label: string;
  height: number;
  option: (colours: Palette) => EChartsCoreOption;
  /** how a figure reads that no axis has */
  say?: (value: number) => string;
  /** a click on a data point */
  onPick?: (picked: { dataIndex: number; seriesIndex: number; name: string }) => void;
  /** a click anywhere in the plot, as the value on the horizontal axis */
  onPlace?: (value: number) => void;
}

/** a row of keys leaves the corner to the button that fills the screen */
const LEGEND_PERCENT = 88;
/** On a very wide screen a chart as low as elsewhere would be all slope and no height. */
const heightScale = (): number => (innerWidth >= 2200 ? 1.35 : 1);

/** A chart that follows the width of its place and the theme until the signal is given. */
export function chart(spec: ChartSpec, signal: AbortSignal): HTMLElement {
  const place = h("div", {
    class: "chart",
    role: "img",
    "aria-label": spec.label,
    style: { height: `${Math.round(spec.height * heightScale())}px` },
  });
  const words = h("div");
  const frame: HTMLElement = h(
    "div",
    { class: "chart-frame" },
    place,
    words,
    fullScreen(spec.label, () => frame),
  );
  let shown: EChartsType | null = null;
  const draw = (): void => {
    if (!library) {
      void import("./echarts").then((found) => {
        library = found;
        if (!signal.aborted) draw();
      });
      return;
    }
    if (!shown && place.clientWidth > 0) shown = create(library, place, spec);
    const option = spec.option(palette());
    shown?.setOption(themed(option), true);
    replace(words, chartTable(spec.label, option, spec.say ?? plain));
  };
  const sizes = new ResizeObserver(() => {
    if (shown) shown.resize();
    else draw();
  });
  sizes.observe(place);
  onChange(draw, signal);
  signal.addEventListener("abort", () => {
    sizes.disconnect();
    shown?.dispose();
  });
  return frame;
}

/** A button that shows a chart on the whole screen, and takes it back. */
function fullScreen(label: string, of: () => HTMLElement): HTMLElement | null {
  if (!document.fullscreenEnabled) return null;
  const toggle = (): void => void (document.fullscreenElement ? document.exitFullscreen() : of().requestFullscreen());
  return h(
    "button",
    {
      type: "button",
      class: "full-screen",
      title: t("chart.full_screen"),
      "aria-label": `${t("chart.full_screen")}: ${label}`,
      onclick: toggle,
    },
    svg(
      "svg",
      { viewBox: "0 0 16 16", width: 14, height: 14, "aria-hidden": "true" },
      svg("path", { d: "M1 6V1h5M10 1h5v5M15 10v5h-5M6 15H1v-5", fill: "none", stroke: "currentColor", "stroke-width": 1.6 }),
    ),
  );
}

function create(library: typeof import("./echarts"), place: HTMLElement, spec: ChartSpec): EChartsType {
  const shown = library.init(place, null, { renderer: "canvas" });
  const { onPick, onPlace } = spec;
  if (onPick) {
    shown.on("click", (event) => onPick({ dataIndex: event.dataIndex, seriesIndex: event.seriesIndex ?? 0, name: event.name }));
  }
  if (onPlace) {
    shown.getZr().on("click", (event) => {
      const point = [event.offsetX, event.offsetY];
      if (shown.containPixel("grid", point)) onPlace(shown.convertFromPixel({ gridIndex: 0 }, point)[0]!);
    });
  }
  return shown;
}

function themed(option: EChartsCoreOption): EChartsCoreOption {
  const colours = palette();
  // a canvas does not inherit the font of the page
  const { fontFamily, fontSize } = getComputedStyle(document.body);
  const style = { color: colours.text, fontFamily, fontSize: parseFloat(fontSize) * 0.86 };
  const { tooltip, legend, ...rest } = visibleIn(option) as {
    tooltip?: object;
    legend?: { orient?: string; textStyle?: object };
    series?: { type?: string }[];
  };
  // the title above a single curve has its name already
  const alone = rest.series?.length === 1 && rest.series[0]?.type === "line";
  const keys = {
    itemWidth: 14,
    itemHeight: 10,
    itemGap: legend?.orient === "vertical" ? 6 : 8,
    ...(legend?.orient === "vertical" ? {} : { width: `${LEGEND_PERCENT}%` }),
  };
  return {
    animation: false,
    color: [...colours.series],
    textStyle: style,
    ...rest,
    ...(legend && !alone
      ? {
          legend: {
            type: "scroll",
            top: 0,
            ...keys,
            inactiveColor: colours.faint,
            pageTextStyle: style,
            pageIconColor: colours.accent,
            pageIconInactiveColor: colours.line,
            ...legend,
            textStyle: { ...style, ...legend.textStyle },
          },
        }
      : {}),
    // a formatter gives an element: what it says is text
    tooltip: {
      confine: true,
      backgroundColor: colours.surface,
      borderColor: colours.line,
      textStyle: { color: colours.text, fontSize: 13 },
      ...tooltip,
    },
  };
}

/** Nothing is nothing in every unit. */
const orZero =
  (formatter: (value: number) => string) =>
  (value: number): string =>
    value === 0 ? "0" : formatter(value);

/** An axis of values. */
export function valueAxis(colours: Palette, formatter: (value: number) => string, more: object = {}): object {
  return {
    type: "value",
    axisLabel: { color: colours.faint, formatter: orZero(formatter) },
    splitLine: { lineStyle: { color: colours.line, opacity: 0.6 } },
    axisLine: { lineStyle: { color: colours.line } },
    ...more,
  };
}

/** An axis of sizes, cut at powers of two. */
export function bytesAxis(colours: Palette, most: number): object {
  const interval = 2 ** Math.ceil(Math.log2(Math.max(most, 8) / 6));
  return valueAxis(colours, bytes, { interval, max: Math.ceil(most / interval) * interval });
}

/** An axis of names. */
export function nameAxis(colours: Palette, data: readonly (string | number)[], more: object = {}): object {
  return {
    type: "category",
    data: [...data],
    axisLabel: { color: colours.faint, hideOverlap: true },
    axisTick: { alignWithLabel: true, lineStyle: { color: colours.line } },
    axisLine: { lineStyle: { color: colours.line } },
    ...more,
  };
}

/** The content of a tooltip: a heading and lines of colour, name and figure. */
export function tip(
  heading: string,
  lines: readonly { colour?: string | undefined; name: string; value: string }[],
): HTMLElement {
  return h(
    "div",
    { class: "tip" },
    h("strong", null, heading),
    lines.map((line) =>
      h(
        "div",
        { class: "tip-line" },
        line.colour ? h("span", { class: "swatch", style: { background: line.colour } }) : null,
        h("span", { class: "tip-name" }, line.name),
        h("span", { class: "tip-value" }, line.value),
      ),
    ),
  );
}

/** A tooltip with the times of all series at one place of an axis of names. */
export function tipOfTimes(pointer: "line" | "shadow", heading = (name: string) => name): object {
  return {
    trigger: "axis",
    axisPointer: { type: pointer },
    formatter: (hovered: { name: string; seriesName: string; color: string; value: number }[]) =>
      tip(
        heading(hovered[0]?.name ?? ""),
        hovered.map((one) => ({ colour: one.color, name: one.seriesName, value: time(one.value) })),
      ),
  };
}
