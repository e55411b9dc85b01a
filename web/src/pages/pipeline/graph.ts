/** Where the operations of a data pipeline and their queues stand: sources on the left, the training on the right. */

import type { Operation } from "../../api/types";
import { h, svg, type Child } from "../../ui/dom";
import * as format from "../../words/format";
import { t } from "../../words/i18n";

const [WIDTH, HEIGHT, GAP_X, GAP_Y, QUEUE] = [150, 46, 74, 18, 26];

export interface Placed {
  operation: Operation;
  x: number;
  y: number;
}

/** Column = distance from the last operation, so that data flows to the right; a row per source. */
export function layout(operations: readonly Operation[]): { placed: Map<number, Placed>; width: number; height: number } {
  const byId = new Map(operations.map((one) => [one.id, one]));
  const depth = new Map<number, number>();
  for (const one of operations) depth.set(one.id, one.parent !== null && depth.has(one.parent) ? depth.get(one.parent)! + 1 : 0);
  const deepest = Math.max(0, ...depth.values());
  const placed = new Map<number, Placed>();
  let rows = 0;
  const place = (one: Operation): number => {
    const children = (one.children ?? [])
      .map((id) => byId.get(id))
      .filter((child): child is Operation => child !== undefined && !placed.has(child.id));
    const ys = children.map(place);
    const y = ys.length ? (ys[0]! + ys.at(-1)!) / 2 : rows++ * (HEIGHT + GAP_Y);
    placed.set(one.id, { operation: one, x: (deepest - depth.get(one.id)!) * (WIDTH + GAP_X), y });
    return y;
  };
  for (const one of operations) if (!placed.has(one.id)) place(one);
  return { placed, width: (deepest + 1) * (WIDTH + GAP_X), height: Math.max(rows, 1) * (HEIGHT + GAP_Y) };
}

/** The operations as boxes with their output queues, tinted by how full they are; a click on a queue or box chooses it. */
export function operationGraph(
  operations: readonly Operation[],
  held: readonly number[],
  chosen: number | null,
  onPick: (id: number) => void,
): HTMLElement {
  const { placed, width, height } = layout(operations);
  const pick = (id: number): Record<string, string | number | ((event: never) => void)> => ({
    tabindex: 0,
    role: "button",
    "data-op": id,
    onclick: () => onPick(id),
    onkeydown: (event: KeyboardEvent) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      onPick(id);
    },
  });
  return h(
    "div",
    { class: "scroll" },
    svg(
      "svg",
      {
        class: "operation-graph",
        viewBox: `-4 -4 ${width + 8} ${height + 8}`,
        width: width + 8,
        height: height + 8,
        role: "group",
        "aria-label": t("pipeline.graph"),
      },
      [...placed.values()].map(({ operation, x, y }): Child => {
        const above = operation.parent === null ? undefined : placed.get(operation.parent);
        const middle = y + HEIGHT / 2;
        const end = above ? { x: above.x, y: above.y + HEIGHT / 2 } : { x: x + WIDTH + GAP_X - 8, y: middle };
        const queue = { x: x + WIDTH + (GAP_X - QUEUE) / 2, y: middle };
        const name = operation.operation;
        const said =
          operation.usage === null
            ? t("pipeline.no_queue")
            : t("pipeline.queue_of", {
                usage: format.share(operation.usage),
                mean: format.value(operation.mean_size, ""),
                capacity: format.value(operation.queue_capacity, ""),
              });
        return [
          svg("path", { class: "edge", d: `M ${x + WIDTH} ${middle} L ${queue.x + QUEUE} ${middle} L ${end.x} ${end.y}` }),
          svg(
            "g",
            {
              class: `operation${held.includes(operation.id) ? " held" : ""}${operation.id === chosen ? " chosen" : ""}`,
              ...pick(operation.id),
            },
            svg("title", null, `${name}: ${said}`),
            svg("rect", { x, y, width: WIDTH, height: HEIGHT, rx: 6 }),
            svg("text", { x: x + WIDTH / 2, y: y + 19 }, format.shorten(name, 20)),
            svg(
              "text",
              { class: "faint", x: x + WIDTH / 2, y: y + 36 },
              operation.workers === null ? "" : t("pipeline.workers", { count: operation.workers }),
            ),
          ),
          operation.usage === null
            ? null
            : svg(
                "g",
                {
                  class: `queue${operation.id === chosen ? " chosen" : ""}`,
                  "aria-label": `${t("pipeline.queue")}: ${name}, ${said}`,
                  ...pick(operation.id),
                },
                svg("title", null, `${t("pipeline.queue")}: ${said}`),
                svg("rect", { x: queue.x, y: queue.y - 16, width: QUEUE, height: 32, rx: 3 }),
                // filled from the bottom as far as the queue is full
                svg("rect", {
                  class: "fill",
                  x: queue.x,
                  y: queue.y + 16 - 32 * Math.min(operation.usage, 1),
                  width: QUEUE,
                  height: 32 * Math.min(operation.usage, 1),
                  rx: 3,
                  style: { opacity: String(0.35 + 0.65 * Math.min(operation.usage, 1)) },
                }),
                svg("text", { class: "faint", x: queue.x + QUEUE / 2, y: queue.y + 28 }, format.share(operation.usage)),
              ),
        ];
      }),
    ),
  );
}
