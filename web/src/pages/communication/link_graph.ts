/** The links between ranks as a graph: the larger a rank, the more of its communication moves data; the wider a line, the longer it takes. */

import type { Cost, RankLink } from "../../api/types";
import { h, svg, type Child } from "../../ui/dom";
import * as format from "../../words/format";
import { t } from "../../words/i18n";

/** more than these cannot be told apart on a screen: the costliest are drawn */
const MOST_RANKS = 64;
const MOST_LINKS = 400;
const SIZE = 420;
const RADIUS = 165;
const [SMALL, LARGE] = [9, 24];

/** The graph; a click on a line or a rank picks it. */
export function linkGraph(
  costs: readonly Cost[],
  links: readonly RankLink[],
  label: string,
  onPick: (source: number | null, destination: number | null) => void,
): Child {
  const between = links.filter((one) => one.source !== one.destination).sort((one, other) => other.time_ns - one.time_ns);
  const total = new Map<number, number>();
  for (const one of between)
    for (const rank of [one.source, one.destination]) total.set(rank, (total.get(rank) ?? 0) + one.time_ns);
  for (const one of costs) if (!total.has(one.rank)) total.set(one.rank, 0);
  const ranks = [...total]
    .sort((one, other) => other[1] - one[1])
    .slice(0, MOST_RANKS)
    .map(([rank]) => rank)
    .sort((one, other) => one - other);
  const shown = between.filter((one) => ranks.includes(one.source) && ranks.includes(one.destination)).slice(0, MOST_LINKS);
  const share = new Map(costs.map((one) => [one.rank, one.communication_share]));
  const longest = Math.max(...shown.map((one) => one.time_ns), 1);
  const place = (rank: number): [number, number] => {
    const angle = (2 * Math.PI * ranks.indexOf(rank)) / Math.max(ranks.length, 1) - Math.PI / 2;
    return [SIZE / 2 + RADIUS * Math.cos(angle), SIZE / 2 + RADIUS * Math.sin(angle)];
  };
  const lines = [...shown].reverse().map((one) => {
    const said = `${t("rank.n", { number: one.source })} → ${t("rank.n", { number: one.destination })}: ${format.time(one.time_ns)}${one.bytes === null ? "" : `, ${format.bytes(one.bytes)}, ${format.value(one.bytes_per_s, "B/s")}`}`;
    return svg(
      "path",
      {
        class: "link-line",
        d: bow(place(one.source), place(one.destination)),
        "stroke-width": 1 + (6 * one.time_ns) / longest,
        "data-link": `${one.source}-${one.destination}`,
        onclick: () => onPick(one.source, one.destination),
      },
      svg("title", null, said),
    );
  });
  const nodes = ranks.map((rank) => {
    const [x, y] = place(rank);
    const part = share.get(rank) ?? null;
    const said = `${t("rank.n", { number: rank })}: ${t("links.share")} ${part === null ? format.NOTHING : format.share(part)}`;
    return svg(
      "g",
      { class: "link-rank", "data-rank": rank, onclick: () => onPick(rank, null) },
      svg("title", null, said),
      svg("circle", { cx: x, cy: y, r: SMALL + (LARGE - SMALL) * (part ?? 0) }),
      svg("text", { x, y: y + LARGE + 13 }, String(rank)),
    );
  });
  const left = between.length - shown.length;
  return [
    svg("svg", { class: "link-graph", viewBox: `0 0 ${SIZE} ${SIZE + 24}`, role: "img", "aria-label": label }, lines, nodes),
    left > 0 ? h("p", { class: "note" }, t("links.left_out", { count: format.count(left) })) : null,
  ];
}

/** A curve that leaves room for the one back. */
function bow([x, y]: [number, number], [toX, toY]: [number, number]): string {
  const [middleX, middleY] = [(x + toX) / 2 - (toY - y) * 0.12, (y + toY) / 2 + (toX - x) * 0.12];
  return `M${x},${y} Q${middleX},${middleY} ${toX},${toY}`;
}
