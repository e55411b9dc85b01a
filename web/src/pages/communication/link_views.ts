/** What communication costs: each rank with its operations and links, the matrix of ranks, and the links one by one. */

import type { CommunicationOperation, Cost, Costs, OperationLink, Rank, RankLink, RankLinks } from "../../api/types";
import { numberOf } from "../../browser/route";
import { isMany } from "../../ui/rank_places";
import { clusterStage, clusterStep, openDialog, pager, sortedTable, tint, type SortedColumn } from "../../ui/cluster_controls";
import { h, replace, type Child } from "../../ui/dom";
import type { Context } from "../../ui/page";
import { meanOfEach } from "../../ui/step_means";
import { card, choice, nothing, smallTable } from "../../ui/ui";
import * as format from "../../words/format";
import { named, t } from "../../words/i18n";
import { linkGraph } from "./link_graph";

const PAGE = 20;
const MOST = 1000;
/** more ranks than these make squares that nobody can read */
const MOST_IN_MATRIX = 40;
/** of very many ranks those of the longest links */
const MOST_OF_MANY = 16;
const MEASURES = ["time_ns", "bytes", "bytes_per_s"] as const;
type Measure = (typeof MEASURES)[number];
const UNITS: Readonly<Record<Measure, string>> = { time_ns: "ns", bytes: "bytes", bytes_per_s: "B/s" };

/** The cards about ranks and links. */
export async function linkCards(context: Context, ranks: readonly Rank[]): Promise<Child> {
  const { params } = context;
  const place = { step: numberOf(params, "step"), stage: numberOf(params, "stage") };
  const filters = {
    source: numberOf(params, "source"),
    destination: numberOf(params, "destination"),
    transport: params["transport"],
  };
  const sorted = { by: params["sort"] ?? "time_ns", descending: params["descending"] !== "0" };
  const [costs, all, page] = await Promise.all([
    context.api.get("communication/costs", place),
    context.api.get("communication/links", { ...place, sort: "time_ns", descending: true, limit: MOST }),
    context.api.get("communication/links", {
      ...place,
      ...filters,
      sort: sorted.by,
      descending: sorted.descending,
      offset: numberOf(params, "offset") ?? 0,
      limit: PAGE,
    }),
  ]);
  if (!costs.steps.length && !all.matching) return null;
  const pick = (source: number | null, destination: number | null): void => context.visit({ source, destination, offset: null });
  const title = all.kind === "wait" ? t("links.waits") : t("links");
  const isLonger = all.kind === "link" && hasLongerLink(costs.rows, all.rows);
  const basis = basisOf(costs, all, place.step, meanOfEach(ranks));
  const note = `${all.kind === "wait" ? t("links.waits.what") : t("links.what")} ${basis.links}`;
  const drawn = all.rows.length > 0 && (all.kind !== "wait" || new Set([...all.sources, ...all.destinations]).size > 2);
  return [
    card(
      t("costs"),
      [
        h("div", { class: "controls" }, clusterStep(context, costs.steps), clusterStage(context, costs.job.stages)),
        costRows(context, costs, all),
      ],
      { wide: true, note: `${basis.costs} ${costNote(costs, isLonger)}` },
    ),
    // of two ranks a picture says no more than its one line, and nothing where no link is known
    drawn
      ? [
          card(title, linkGraph(costs.rows, all.rows, title, pick), { note: [note, " ", t("links.graph.what")] }),
          card(t("links.matrix"), matrix(context, all, pick)),
        ]
      : null,
    all.rows.length
      ? card(drawn ? t("links.table") : title, links(context, page, sorted), {
          wide: true,
          note: drawn ? [note, isLonger ? ` ${t("links.longer")}` : ""] : `${t("links.waits.row")} ${basis.links}`,
        })
      : null,
  ];
}

/** Whether a link takes longer than the transfer of a rank at its ends: the library counts both, each in a way of its own. */
export function hasLongerLink(
  costs: readonly Pick<Cost, "rank" | "transfer_ns" | "measured_by">[],
  links: readonly Pick<RankLink, "source" | "destination" | "time_ns">[],
): boolean {
  const measured = costs.filter((one) => one.measured_by === "library");
  const transfer = new Map(measured.map((one) => [one.rank, one.transfer_ns ?? Infinity]));
  return links.some((one) => [one.source, one.destination].some((rank) => one.time_ns > (transfer.get(rank) ?? Infinity)));
}

const isOfLibrary = (found: Costs): boolean => found.rows.some((row) => row.measured_by === "library");

/** Of which steps figures of ranks and links are: what the library measures is a mean over all its steps, all else of usual ones. */
function basisOf(found: Costs, links: RankLinks, step: number | null, mean: string): { costs: string; links: string } {
  const only = step ?? (found.steps.length === 1 ? found.steps[0]! : null);
  if (only !== null) return { costs: t("costs.of_step", { step: only }), links: t("costs.of_step", { step: only }) };
  const usual = mean && t("costs.typical", { mean });
  const isExposed = mean !== "" && found.rows.some((row) => row.exposed_ns !== null);
  const measured = isExposed ? t("costs.mean", { mean }) : t("costs.mean.all");
  return { costs: isOfLibrary(found) ? measured : usual, links: links.kind === "link" ? t("costs.mean.all") : usual };
}

/** Who measured the figures of ranks, and what they leave open. */
function costNote(found: Costs, isLonger: boolean): string {
  const by = found.rows.find((row) => row.measured_by !== null)?.measured_by ?? null;
  const how = by === "library" ? t("costs.library") : by === "arrival" ? t("costs.arrival") : t("costs.unknown");
  const rest = by === "library" && found.rows.some((row) => row.unexplained_ns > 0) ? ` ${t("costs.unexplained.what")}` : "";
  return `${how}${isLonger ? ` ${t("costs.library.transfer")}` : ""}${rest}`;
}

function costRows(context: Context, found: Costs, links: RankLinks): Child {
  const time = (title: string, value: (row: Cost) => number | null): SortedColumn<Cost>[] =>
    found.rows.some((row) => value(row) !== null)
      ? [{ name: "", title, numeric: true, cell: (row) => format.value(value(row), "ns") }]
      : [];
  const columns: SortedColumn<Cost>[] = [
    { name: "", title: t("rank"), cell: (row) => t("rank.n", { number: row.rank }) },
    ...time(named("column", "communication_ns"), (row) => row.communication_ns),
    ...time(named("column", "wait_ns"), (row) => row.wait_ns),
    ...time(named("column", "transfer_ns"), (row) => row.transfer_ns),
    ...(found.rows.some((row) => row.unexplained_ns > 0)
      ? time(named("column", "unexplained_ns"), (row) => row.unexplained_ns)
      : []),
    ...time(named("column", "exposed_ns"), (row) => row.exposed_ns),
    ...time(named("column", "overlapped_ns"), (row) => row.overlapped_ns),
    { name: "", title: t("steps"), numeric: true, cell: (row) => format.count(row.steps) },
    {
      name: "",
      title: "",
      cell: (row) => [
        h(
          "button",
          { type: "button", "data-operations": row.rank, onclick: () => void showOperations(context, row, links) },
          t("costs.operations"),
        ),
        " ",
        links.kind === "link"
          ? h(
              "button",
              { type: "button", "data-links": row.rank, onclick: () => void showLinks(context, row.rank, links) },
              t("links"),
            )
          : null,
      ],
    },
  ];
  return [
    isMany(found.rows)
      ? pagedCosts(columns, found.rows)
      : sortedTable(t("costs"), columns, found.rows, { by: "", descending: false }, () => undefined),
    found.no_data.length
      ? h(
          "p",
          { class: "note" },
          t("costs.no_data", { ranks: found.no_data.slice(0, 40).join(", ") + (found.no_data.length > 40 ? " …" : "") }),
        )
      : null,
  ];
}

/** One page of very many ranks: those that have the most exposed communication, or that somebody looks for. */
function pagedCosts(columns: readonly SortedColumn<Cost>[], rows: readonly Cost[]): Child {
  const place = h("div");
  const figure = (row: Cost): number => row.exposed_ns ?? row.communication_ns ?? 0;
  const sorted = [...rows].sort((one, other) => figure(other) - figure(one));
  let offset = 0;
  const show = (): void => {
    const wanted = search.value.trim();
    const matching = wanted ? sorted.filter((row) => String(row.rank).startsWith(wanted)) : sorted;
    // who looks for a rank wants that one first
    if (wanted) matching.sort((one, other) => one.rank - other.rank);
    const page = matching.slice(offset, offset + PAGE);
    replace(
      place,
      page.length
        ? sortedTable(t("costs"), columns, page, { by: "", descending: false }, () => undefined)
        : h("p", { class: "note" }, t("search.nothing")),
      pager(offset, page.length, matching.length, PAGE, (to) => {
        offset = to;
        show();
      }),
    );
  };
  const search = h("input", {
    type: "search",
    inputmode: "numeric",
    autocomplete: "off",
    placeholder: t("rank"),
    "aria-label": `${t("costs")}: ${t("rank")}`,
    oninput: () => {
      offset = 0;
      show();
    },
  });
  show();
  return [h("div", { class: "controls" }, search), place];
}

/** The operations of a rank; one of them shows the links that it used. */
async function showOperations(context: Context, { rank, measured_by }: Cost, links: RankLinks): Promise<void> {
  const step = numberOf(context.params, "step");
  const found = await context.api.get("communication/operations", { rank, step, limit: 200 });
  const used = h("div", { role: "status" });
  const show = async ({ operation, transfer_ns }: CommunicationOperation): Promise<void> => {
    const moved = await context.api.get("communication/operation_links", { rank, operation, step });
    const isLonger = hasLongerLink([{ rank, transfer_ns, measured_by }], moved);
    replace(
      used,
      h("h3", null, operation),
      moved.length
        ? operationLinks(moved)
        : h("p", { class: "note" }, t(links.kind === "link" ? "links.none.operation" : "links.none")),
      isLonger ? h("p", { class: "note" }, `${t("links.what")} ${t("links.longer")}`) : null,
    );
  };
  const rows = found.rows.map((row) => [
    h("button", { type: "button", class: "plain", onclick: () => void show(row) }, format.shorten(row.operation, 120)),
    format.count(row.calls),
    format.time(row.transfer_ns),
    format.time(row.wait_ns),
    format.value(row.bytes, "bytes"),
    format.value(row.bytes_per_s, "B/s"),
  ]);
  const heads = [
    t("costs.operation"),
    t("costs.calls"),
    named("column", "transfer_ns"),
    named("column", "wait_ns"),
    t("links.bytes"),
    t("links.bandwidth"),
  ];
  openDialog(context, `${t("costs.operations")}: ${t("rank.n", { number: rank })}`, [
    used,
    smallTable(t("costs.operations"), heads, rows, [1, 2, 3, 4, 5]),
    h("p", { class: "note" }, t("costs.bandwidth")),
    found.matching > found.rows.length
      ? h("p", { class: "note" }, t("rest", { count: format.count(found.matching - found.rows.length) }))
      : null,
  ]);
}

/** The links of a rank, as its measurements or those of its neighbours have them. */
async function showLinks(context: Context, rank: number, links: RankLinks): Promise<void> {
  const own = links.rows.filter((one) => one.source === rank || one.destination === rank);
  openDialog(
    context,
    `${t("links")}: ${t("rank.n", { number: rank })}`,
    own.length ? linkRows(own) : h("p", { class: "note" }, t("links.none")),
  );
}

const HEADS = (): string[] => [
  t("links.source"),
  t("links.destination"),
  t("links.transport"),
  t("time"),
  t("links.bytes"),
  t("links.bandwidth"),
];
const cells = (one: RankLink | OperationLink): string[] => [
  String(one.source),
  String(one.destination),
  one.transport || format.NOTHING,
  format.time(one.time_ns),
  format.value(one.bytes, "bytes"),
  format.value(one.bytes_per_s, "B/s"),
];
const linkRows = (rows: readonly RankLink[]): HTMLElement => smallTable(t("links"), HEADS(), rows.map(cells), [3, 4, 5]);
const operationLinks = (rows: readonly OperationLink[]): HTMLElement =>
  smallTable(t("links"), HEADS(), rows.map(cells), [3, 4, 5]);

/** Side of a square of the matrix, rem: as large as its card allows. */
const cellOf = (ranks: number): number => Math.min(Math.max(26 / Math.max(ranks, 1), 1.9), 4.2);

/** Of very many ranks the ends of the links that take the longest, in order. */
function costliest(rows: readonly RankLink[]): number[] {
  const ends = new Set<number>();
  for (const one of [...rows].sort((left, right) => right.time_ns - left.time_ns)) {
    if (ends.size + 2 > MOST_OF_MANY) break;
    ends.add(one.source).add(one.destination);
  }
  return [...ends].sort((one, other) => one - other);
}

/** Source by destination, coloured by time, bytes or bandwidth. */
function matrix(context: Context, found: RankLinks, onPick: (source: number, destination: number) => void): Child {
  const place = h("div");
  const measures = found.kind === "wait" ? (["time_ns"] as const) : MEASURES;
  const names: Readonly<Record<Measure, string>> = {
    time_ns: t("time"),
    bytes: t("links.bytes"),
    bytes_per_s: t("links.bandwidth"),
  };
  const ranks = [...new Set([...found.sources, ...found.destinations])].sort((one, other) => one - other);
  const shown = isMany(ranks) ? costliest(found.rows) : ranks.slice(0, MOST_IN_MATRIX);
  const draw = (measure: Measure): void => {
    const value = new Map<string, number>();
    for (const one of found.rows) {
      const key = `${one.source}-${one.destination}`;
      const known = one[measure];
      // several transports of a link: the slowest bandwidth, the sum of times and bytes
      if (known !== null)
        value.set(key, measure === "bytes_per_s" ? Math.min(value.get(key) ?? Infinity, known) : (value.get(key) ?? 0) + known);
    }
    const most = Math.max(...value.values(), 1);
    const cell = (source: number, destination: number): Child => {
      const known = value.get(`${source}-${destination}`);
      if (known === undefined) return h("td", { class: "matrix-empty" });
      const said = `${source} → ${destination}: ${format.value(known, UNITS[measure])}`;
      return h(
        "td",
        null,
        h("button", {
          type: "button",
          class: "matrix-cell",
          title: said,
          "aria-label": said,
          "data-value": known,
          style: { background: tint(known / most) },
          onclick: () => onPick(source, destination),
        }),
      );
    };
    replace(
      place,
      h(
        "div",
        { class: "controls" },
        measures.length > 1
          ? choice(
              t("links.measure"),
              measures.map((one): [string, string] => [one, names[one]]),
              measure,
              (chosen) => {
                context.note({ measure: chosen });
                draw(MEASURES.find((one) => one === chosen) ?? "time_ns");
              },
            )
          : null,
      ),
      h(
        "div",
        { class: "scroll" },
        h(
          "table",
          { class: "matrix", style: { "--cell": `${cellOf(shown.length)}rem` } },
          h("caption", { class: "hidden" }, t("links.matrix")),
          h(
            "thead",
            null,
            h(
              "tr",
              null,
              h("td"),
              shown.map((rank) => h("th", { scope: "col" }, String(rank))),
            ),
          ),
          h(
            "tbody",
            null,
            shown.map((source) =>
              h(
                "tr",
                null,
                h("th", { scope: "row" }, String(source)),
                shown.map((destination) => cell(source, destination)),
              ),
            ),
          ),
        ),
      ),
      h("p", { class: "note" }, t("links.matrix.what", { measure: names[measure], most: format.value(most, UNITS[measure]) })),
      ranks.length > shown.length
        ? h("p", { class: "note" }, t("links.matrix.left_out", { count: format.count(ranks.length - shown.length) }))
        : null,
    );
  };
  const kept = context.params["measure"];
  draw(measures.find((one) => one === kept) ?? "time_ns");
  return place;
}

/** The number of a rank, where there are too many to list. */
function rankBox(title: string, value: string, onGiven: (value: string | null) => void): HTMLElement {
  const input = h("input", {
    type: "search",
    inputmode: "numeric",
    size: 6,
    value,
    placeholder: t("links.any"),
    onchange: () => onGiven(/^\d{1,9}$/.test(input.value.trim()) ? input.value.trim() : null),
  });
  return h("label", { class: "choice" }, h("span", null, title), input);
}

function links(context: Context, found: RankLinks, sorted: { by: string; descending: boolean }): Child {
  const { params } = context;
  const every = (values: readonly (string | number)[]): [string, string][] => [
    ["", t("links.any")],
    ...values.map((one): [string, string] => [String(one), String(one)]),
  ];
  const filter = (
    name: "source" | "destination" | "transport",
    title: string,
    values: readonly (string | number)[],
  ): HTMLElement =>
    isMany(values)
      ? rankBox(title, params[name] ?? "", (value) => context.visit({ [name]: value, offset: null }))
      : choice(title, every(values), params[name] ?? "", (value) =>
          context.visit({ [name]: value === "" ? null : value, offset: null }),
        );
  const [source, destination, transport, time, bytes, bandwidth] = HEADS() as [string, string, string, string, string, string];
  // a wait has no type, moves nothing and is not measured in bytes
  const measured = found.kind !== "wait";
  const columns: SortedColumn<RankLink>[] = [
    { name: "source", title: source, cell: (row) => t("rank.n", { number: row.source }) },
    { name: "destination", title: destination, cell: (row) => t("rank.n", { number: row.destination }) },
    ...(measured ? [{ name: "transport", title: transport, cell: (row: RankLink) => row.transport || format.NOTHING }] : []),
    { name: "time_ns", title: time, numeric: true, cell: (row) => format.time(row.time_ns) },
    ...(measured
      ? [
          { name: "bytes", title: bytes, numeric: true, cell: (row: RankLink) => format.value(row.bytes, "bytes") },
          { name: "bytes_per_s", title: bandwidth, numeric: true, cell: (row: RankLink) => format.value(row.bytes_per_s, "B/s") },
        ]
      : []),
  ];
  return [
    h(
      "div",
      { class: "controls" },
      filter("source", source, found.sources),
      filter("destination", destination, found.destinations),
      found.transports.some((one) => one) ? filter("transport", transport, found.transports) : null,
    ),
    found.rows.length
      ? sortedTable(t("links.table"), columns, found.rows, sorted, (by, descending) =>
          context.visit({ sort: by, descending: descending ? 1 : 0, offset: null }),
        )
      : nothing(t("links.none")),
    pager(numberOf(params, "offset") ?? 0, found.rows.length, found.matching, PAGE, (to) =>
      context.visit({ offset: to || null }),
    ),
  ];
}
