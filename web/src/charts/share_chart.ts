/** The largest of something as a pie or as bars: twenty names and the sum of the rest. */

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
                    ...(place === MOST_SHOWN ? { itemStyle: { color: colours.faint } } : {}),
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
