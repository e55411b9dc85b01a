import { beforeAll, describe, expect, test } from "vitest";

import { chartTable } from "../src/charts/chart_table";

/** As much of a document as a table needs. */
class Element {
  readonly children: (Element | string)[] = [];
  constructor(readonly tag: string) {}
  setAttribute(): void {}
  appendChild(child: Element | string): void {
    this.children.push(child);
  }
  get rows(): string[][] {
    if (this.tag === "tr") return [this.children.map((one) => (one as Element).text)];
    return this.children.flatMap((one) => (typeof one === "string" ? [] : one.rows));
  }
  get text(): string {
    return this.children.map((one) => (typeof one === "string" ? one : one.text)).join("");
  }
}

beforeAll(() => {
  Object.assign(globalThis, {
    Node: Element,
    document: { createElement: (tag: string) => new Element(tag), createTextNode: (text: string) => text },
  });
});

const rows = (option: Record<string, unknown>): string[][] =>
  (chartTable("Chart", option, (value) => `${value} plain`) as unknown as Element).rows;
const axis = { type: "value", axisLabel: { formatter: (value: number) => `${value} ms` } };

describe("the table of a chart", () => {
  test("has a row per name and a column per series", () => {
    const series = [
      { name: "forward", data: [1, { value: 2 }] },
      { name: "backward", data: [3, null] },
    ];
    expect(rows({ xAxis: { type: "category", data: [7, 8] }, yAxis: axis, series })).toEqual([
      ["", "forward", "backward"],
      ["7", "1 ms", "3 ms"],
      ["8", "2 ms", "–"],
    ]);
    expect(rows({ yAxis: { type: "category", data: ["one"] }, xAxis: axis, series: [{ data: [5] }] })).toEqual([
      ["", "Chart"],
      ["one", "5 ms"],
    ]);
  });

  test("says the slices of a pie and the points of a plane", () => {
    expect(rows({ series: [{ type: "pie", data: [{ name: "aten::mm", value: 4 }] }] })).toEqual([["aten::mm", "4 plain"]]);
    expect(rows({ xAxis: axis, yAxis: { type: "value" }, series: [{ name: "tasks", data: [[1, 2]] }] })).toEqual([
      ["tasks", "1 ms", "2 plain"],
    ]);
  });

  test("ends where there is too much, and says so", () => {
    const made = chartTable(
      "Chart",
      { series: [{ data: Array.from({ length: 150 }, (_, place) => ({ name: `${place}`, value: 1 })) }] },
      String,
    ) as unknown as Element;
    expect(made.rows.length).toBe(100);
    expect(made.text).toContain("50");
    expect(chartTable("Chart", { series: [{ type: "graph" }] }, String)).toBeNull();
  });
});
