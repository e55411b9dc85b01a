import { describe, expect, test, vi } from "vitest";

import type { Tile } from "../src/api/tile";
import type { Lane } from "../src/api/types";
import { largest } from "../src/charts/share_chart";
import { between, notesOf } from "../src/pages/timeline/marks";
import { Along, hash, phaseOf } from "../src/timeline/colours";
import { trackName } from "../src/timeline/labels";
import { bandAt, layout, mainThread, visible } from "../src/timeline/layout";
import { type Address, TileStore } from "../src/timeline/store";
import { TILE_PX, around, clamped, panned, powerOf, ticks, tileSpan, tilesOf, zoomed } from "../src/timeline/viewport";

const bounds = { start: 0, end: 1e9 };

describe("windows", () => {
  test("stay within the run and a margin, and never become empty", () => {
    expect(clamped({ start: -1e12, end: 1e12 }, bounds)).toEqual({ start: -5e7, end: 1.05e9 });
    const tiny = clamped({ start: 5, end: 5 }, bounds);
    expect(tiny.end - tiny.start).toBeGreaterThanOrEqual(20);
    const moved = panned({ start: 0, end: 1e6 }, bounds, 1e9);
    expect(moved.end).toBeCloseTo(1.05e9, 0);
    expect(moved.end - moved.start).toBeCloseTo(1e6, 0);
  });

  test("zooming keeps the time under the pointer", () => {
    const before = { start: 2e8, end: 4e8 };
    const at = 2.5e8;
    const after = zoomed(before, bounds, 0.5, at);
    expect(after.end - after.start).toBeCloseTo(1e8, 0);
    expect((at - after.start) / (after.end - after.start)).toBeCloseTo(0.25, 9);
  });

  test("something to show is in the middle", () => {
    const shown = around(5e8, 5.1e8, bounds);
    expect((shown.start + shown.end) / 2).toBeCloseTo(5.05e8, 0);
  });
});

describe("tiles", () => {
  test.each([800, 1280, 3840])("cover every window at %d pixels with buckets no wider than a pixel", (pixels) => {
    for (let span = 100; span < 1e9; span *= 7.3) {
      const window = { start: 3e8, end: 3e8 + Math.min(span, 7e8) };
      const power = powerOf(window, pixels);
      expect(2 ** power).toBeLessThanOrEqual(Math.max((window.end - window.start) / pixels, 1));
      const [first, last] = tilesOf(window, bounds, power);
      expect(first * tileSpan(power)).toBeLessThanOrEqual(window.start);
      expect((last + 1) * tileSpan(power)).toBeGreaterThan(window.end);
      expect(last - first).toBeLessThanOrEqual((2 * pixels) / TILE_PX + 2);
    }
  });
});

test("ticks are round and apart", () => {
  const { step, at } = ticks({ start: 1.2e6, end: 9.7e6 }, 1000, 100);
  expect(step).toBe(1e6);
  expect(at).toEqual([2, 3, 4, 5, 6, 7, 8, 9].map((one) => one * 1e6));
});

describe("the layout", () => {
  const lane = (number: number, depths: number): Lane => ({
    lane: number,
    source: "operators",
    table: "ops",
    group: "host",
    label: `thread ${number}`,
    key: {},
    depths,
    events: 1,
    start_ns: 0,
    end_ns: 1,
  });
  const tracks = [
    { trace: 0, name: "Rank 0", lanes: [lane(0, 3), lane(1, 40)], series: [] },
    { trace: 1, name: "Rank 1", lanes: [lane(0, 1)], series: [] },
  ];

  const choices = {
    isOpen: (_: number, one: Lane) => one.depths < 10,
    isHidden: () => false,
    isHeld: () => false,
    isShown: () => false,
    isShut: () => false,
  };

  test("puts bands below each other without gaps", () => {
    const made = layout(tracks, choices);
    const { bands, height, held } = made;
    expect(held).toBe(0);
    expect(bands.map((band) => band.kind)).toEqual(["head", "lane", "lane", "head", "lane"]);
    bands.forEach((band, place) => expect(band.top).toBe(place ? bands[place - 1]!.top + bands[place - 1]!.height : 0));
    expect(height).toBe(bands.at(-1)!.top + bands.at(-1)!.height);
    const closed = bands[2]!;
    expect(closed.kind === "lane" && closed.depths).toBe(1);
    expect(visible(made, 0, closed.top, closed.top + 1)).toEqual([closed]);
    expect(bandAt(made, 10, closed.top - 10)).toBe(closed);
  });

  test("holds lanes at the top while the others scroll away below them", () => {
    const made = layout(tracks, { ...choices, isHeld: (trace: number, one: Lane) => trace === 1 || one.lane === 1 });
    const { bands, held } = made;
    expect(bands.map((band) => (band.kind === "lane" ? `${band.trace}.${band.lane.lane}${band.of}` : band.kind))).toEqual([
      "0.1Rank 0",
      "1.0Rank 1",
      "head",
      "0.0",
      "head",
    ]);
    expect(bands.map((band) => band.held)).toEqual([true, true, false, false, false]);
    expect(held).toBe(bands[2]!.top);
    bands.forEach((band, place) => expect(band.top).toBe(place ? bands[place - 1]!.top + bands[place - 1]!.height : 0));
    for (const scroll of [0, 30, 1000]) expect(bandAt(made, scroll, 3)).toBe(bands[0]);
    const lane = bands[3]!;
    expect(bandAt(made, lane.top - held, held + 1)).toBe(lane);
    expect(visible(made, lane.top + lane.height - held, 0, 500)).not.toContain(lane);
  });
});

describe("groups", () => {
  const lane = (number: number, source: string, group: Lane["group"], label: string, key: Lane["key"]): Lane => ({
    ...{ lane: number, source, table: "", group, label, key, depths: 1, events: 1, start_ns: 0, end_ns: 1 },
  });
  const lanes = [
    lane(0, "steps", "program", "steps", {}),
    lane(1, "operators", "host", "thread 7 (main)", { pid: 1, tid: 7 }),
    lane(2, "operators", "host", "thread 8", { pid: 1, tid: 8 }),
    lane(3, "python", "host", "Python, thread 7 (main)", { pid: 1, tid: 7 }),
    lane(4, "kernels", "device", "CUDA 0 stream 7", { device: 0, stream: 7 }),
    lane(5, "communication", "device", "communication, group x", { device: 0, group: "x" }),
  ];
  const texts = (shut: string[]): string[] =>
    layout([{ trace: 0, name: "Rank 0", lanes, series: [] }], {
      isOpen: () => true,
      isHidden: () => false,
      isHeld: () => false,
      isShown: () => false,
      isShut: (key) => shut.includes(key),
    }).bands.map((band) => (band.kind === "series" ? "" : `${band.kind} ${band.text}`));

  test("put what belongs to a thread or a device below its name, and leave alone what is alone", () => {
    expect(texts([])).toEqual([
      "lane steps",
      "head thread 7 (main)",
      "lane ",
      "lane Python",
      "lane thread 8",
      "head CUDA 0",
      "lane stream 7",
      "lane communication, group x",
    ]);
  });

  test("are closed", () => {
    expect(texts(["0/thread 1 7", "0/device 0"])).toEqual(["lane steps", "head thread 7 (main)", "lane thread 8", "head CUDA 0"]);
  });
});

test("the phase of a time is that of the run it lies in", () => {
  const along = new Along({ start_ns: [10, 20, 40], phase: ["forward", "", "backward"] });
  expect([5, 10, 19, 20, 39, 40, 1e9, 12].map((time) => along.at(time))).toEqual([
    "",
    "forward",
    "forward",
    "",
    "",
    "backward",
    "backward",
    "forward",
  ]);
});

test("events are coloured as what was recorded, then as their names say", () => {
  expect(phaseOf("aten::mm", "operators", "backward")).toBe("backward");
  expect(phaseOf("c10d::allreduce_", "operators", "backward")).toBe("communication");
  expect(phaseOf("Optimizer.step#SGD.step", "operators", undefined)).toBe("optimizer");
  expect(phaseOf("fetch", "loader", undefined)).toBe("data");
  expect(phaseOf("step 3", "steps", undefined)).toBe("");
});

test("between two events is a gap or an overlap", () => {
  const event = (start_ns: number, end_ns: number) => ({ event: start_ns, name: "", lane: 0, depth: 0, start_ns, end_ns });
  expect(between(event(0, 10), event(25, 30))).toEqual({ gap: 15, starts: 25, ends: 20 });
  expect(between(event(25, 30), event(0, 10))).toEqual({ gap: 15, starts: -25, ends: -20 });
  expect(between(event(0, 10), event(4, 6)).gap).toBe(-2);
});

test("notes of an address are read, and nothing else is", () => {
  expect(notesOf('[[5,"a"],[7,8],"x",null]')).toEqual([{ time: 5, text: "a" }]);
  expect(notesOf("{")).toEqual([]);
  expect(notesOf(undefined)).toEqual([]);
});

describe("the store of tiles", () => {
  const address = (place: number): Address => ({ trace: 0, block: 0, power: 4, place });
  const none = {
    start: new Float64Array(0),
    end: new Float64Array(0),
    busy: new Float64Array(0),
    event: new Uint32Array(0),
    name: new Uint32Array(0),
    count: new Uint32Array(0),
  };
  const empty = (): Tile => ({
    start_ns: 0,
    end_ns: 1,
    bucket_ns: 1,
    items: 0,
    events: 0,
    rows: [],
    byLane: new Map(),
    names: new Map(),
    ...none,
  });

  test("gives up what is no longer visible, asks for nothing twice, and falls back to coarser tiles", async () => {
    const aborted: number[] = [];
    const asked: number[] = [];
    const answers = new Map<number, (tile: Tile) => void>();
    const store = new TileStore(
      (query, signal) =>
        new Promise((resolve, reject) => {
          const place = Number(query["start_ns"]) / tileSpan(4);
          asked.push(place);
          answers.set(place, resolve);
          signal.addEventListener("abort", () => {
            aborted.push(place);
            reject(new Error("aborted"));
          });
        }),
      () => 20,
      vi.fn(),
    );
    store.want([address(0), address(1)]);
    store.want([address(1), address(2)]);
    expect(aborted).toEqual([0]);
    answers.get(1)!(empty());
    answers.get(2)!(empty());
    await vi.waitFor(() => expect(store.waiting).toBe(false));
    store.want([address(1), address(2)]);
    expect(asked).toEqual([0, 1, 2]);
    expect(store.get(address(1))).not.toBeNull();
    // half as wide: the wider tile stands in
    expect(store.get({ trace: 0, block: 0, power: 3, place: 5 })).toBe(store.get(address(2)));
    expect(store.get({ trace: 0, block: 1, power: 4, place: 1 })).toBeNull();
  });
});

test("names keep their colour", () => {
  expect(hash("aten::mm")).toBe(hash("aten::mm"));
  expect(hash("aten::mm")).not.toBe(hash("aten::bmm"));
});

test("the rest is the sum of all smaller ones", () => {
  const slices = Array.from({ length: 30 }, (_, place) => ({ name: `op ${place}`, value: place }));
  const shown = largest(slices, 20, (count) => `${count} others`);
  expect(shown).toHaveLength(21);
  expect(shown.at(-1)).toEqual({ name: "9 others", value: 45 });
  expect(shown.reduce((sum, one) => sum + one.value, 0)).toBe((29 * 30) / 2);
});

describe("the names of tracks", () => {
  test("are those of the server in English, whatever the recording calls a thread or a group", () => {
    for (const label of [
      "device: exposed copies",
      "data pipeline: send",
      "marks of thread 7 (python), domain x",
      "garbage collection, thread 7",
      "communication, group 90.91_0",
      "communication, group of unknown number",
      "main thread 7 (stream 3)",
      "acl, thread 7",
      "CUDA 0 stream 7",
      "stream of unknown number",
      "anything: else",
    ])
      expect(trackName(label)).toBe(label);
  });

  test("say what a thread does, where its name or its calls tell", () => {
    const told = (label: string): string => trackName(label);
    expect(told("thread 12 (pt_autograd_0)")).toBe("backward thread 12 (pt_autograd_0)");
    expect(told("thread 12 (autograd)")).toBe("backward thread 12");
    expect(told("acl, thread 13 (task queue)")).toBe("acl, task queue thread 13");
    expect(told("thread 14 (pt_gloo_runloop)")).toBe("collectives thread 14 (pt_gloo_runloop)");
    expect(told("thread 15 (pt_data_pin)")).toBe("pin memory thread 15 (pt_data_pin)");
    expect(told("thread 15 (pt_data_worker_1)")).toBe("loader worker thread 15 (pt_data_worker_1)");
    expect(told("thread 16 (training)")).toBe("training thread 16");
    expect(told("cuda_runtime, thread")).toBe("cuda_runtime, thread of unknown number");
  });

  test("say which thread is the main one", () => {
    const lane = { group: "host", label: "thread 7 (python)", key: { pid: 7, tid: 7 } } as unknown as Lane;
    expect(mainThread(lane)).toBe(true);
    expect(mainThread({ ...lane, key: { pid: 6, tid: 7 } })).toBe(false);
    expect(mainThread({ ...lane, key: { pid: 0, tid: 0 } })).toBe(false);
  });
});
