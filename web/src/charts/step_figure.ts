/** A step as rows of segments: the whole, its parts, and the collectives of every stream; with a table of all starts and ends. */

import type { FigureRow, FigureSegment, StepTrace } from "../api/types";
import { h, svg, type Child } from "../ui/dom";
import { smallTable } from "../ui/ui";
import * as format from "../words/format";
import { named, t } from "../words/i18n";
import { fitted, roundTicks, textScale } from "./fitted";

const ROW = 34;
const BAR = 22;
/** width of a character, px: a text with less room does not fit */
const CHARACTER = 7.2;
/** of CJK, whose characters are as wide as they are high */
const WIDE_CHARACTER = 13;
const NARROWEST = 320;
/** the names of the rows take no more of the width than this */
const MOST_OF_NAMES = 0.36;
const MOST_LISTED = 60;

const titleOf = (row: FigureRow): string =>
  row.kind === "total"
    ? t("steps.figure.total")
    : row.kind === "parts"
      ? t("steps.figure.parts")
      : row.stream === null
        ? t("steps.figure.collectives")
        : t("steps.figure.stream", { stream: row.stream });
const nameOf = (segment: FigureSegment): string => named("part", segment.name, segment.name);

/** Pixels that a text takes. */
const widthOf = (text: string): number =>
  [...text].reduce((sum, one) => sum + (one > "\u2e80" ? WIDE_CHARACTER : CHARACTER), 0) * textScale();

/** The rows as a picture, each segment with its name and length. */
export const stepFigure = (found: StepTrace, signal: AbortSignal): HTMLElement =>
  h(
    "div",
    { class: "step-figure" },
    fitted((width) => drawn(found, width), NARROWEST, signal),
  );

function drawn(found: StepTrace, width: number): SVGElement {
  const total = Math.max(...found.rows.flatMap((row) => row.segments.map((one) => one.start_ns + one.duration_ns)), 1);
  const labels = Math.min(Math.max(...found.rows.map((row) => widthOf(titleOf(row)))) + 12, width * MOST_OF_NAMES);
  const scale = (width - labels) / total;
  const marks = roundTicks(0, total, width - labels).at;
  const height = found.rows.length * ROW + 24;
  const said = found.rows
    .map(
      (row) =>
        `${titleOf(row)}: ${row.segments
          .slice(0, 8)
          .map((one) => `${nameOf(one)} ${format.time(one.duration_ns)}`)
          .join(", ")}`,
    )
    .join("; ");
  return svg(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": said },
    marks.map((at) => {
      const x = labels + at * scale;
      return [
        svg("line", { class: "rule", x1: x, x2: x, y1: 0, y2: height - 20 }),
        svg(
          "text",
          { class: "tick", x, y: height - 5, "text-anchor": at === 0 ? "start" : x + 30 > width ? "end" : "middle" },
          at === 0 ? "0" : format.time(at),
        ),
      ];
    }),
    found.rows.map((row, place) => figureRow(row, place * ROW, labels, scale)),
  );
}

/** As much of a text as there is room for. */
const fit = (text: string, room: number): string =>
  widthOf(text) <= room ? text : format.shorten(text, Math.floor((text.length * room) / widthOf(text)));

function figureRow(row: FigureRow, top: number, labels: number, scale: number): Child {
  const title = titleOf(row);
  return [
    svg("text", { class: "row-name", x: 0, y: top + BAR / 2 + 5 }, fit(title, labels - 8)),
    row.segments.map((one) => {
      const [x, width] = [labels + one.start_ns * scale, Math.max(one.duration_ns * scale, 1)];
      const text = `${nameOf(one)} ${format.time(one.duration_ns)}`;
      const shown = fit(text, width - 8);
      return svg(
        "g",
        { class: `segment segment-${row.kind === "collectives" ? "collective" : one.name.replaceAll("_", "-")}` },
        svg(
          "title",
          null,
          `${nameOf(one)}: ${format.time(one.start_ns)} – ${format.time(one.start_ns + one.duration_ns)} (${format.time(one.duration_ns)})`,
        ),
        svg("rect", { x, y: top, width, height: BAR, rx: 2 }),
        shown.length > 3 ? svg("text", { x: x + 4, y: top + BAR / 2 + 5 }, shown) : null,
      );
    }),
  ];
}

/** Start, end and length of every segment. */
export function segmentTable(found: StepTrace): HTMLElement {
  const whole = found.rows[0]?.segments[0]?.duration_ns ?? 0;
  const every = found.rows.flatMap((row) => row.segments.map((one) => ({ row, one })));
  return h(
    "div",
    null,
    smallTable(
      t("steps.trace"),
      [
        t("steps.figure.row"),
        t("steps.figure.segment"),
        t("steps.figure.start"),
        t("steps.figure.end"),
        t("steps.figure.length"),
        t("steps.figure.share"),
      ],
      every
        .slice(0, MOST_LISTED)
        .map(({ row, one }) => [
          titleOf(row),
          nameOf(one),
          format.time(one.start_ns),
          format.time(one.start_ns + one.duration_ns),
          format.time(one.duration_ns),
          whole > 0 ? format.share(one.duration_ns / whole) : format.NOTHING,
        ]),
      [2, 3, 4, 5],
    ),
    every.length > MOST_LISTED ? h("p", { class: "note" }, t("rest", { count: format.count(every.length - MOST_LISTED) })) : null,
  );
}
