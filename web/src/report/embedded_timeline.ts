/** The timeline of a report: coarse boxes for the whole run, and the events of one window. */

import { type Tile, decode } from "../api/tile";
import type * as T from "../api/types";
import { t } from "../words/i18n";
import { callers, parents } from "./embedded_nesting";
import { choose, combined } from "./levels";
import { type Query, missing } from "./questions";

/**
 * `start_ns` to `end_ns` is what the finer levels cover, whole buckets of the coarsest one; from `from_ns` on every event is known;
 * `exact` says whether the finest level has every event by itself.
 */
interface Told {
  start_ns: number;
  end_ns: number;
  from_ns: number;
  levels: number;
  exact: boolean;
  details: number;
}
interface Packed {
  values: unknown[];
  places: number[];
}
interface LinkRows {
  kind: string;
  row: number[];
  count: number[];
  event: number[][];
}
interface Details {
  tables: Record<string, { events: number[]; rows: number[]; columns: Record<string, Packed>; links: LinkRows[] }>;
  briefs: {
    event: number[];
    lane: number[];
    depth: number[];
    start_ns: number[];
    end_ns: number[];
    name: number[];
    names: string[];
  };
}
interface Names {
  names: string[];
  name: number[];
  lane: number[];
  count: number[];
}
interface Span extends T.Curve {
  start_ns: number;
  end_ns: number;
}

/** One event of the finest tile. */
interface Item extends T.Brief {
  code: number;
}

/** What it needs of the report that it is in. */
interface Report {
  piece(name: string): Promise<Uint8Array<ArrayBuffer> | null>;
  json<A>(name: string): Promise<A | null>;
  answer(path: string, query: Query): Promise<unknown>;
}

export class EmbeddedTimeline {
  private levels: Promise<Tile[]> | null = null;
  private all: Promise<Item[]> | null = null;

  constructor(
    private readonly parts: Report,
    private readonly run: number,
    private readonly trace: number,
  ) {}

  private get here(): string {
    return `${this.run}/${this.trace}`;
  }

  private async told(): Promise<Told> {
    const told = await this.parts.json<Told>(`timeline/${this.here}`);
    if (!told) throw missing(t("page.timeline"));
    return told;
  }

  private tiles(): Promise<Tile[]> {
    this.levels ??= (async () => {
      const { levels } = await this.told();
      const bytes = await Promise.all(
        Array.from({ length: levels }, (_, place) => this.parts.piece(`level/${this.here}/${place}`)),
      );
      return bytes.map((one) => decode(one!.buffer));
    })();
    return this.levels;
  }

  async tile(query: Query): Promise<Tile> {
    const [told, levels] = await Promise.all([this.told(), this.tiles()]);
    const [start, end, pixels] = [Number(query["start_ns"]), Number(query["end_ns"]), Number(query["pixels"])];
    const lanes = query["lanes"] === undefined ? null : String(query["lanes"]).split(",").map(Number);
    const level = choose(levels, (end - start) / Math.max(pixels, 1));
    return combined(
      levels[0]!,
      level ? { tile: levels[level]!, start: told.start_ns, end: told.end_ns } : null,
      lanes,
      start,
      end,
    );
  }

  answer(what: string, number: number, query: Query): Promise<unknown> {
    switch (what) {
      case "events":
        return this.event(number);
      case "series":
        return this.series(number, query);
      case "flows":
        return this.flows(query);
      case "search":
        return this.find(query);
      case "occurrences":
        return this.occurrences(query);
      case "selection":
        return this.selection(query);
      default:
        return Promise.reject(missing(`timeline/${what}`));
    }
  }

  /** Every event that the report tells apart, by id. */
  private items(): Promise<Item[]> {
    this.all ??= (async () => {
      const [told, levels] = await Promise.all([this.told(), this.tiles()]);
      const finest = levels.length > 1 ? { tile: levels.at(-1)!, start: told.start_ns, end: told.end_ns } : null;
      const tile = combined(levels[0]!, finest, null, -Infinity, Infinity);
      return tile.rows.flatMap((row) =>
        Array.from({ length: row.count }, (_, place) => row.first + place)
          .filter((at) => tile.count[at] === 1)
          .map((at): Item => ({
            event: tile.event[at]!,
            name: tile.names.get(tile.name[at]!) ?? "",
            code: tile.name[at]!,
            lane: row.lane,
            depth: row.depth,
            start_ns: tile.start[at]!,
            end_ns: tile.end[at]!,
          })),
      );
    })();
    return this.all;
  }

  /** Those that begin in the window: everything is known about them. */
  private async inside(): Promise<Item[]> {
    const [told, items] = await Promise.all([this.told(), this.items()]);
    return items.filter((one) => one.start_ns >= told.start_ns && one.start_ns < told.end_ns);
  }

  private lanes(): Promise<T.Timeline> {
    return this.parts.answer(`runs/${this.run}/timeline`, { trace: this.trace }) as Promise<T.Timeline>;
  }

  private async event(event: number): Promise<T.EventShown> {
    const [details, shown] = await Promise.all([this.parts.json<Details>(`details/${this.here}`), this.lanes()]);
    const brief = (details && briefOf(details, event)) ?? (await this.items()).find((one) => one.event === event);
    if (!brief) throw missing(`${t("timeline.details")} ${event}`, t("report.outside"));
    const { source, table } = shown.lanes[brief.lane]!;
    const known = details?.tables[table];
    const place = known ? known.events.indexOf(event) : -1;
    const { name, lane, depth, start_ns, end_ns } = brief;
    const around = shown.lanes[lane]!.group === "device" ? [] : callers(await this.items(), brief);
    const short = { event, name, lane, depth, start_ns, end_ns, source, table, callers: around };
    if (!details || !known || place < 0) return { ...short, columns: {}, links: [], partial: table !== "" };
    const columns = Object.entries(known.columns)
      .map(([column, packed]): [string, unknown] => [column, packed.values[packed.places[place]!]])
      .filter(([, value]) => value !== null);
    const links = known.links.flatMap((link): T.Link[] => {
      const at = link.row.indexOf(known.rows[place]!);
      return at < 0
        ? []
        : [{ kind: link.kind, count: link.count[at]!, events: link.event[at]!.map((one) => briefOf(details, one)!) }];
    });
    return { ...short, columns: Object.fromEntries(columns), links };
  }

  private async series(number: number, query: Query): Promise<T.Curve> {
    const spans = (await this.parts.json<Record<string, Span[]>>(`series/${this.here}`))?.[String(number)];
    if (!spans) throw missing(`series ${number}`);
    const [start, end] = [Number(query["start_ns"]), Number(query["end_ns"])];
    // the last one is the finest
    return [...spans].reverse().find((one) => one.start_ns <= start && end <= one.end_ns) ?? spans[0]!;
  }

  private async flows(query: Query): Promise<T.Arrows> {
    const known = await this.parts.json<T.Arrows>(`arrows/${this.here}`);
    if (!known) throw missing(t("timeline.arrows"));
    const [start, end] = [Number(query["start_ns"]), Number(query["end_ns"])];
    const event = query["event"] === undefined ? null : await this.event(Number(query["event"]));
    const touches = (one: T.End): boolean =>
      !event || (one.lane === event.lane && one.time_ns >= event.start_ns && one.time_ns <= event.end_ns);
    const inside = known.arrows.filter(
      (one) =>
        Math.min(one.start.time_ns, one.end.time_ns) < end
        && Math.max(one.start.time_ns, one.end.time_ns) >= start
        && (touches(one.start) || touches(one.end)),
    );
    return { arrows: inside.slice(0, Number(query["limit"] ?? 200)), total: inside.length, unplaced: known.unplaced };
  }

  /** The names that hold a text, as places in the list of names, and that list. */
  private async matching(query: Query, whole: boolean): Promise<{ codes: Set<number>; names: Names }> {
    const names = await this.parts.json<Names>(`names/${this.here}`);
    if (!names) throw missing(t("timeline.find"));
    const text = String(query["text"] ?? "");
    const small = text.toLowerCase();
    const codes = names.names.flatMap((name, place) =>
      (whole ? name === text : name.toLowerCase().includes(small)) ? [place] : [],
    );
    return { codes: new Set(codes), names };
  }

  /** How often a name occurs in the run, and the next of its events that the report has. */
  private async find(query: Query): Promise<T.Found> {
    const { codes, names } = await this.matching(query, query["whole"] === true);
    const lanes: Record<string, number> = {};
    names.name.forEach((name, place) => {
      if (codes.has(name)) lanes[names.lane[place]!] = (lanes[names.lane[place]!] ?? 0) + names.count[place]!;
    });
    const forward = query["direction"] !== "previous";
    const [from, own] = [Number(query["from_ns"] ?? -Infinity), Number(query["from_event"] ?? -1)];
    const sign = forward ? 1 : -1;
    let next: Item | null = null;
    for (const one of await this.inside()) {
      if (!codes.has(one.code) || order(one, { start_ns: from, event: own }) * sign <= 0) continue;
      if (!next || order(one, next) * sign < 0) next = one;
    }
    return { total: Object.values(lanes).reduce((sum, one) => sum + one, 0), lanes, next: next && briefly(next, names) };
  }

  private async occurrences(query: Query): Promise<T.Occurrences> {
    const { codes, names } = await this.matching(query, query["whole"] !== false);
    const total = names.count.reduce((sum, one, place) => sum + (codes.has(names.name[place]!) ? one : 0), 0);
    const length = (one: Item): number => one.end_ns - one.start_ns;
    const events = (await this.inside())
      .filter((one) => codes.has(one.code))
      .sort(query["by"] === "duration" ? (one, other) => length(other) - length(one) || one.event - other.event : order);
    const offset = Number(query["offset"] ?? 0);
    return { total, events: events.slice(offset, offset + Number(query["limit"] ?? 100)).map((one) => briefly(one, names)) };
  }

  /** What happened in a part of the window, from its events; as the server counts (`timeline/window.py`). */
  private async selection(query: Query): Promise<T.Selection> {
    const [told, shown, items, names] = await Promise.all([
      this.told(),
      this.lanes(),
      this.items(),
      this.parts.json<Names>(`names/${this.here}`),
    ]);
    const [start, end] = [Number(query["start_ns"]), Number(query["end_ns"])];
    if (start < told.from_ns || end > told.end_ns || !told.exact) throw missing(t("timeline.statistics"), t("report.outside"));
    const wanted =
      query["lanes"] === undefined
        ? shown.lanes
        : String(query["lanes"])
            .split(",")
            .map((lane) => shown.lanes[Number(lane)]!);
    const groups = new Map<string, T.NameInSelection>();
    const lanes = new Map(wanted.map((one) => [one.lane, { lane: one.lane, count: 0, cut: 0, covered_ns: 0 }]));
    const selected = items.filter(
      (one) => lanes.has(one.lane) && one.start_ns < end && (one.end_ns > start || one.start_ns >= start),
    );
    const insideOf = (one: Item): number => Math.min(one.end_ns, end) - Math.max(one.start_ns, start);
    const below = new Map<Item, number>();
    for (const lane of wanted) {
      if (lane.group === "device") continue;
      for (const [one, parent] of parents(selected.filter((item) => item.lane === lane.lane)))
        below.set(parent, (below.get(parent) ?? 0) + insideOf(one));
    }
    for (const one of selected) {
      const lane = lanes.get(one.lane)!;
      const inside = insideOf(one);
      const self = inside - (below.get(one) ?? 0);
      lane.count++;
      if (one.start_ns < start || one.end_ns > end) lane.cut++;
      if (one.depth === 0) lane.covered_ns += inside;
      const source = shown.lanes[one.lane]!.source;
      const key = `${source}\n${one.code}`;
      const group = groups.get(key);
      if (!group)
        groups.set(key, {
          source,
          name: names?.names[one.code] ?? one.name,
          count: 1,
          total_ns: inside,
          self_ns: self,
          min_ns: inside,
          max_ns: inside,
          longest: one.event,
        });
      else {
        group.count++;
        group.total_ns += inside;
        group.self_ns += self;
        group.min_ns = Math.min(group.min_ns, inside);
        if (inside > group.max_ns) [group.max_ns, group.longest] = [inside, one.event];
      }
    }
    const ordered = [...groups.values()].sort(
      (one, other) =>
        other.total_ns - one.total_ns
        || (one.source < other.source ? -1 : one.source > other.source ? 1 : one.name < other.name ? -1 : 1),
    );
    return { names: ordered.slice(0, Number(query["limit"] ?? 100)), different: ordered.length, lanes: [...lanes.values()] };
  }
}

const order = (one: { start_ns: number; event: number }, other: { start_ns: number; event: number }): number =>
  one.start_ns - other.start_ns || one.event - other.event;

/** A brief with the whole name; tiles have the beginning of long ones. */
function briefly({ event, code, lane, depth, start_ns, end_ns, name }: Item, names: Names): T.Brief {
  return { event, name: names.names[code] ?? name, lane, depth, start_ns, end_ns };
}

function briefOf({ briefs }: Details, event: number): T.Brief | null {
  // sorted by event
  let [low, high] = [0, briefs.event.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (briefs.event[middle]! < event) low = middle + 1;
    else high = middle;
  }
  if (briefs.event[low] !== event) return null;
  return {
    event,
    name: briefs.names[briefs.name[low]!]!,
    lane: briefs.lane[low]!,
    depth: briefs.depth[low]!,
    start_ns: briefs.start_ns[low]!,
    end_ns: briefs.end_ns[low]!,
  };
}
