/** The largest of something as a pie or as bars: twenty names and the sum of the rest. */

import { hash } from "../timeline/colours";
import { h } from "../ui/dom";
import type { Context } from "../ui/page";
import { tabs } from "../ui/ui";
import * as format from "../words/format";
import { t } from "../words/i18n";
import { chart, nameAxis, tip, valueAxis } from "./chart";

export const MOST_SHOWN = 20;

export interface Slice {
  name: string;
  value: number;
}

/** The largest slices, and the sum of all others as one. */
export function largest(slices: readonly Slice[], most: number, rest: (count: number) => string): Slice[] {
  const sorted = slices.filter((one) => one.value > 0).sort((one, other) => other.value - one.value);
  const left = sorted.slice(most);
  const shown = sorted.slice(0, most);
  if (left.length) shown.push({ name: rest(left.length), value: left.reduce((sum, one) => sum + one.value, 0) });
  return shown;
}

/** series come as so many hues, each of them twice: light and dark; the last hue is grey, and that of the rest */
const HUES = 10;
/** slices that are so near to each other differ in hue */
const NEAR = 3;

/** Places of colours: each name's own as far as it is free, so that it is the same wherever it is shown; neighbours differ. */
export function sliceColours(names: readonly string[]): number[] {
  const every = Array.from({ length: 2 * HUES }, (_, place) => place).filter((one) => one % HUES !== HUES - 1);
  const chosen: number[] = [];
  for (const [place, name] of names.entries()) {
    const near = chosen.slice(Math.max(0, place - NEAR));
    // the last one touches the first
    if (place === names.length - 1 && place) near.push(chosen[0]!);
    const apart = every.filter((one) => near.every((other) => other % HUES !== one % HUES));
    const free = apart.filter((one) => !chosen.includes(one));
    const among = free.length ? free : apart;
    const wanted = every[hash(name) % every.length]!;
    chosen.push(among.includes(wanted) ? wanted : among[hash(name) % among.length]!);
  }
  return chosen;
}

/**
 * The largest of some slices.
 *
 * @param options `nested`: the slices lie in each other, so that they have no shares of a whole; `labels`: what a name is called
 */
export function shareChart(
  context: Context,
  label: string,
  slices: readonly Slice[],
  onPick: ((name: string) => void) | undefined = undefined,
  options: { nested?: boolean; labels?: (name: string) => string } = {},
): HTMLElement {
  const whole = slices.reduce((sum, one) => sum + one.value, 0);
  const shown = largest(slices, MOST_SHOWN, (count) => t("rest", { count: format.count(count) }));
  const places = sliceColours(shown.slice(0, MOST_SHOWN).map((one) => one.name));
  const nested = options.nested ?? false;
  const label_of = options.labels ?? ((name: string) => name);
  const bars = nested || context.params["chart"] === "bar";
  const said = (value: number): string =>
    nested ? format.time(value) : `${format.time(value)} (${format.share(value / Math.max(whole, 1))})`;
  const pick = onPick
    ? ({ dataIndex }: { dataIndex: number }): void => {
        const one = shown[bars ? shown.length - 1 - dataIndex : dataIndex];
        if (one && slices.some((other) => other.name === one.name)) onPick(one.name);
      }
    : undefined;
  const picture = chart(
    {
      label,
      height: bars ? Math.max(shown.length * 22 + 40, 160) : Math.max(shown.length * 19 + 20, 240),
      say: format.time,
      ...(pick ? { onPick: pick } : {}),
      option: (colours) =>
        bars
          ? {
              grid: { left: 8, right: 90, top: 8, bottom: 24, containLabel: true },
              xAxis: valueAxis(colours, format.time),
              yAxis: nameAxis(colours, shown.map((one) => label_of(one.name)).reverse(), {
                axisLabel: { color: colours.text, width: 260, overflow: "truncate", interval: 0 },
              }),
              tooltip: { formatter: (one: { dataIndex: number }) => one_tip(shown[shown.length - 1 - one.dataIndex]!) },
              series: [
                {
                  type: "bar",
                  data: shown.map((one) => one.value).reverse(),
                  color: colours.accent,
                  barMaxWidth: 18,
                  label: {
                    show: true,
                    position: "right",
                    color: colours.text,
                    formatter: (one: { value: number }) => format.time(one.value),
                  },
                },
              ],
            }
          : {
              legend: {
                type: "scroll",
                orient: "vertical",
                left: "44%",
                top: "middle",
                formatter: keyOf,
                textStyle: { color: colours.text },
                pageTextStyle: { color: colours.text },
                tooltip: { show: true },
              },
              tooltip: { formatter: (one: { dataIndex: number }) => one_tip(shown[one.dataIndex]!) },
              series: [
                {
                  type: "pie",
                  radius: ["40%", "84%"],
                  center: ["22%", "50%"],
                  label: { show: false },
                  itemStyle: { borderColor: colours.surface, borderWidth: 1 },
                  data: shown.map((one, place) => ({
                    ...one,
                    itemStyle: {
                      color: place === MOST_SHOWN ? colours.series[HUES - 1] : colours.series[places[place]!],
                    },
                  })),
                },
              ],
            },
    },
    context.signal,
  );
  // the figures stand before the names, in one column whatever their length
  const keyOf = (name: string): string => {
    const value = shown.find((one) => one.name === name)?.value ?? 0;
    const share = format.share(value / Math.max(whole, 1));
    return `${share}  ${format.time(value)}  ${format.shorten(label_of(name), 58)}`;
  };
  const one_tip = (one: Slice): HTMLElement => tip(format.shorten(one.name, 200), [{ name: t("time"), value: said(one.value) }]);
  const switcher = tabs(
    t("chart.kind"),
    (["pie", "bar"] as const).map((id) => ({
      id,
      title: t(`chart.${id}`),
      href: () => context.to(context.page, { ...context.params, chart: id === "bar" ? "bar" : null }),
    })),
    bars ? "bar" : "pie",
  );
  return h("div", null, nested ? null : switcher, picture);
}
