/** Curves of samples in buckets with exact extremes, as the server gives them. */

import type { Extremes } from "../api/types";
import type { Context } from "../ui/page";
import * as format from "../words/format";
import { t } from "../words/i18n";
import { chart, tip, valueAxis } from "./chart";

export interface Bucketed extends Extremes {
  name: string;
  place: readonly number[];
  unit: string;
  mean: number | null;
}
interface Hovered {
  dataIndex: number;
  seriesName: string;
  seriesIndex: number;
  color: string;
  value: [number, number];
}

/** Every sample of a bucket with one; of a bucket with several its extremes and its last. */
export function points(curve: Bucketed): [number, number][] {
  return curve.place.flatMap((at, place): [number, number][] => {
    const [low, high, last] = [curve.min[place]!, curve.max[place]!, curve.last[place]!];
    return low === high
      ? [[at, last]]
      : [
          [at, high],
          [at, low],
          [at, last],
        ];
  });
}

/** Lines over the number of the batch or sample; means are dashed. */
export function bucketChart(
  context: Context,
  label: string,
  axis: string,
  curves: readonly Bucketed[],
  height = 210,
  least = 0,
): HTMLElement {
  const unit = curves[0]?.unit ?? "";
  return chart(
    {
      label,
      height,
      option: (colours) => ({
        grid: { left: 70, right: 20, top: 30, bottom: 48 },
        legend: { type: "scroll", top: 0 },
        dataZoom: [{ type: "inside" }, { type: "slider", height: 14, bottom: 4 }],
        xAxis: valueAxis(colours, format.count, { min: "dataMin", max: "dataMax", minInterval: 1, splitLine: { show: false } }),
        yAxis: valueAxis(colours, (value) => format.value(value, unit), { min: least }),
        tooltip: {
          trigger: "axis",
          formatter: (hovered: Hovered[]) =>
            tip(
              `${axis} ${format.count(hovered[0]?.value[0] ?? 0)}`,
              hovered.map((one) => ({ colour: one.color, name: one.seriesName, value: format.value(one.value[1], unit) })),
            ),
        },
        series: curves.map((one, place) => ({
          type: "line",
          name: one.name,
          color: colours.series[place % colours.series.length],
          showSymbol: one.place.length < 60,
          symbolSize: 5,
          data: points(one),
          ...(one.mean === null
            ? {}
            : {
                markLine: {
                  symbol: "none",
                  silent: true,
                  lineStyle: { type: "dashed", color: colours.series[place % colours.series.length] },
                  data: [
                    {
                      yAxis: one.mean,
                      label: {
                        formatter: `${t("mean")} ${format.value(one.mean, unit)}`,
                        color: colours.text,
                        position: "insideEndTop",
                      },
                    },
                  ],
                },
              }),
        })),
      }),
    },
    context.signal,
  );
}
