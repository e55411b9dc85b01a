"""The Kineto reader on good, foreign, damaged and hostile files."""

from __future__ import annotations

import contextlib
import gzip
import json
import random
import sys
from pathlib import Path

import polars as pl
import pytest

from steplens.common.errors import InputError
from steplens.common.native.libraries import VARIABLE
from steplens.readers.common.json_events import JsonEventFile, event_ends
from steplens.readers.kineto import kineto, two_processes
from steplens.readers.kineto.kineto_events import EventColumns
from steplens.run import open_run
from steplens.trace.schema import SCHEMA, SCOPE_BACKWARD, SCOPE_MODULE, SCOPE_USER

BASE_NS = 1_790_857_026_000_000_000
#: a time whose nanoseconds only just fit a double of microseconds
START_US = 4_413_860_637_534.997


def call(name: str, start: float, duration: float, cat: str = "cpu_op", tid: int = 11, **args: object) -> dict[str, object]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 10, "tid": tid, "ts": START_US + start, "dur": duration, "args": args}


def events() -> list[dict[str, object]]:
    """One step with a module, a forward call, its backward call, memory, a flow and a frame."""
    return [
        {"ph": "M", "name": "process_name", "pid": 10, "tid": 0, "ts": 0.0, "args": {"name": "python"}},
        {"ph": "M", "name": "thread_name", "pid": 10, "tid": 11, "ts": 0.0, "args": {"name": "thread 11 (python)"}},
        call("ProfilerStep#5", 0, 100, "user_annotation"),
        call("nn.Module: Net.head", 5, 30, "user_annotation"),
        call(
            "aten::linear",
            10,
            20.5,
            **{
                "External id": 3,
                "Sequence number": 7,
                "Fwd thread id": 0,
                "Input Dims": [[2, 3], [[4], [5, 6]], []],
                "Input type": ["float", ["float", "int"], ""],
            },
        ),
        call("aten::mm", 12, 10.001, **{"External id": 4}),
        call("autograd::engine::evaluate_function: MmBackward0", 50, 20, tid=12, **{"Sequence number": 7, "Fwd thread id": 1}),
        call("aten::mm", 55, 10, tid=12),
        {"ph": "s", "id": 1, "cat": "fwdbwd", "name": "fwdbwd", "pid": 10, "tid": 11, "ts": START_US + 10},
        {"ph": "f", "id": 1, "cat": "fwdbwd", "name": "fwdbwd", "bp": "e", "pid": 10, "tid": 12, "ts": START_US + 50},
        {
            "ph": "i",
            "s": "t",
            "cat": "cpu_instant_event",
            "name": "[memory]",
            "pid": 10,
            "tid": 11,
            "ts": START_US + 13,
            "args": {"Total Reserved": 0, "Total Allocated": 64, "Bytes": 64, "Device Id": -1, "Device Type": 0, "Addr": 4096},
        },
        {
            "ph": "X",
            "cat": "Trace",
            "name": "PyTorch Profiler (0)",
            "pid": "Spans",
            "tid": "PyTorch Profiler",
            "ts": START_US,
            "dur": 100,
            "args": {"Op count": 0},
        },
    ]


def kineto_text(items: list[dict[str, object]]) -> str:
    """The line structure of Kineto's own writer."""
    body = ",".join("\n  " + json.dumps(item, indent=4).replace("\n", "\n  ") for item in items)
    return f'{{\n  "schemaVersion": 1,\n  "baseTimeNanoseconds": {BASE_NS},\n  "traceEvents": [{body}\n  ],"traceName": "x" }}'


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    path = tmp_path / "trace.json"
    path.write_text(kineto_text(events()))
    return path


def test_tables_of_a_small_trace(plain: Path) -> None:
    trace = kineto.read(plain)
    start_ns = BASE_NS + 4_413_860_637_534_997
    assert set(trace) == {"ops", "steps", "kernels", "memory", "flows", "threads", "meta"}
    for name in trace:
        assert dict(trace.table(name).schema) == SCHEMA[name]
    rows = {(row["name"], row["tid"]): row for row in trace.ops.iter_rows(named=True)}
    linear, inner = rows["aten::linear", 11], rows["aten::mm", 11]
    assert linear["start_ns"] == start_ns + 10_000
    assert linear["end_ns"] == start_ns + 30_500
    assert linear["self_ns"] == 20_500 - 10_001
    assert inner["parent"] == linear["id"]
    assert inner["depth"] == linear["depth"] + 1
    assert linear["input_shapes"] == "2,3;[4;5,6];"
    assert linear["input_types"] == "float;[float;int];"
    assert (linear["sequence"], linear["external_id"], linear["step"]) == (7, 3, 5)
    assert rows["nn.Module: Net.head", 11]["scope"] == SCOPE_MODULE
    assert rows["ProfilerStep#5", 11]["scope"] == SCOPE_USER
    backward = rows["autograd::engine::evaluate_function: MmBackward0", 12]
    assert backward["scope"] == SCOPE_BACKWARD
    # backward calls belong to the module of the forward call with the same sequence number
    assert {linear["module"], backward["module"], rows["aten::mm", 12]["module"]} == {"Net.head"}
    assert rows["ProfilerStep#5", 11]["module"] is None
    assert trace.steps.rows() == [(5, start_ns, start_ns + 100_000, 10, 11)]
    assert trace.memory.row(0, named=True)["op"] == inner["id"]
    assert trace.flows.row(0) == ("fwdbwd", 1, start_ns + 10_000, 10, 11, start_ns + 50_000, 10, 12)
    assert trace.meta_values()["base_time_ns"] == BASE_NS
    assert trace.meta_values()["traceName"] == "x"
    # every operator call is a task of the CPU, as long as it is busy itself; ranges of the user are none
    tasks = trace.kernels.select(pl.col("name").cast(pl.String), "stream", "self_ns").rows()
    calls = trace.ops.filter(pl.col("scope") < 2)
    assert tasks == calls.select(pl.col("name").cast(pl.String), "tid", "self_ns").rows()
    assert tasks[:2] == [("aten::linear", 11, 20_500 - 10_001), ("aten::mm", 11, 10_001)]


@pytest.mark.parametrize("form", ["compact", "array", "reversed_keys", "spaced", "gzip", "gzip_members"])
def test_other_layouts_give_the_same_tables(plain: Path, tmp_path: Path, form: str) -> None:
    items = events()
    top: object = {"baseTimeNanoseconds": BASE_NS, "traceEvents": items}
    path = tmp_path / ("other.json.gz" if form.startswith("gzip") else "other.json")
    if form == "compact":
        path.write_text(json.dumps(top, separators=(",", ":")))
    elif form == "reversed_keys":
        path.write_text(json.dumps({"traceEvents": items, "baseTimeNanoseconds": BASE_NS}))
    elif form == "spaced":
        path.write_text("\ufeff \n" + json.dumps(top, indent=7))
    elif form == "array":
        shifted = [{**item, "ts": item["ts"] + BASE_NS / 1000} if item["ph"] != "M" else item for item in items]
        path.write_text(json.dumps(shifted))
    elif form == "gzip":
        path.write_bytes(gzip.compress(plain.read_bytes()))
    else:
        half = len(plain.read_bytes()) // 2
        path.write_bytes(gzip.compress(plain.read_bytes()[:half]) + gzip.compress(plain.read_bytes()[half:]))
    expected, found = kineto.read(plain), kineto.read(path)
    if form == "array":
        # absolute microseconds have no room for nanoseconds in a double
        assert found.ops["name"].to_list() == expected.ops["name"].to_list()
        assert (found.ops["start_ns"] - expected.ops["start_ns"]).abs().max() < 300
        return
    assert found.ops.equals(expected.ops)
    assert found.memory.equals(expected.memory)
    assert found.health is None


def without_nulls(columns: EventColumns) -> pl.DataFrame:
    """Operator columns in which text that no event of a piece has is empty, as it is for single events without it."""
    return columns.frame("operators").with_columns(
        pl.col("input_shapes", "input_types").cast(pl.String).str.replace_all(r"\s", "").fill_null("")
    )


def test_every_piece_size_gives_the_same_events(plain: Path) -> None:
    whole = EventColumns()
    whole.read(JsonEventFile(plain))
    compact = plain.with_name("compact.json")
    compact.write_text(json.dumps({"traceEvents": events()}))
    for path in (plain, compact):
        for size in (1, 7, 64, 333, 1000, 5000):
            columns = EventColumns()
            file = JsonEventFile(path, piece_bytes=size)
            columns.read(file)
            assert columns.count == len(events())
            assert without_nulls(columns).equals(without_nulls(whole))
            assert not file.truncated
            assert not columns.damaged


def test_two_processes_read_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "off")
    once = [{**item, "tid": "Thread 1"} if item["tid"] == 12 else item for item in events()]
    once.append({**call("gemm", 60, 5, "kernel"), "pid": "gpu:0"})
    items = [item for _ in range(3000) for item in once]
    path = tmp_path / "large.json"
    path.write_text(kineto_text(items))
    taken: list[Path] = []
    load = two_processes._load_columns
    monkeypatch.setattr(two_processes, "_load_columns", lambda folder: taken.append(folder) or load(folder))
    together, _ = two_processes.read_columns(path, parallel_bytes=0)
    assert taken, "the second process did its part"
    alone, _ = two_processes.read_columns(path)
    assert together.count == alone.count == len(items)
    for kind in alone.kinds:
        assert together.frame(kind).equals(alone.frame(kind))
    assert together.thread_names == alone.thread_names
    assert together.lane_names == alone.lane_names
    assert list(alone.lane_names.values()) == ["Thread 1"]
    assert together.lane_texts == alone.lane_texts
    assert list(alone.lane_texts.values()) == ["gpu:0"]


@pytest.mark.parametrize("executable", ["", "/nowhere/python"])
def test_without_a_second_process_one_reads_all(tmp_path: Path, executable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "off")
    path = tmp_path / "large.json"
    path.write_text(kineto_text([item for _ in range(300) for item in events()]))
    alone, _ = two_processes.read_columns(path)
    monkeypatch.setattr(sys, "executable", executable)
    found, _ = two_processes.read_columns(path, parallel_bytes=0)
    assert found.count == alone.count
    assert all(found.frame(kind).equals(alone.frame(kind)) for kind in alone.kinds)


def test_a_file_cut_anywhere_gives_what_precedes_the_cut(plain: Path, tmp_path: Path) -> None:
    data = plain.read_bytes()
    for text in (data, json.dumps({"baseTimeNanoseconds": BASE_NS, "traceEvents": events()}).encode()):
        ends, _ = event_ends(text[text.index(b"[") + 1 :])
        first = text.index(b"[") + 1
        for cut in random.Random(4).sample(range(len(text) - 40), 120):
            path = tmp_path / "cut.json"
            path.write_bytes(text[:cut])
            complete = sum(first + end <= cut for end in ends)
            columns = EventColumns()
            if not complete:
                with pytest.raises(InputError):
                    kineto.read(path)
                continue
            file = JsonEventFile(path)
            columns.read(file)
            assert columns.count == complete
            assert columns.damaged == 0
            assert file.truncated == (text[first + ends[-1] : cut].strip()[:1] != b"]")
    compressed = tmp_path / "cut.json.gz"
    compressed.write_bytes(gzip.compress(random.Random(1).randbytes(10) + b"", 0)[:5])
    with pytest.raises(InputError):
        kineto.read(compressed)


def test_a_cut_gzip_file_gives_what_precedes_the_cut(tmp_path: Path) -> None:
    items = [call(f"aten::op{random.Random(i).random()}", i, 0.5) for i in range(5000)]
    path = tmp_path / "cut.json.gz"
    data = gzip.compress(kineto_text(items).encode())
    path.write_bytes(data[: len(data) // 2])
    trace = kineto.read(path)
    assert 1500 < trace.ops.height < 3500
    assert "truncated_file" in trace.health["check"].to_list()


def test_damaged_events_are_counted_and_the_others_kept(plain: Path, tmp_path: Path) -> None:
    lines = json.dumps(events(), separators=(",", ":"))
    broken = lines.replace('"name":"aten::linear"', '"name":aten::linear').replace('"dur":20,', '"dur":"20",')
    path = tmp_path / "damaged.json"
    path.write_text(broken)
    trace = kineto.read(path)
    names = trace.ops["name"].to_list()
    assert "aten::linear" not in names
    assert names.count("aten::mm") == 2
    assert "autograd::engine::evaluate_function: MmBackward0" in names
    finding = trace.health.filter(check="damaged_events").row(0, named=True)
    assert finding["count"] == 1
    assert finding["severity"] == "error"


@pytest.mark.parametrize("member", ["ts", "dur"])
@pytest.mark.parametrize("value", ["abc", "5 us", None, "missing", 5e15, "5e15", "nan", True, 1 << 70, [1]])
def test_an_event_without_a_time_is_counted_and_never_at_time_zero(
    plain: Path, tmp_path: Path, member: str, value: object
) -> None:
    odd = call("aten::odd", 20, 1)
    memory = {**next(event for event in events() if event["ph"] == "i")}
    for event in (odd, memory):
        event[member] = value
        if value == "missing":
            del event[member]
    path = tmp_path / "odd.json"
    path.write_text(json.dumps({"baseTimeNanoseconds": BASE_NS, "traceEvents": [*events(), odd, memory]}))
    good, trace = kineto.read(plain), kineto.read(path)
    # a moment has no duration
    lost = 2 if member == "ts" else 1
    assert trace.health.filter(check="damaged_events").select("count", "severity", "unsafe").rows() == [
        (lost, "error", "everything")
    ]
    assert trace.ops["name"].to_list() == good.ops["name"].to_list()
    assert trace.ops["start_ns"].to_list() == good.ops["start_ns"].to_list()
    assert trace.memory.height == good.memory.height + 2 - lost


def test_times_that_are_no_microseconds_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "ns.json"
    for factor in (1, 1000):
        calls = [call(f"aten::f{number}", 0, 1) for number in range(20)]
        for number, item in enumerate(calls):
            item["ts"] = (1_790_857_026_000_000 + number) * factor
        path.write_text(json.dumps({"traceEvents": calls}))
        if factor == 1:
            assert kineto.read(path).ops.height == 20
    with pytest.raises(InputError, match="20 events are not microseconds"):
        kineto.read(path)


@pytest.mark.parametrize("lane", ["Thread 1", "0x11", 1 << 63, 1 << 70, "99999999999999999999"])
@pytest.mark.parametrize("member", ["pid", "tid"])
def test_calls_on_lanes_without_a_number_are_kept(plain: Path, tmp_path: Path, member: str, lane: object) -> None:
    items = [{**event, member: lane} if event["ph"] in "Xi" else event for event in events()]
    path = tmp_path / "lanes.json"
    path.write_text(json.dumps({"baseTimeNanoseconds": BASE_NS, "traceEvents": items}))
    good, trace = kineto.read(plain), kineto.read(path)
    assert trace.health is None or "damaged_events" not in trace.health["check"]
    assert trace.memory.height == good.memory.height
    if member == "pid":
        # the threads are the same ones, in another process
        assert trace.ops.select("name", "depth", "start_ns").equals(good.ops.select("name", "depth", "start_ns"))
    assert trace.ops["name"].sort().to_list() == good.ops["name"].sort().to_list()
    assert trace.ops[member].n_unique() == 1
    named = trace.threads.filter(pl.col(member) == trace.ops[member][0])["name"].to_list()
    assert named and all(str(lane) in name for name in named)


def test_a_name_wins_over_the_text_of_a_lane_and_lanes_stay_apart(tmp_path: Path) -> None:
    items = [
        {"ph": "M", "name": "thread_name", "pid": 10, "tid": "a", "args": {"name": "loader"}},
        *({**call(f"aten::{lane}", 0, 10), "tid": lane} for lane in ("a", "b", 7, "7", 8.0)),
    ]
    path = tmp_path / "lanes.json"
    path.write_text(json.dumps({"traceEvents": items}))
    trace = kineto.read(path)
    assert trace.ops["tid"].n_unique() == 4
    assert {7, 8} < set(trace.ops["tid"])
    assert trace.threads["name"].sort().to_list() == ["b", "loader"]


@pytest.mark.parametrize("form", ["numbers", "quoted", "halves"])
@pytest.mark.parametrize(("start", "length"), [(3.9e15, 3.9e15), (-3.9e15, -3.9e15), (1.0, 3.9999999999999995e15)])
def test_an_end_that_no_clock_shows_is_counted(tmp_path: Path, start: float, length: float, form: str) -> None:
    good = [call("aten::mm", number, 1) for number in range(3)]
    ends = [{"ts": start, "dur": length}] if form != "halves" else [{"ts": 5e15, "ph": "E"}, {"ts": start, "ph": "B"}]
    odd = [{**call("aten::far", 0, 1), **end} for end in ends]
    items = [{**item, "ts": str(item["ts"]), "dur": str(item["dur"])} if form == "quoted" else item for item in [*good, *odd]]
    path = tmp_path / "far.json"
    # with the largest base time that is used, no end may go round the numbers of 64 bits
    base_ns = (1 << 62) - 1 if start > 0 else 1 - (1 << 62)
    path.write_text(json.dumps({"baseTimeNanoseconds": base_ns, "traceEvents": items}))
    trace = kineto.read(path)
    assert trace.ops["name"].cast(pl.String).to_list() == ["aten::mm"] * 3
    assert (trace.ops["end_ns"] - trace.ops["start_ns"]).to_list() == [1000] * 3
    assert trace.health.filter(check="damaged_events")["count"].to_list() == [1]


@pytest.mark.parametrize("names", [0, 300, 3000])
@pytest.mark.parametrize("in_pieces", [False, True])
def test_names_in_front_of_the_calls_cost_no_nanoseconds(tmp_path: Path, names: int, in_pieces: bool) -> None:
    path = tmp_path / "names.json"
    labels = [{"ph": "M", "name": "process_name", "pid": n, "tid": 0, "ts": 0.0, "args": {"name": f"p{n}"}} for n in range(names)]
    calls = [call(f"aten::a{number}", 0, 0) for number in range(400)]
    times = [1_790_857_026_000_000_000 + 1_001 * number for number in range(400)]
    text = kineto_text([*labels, *({**item, "ts": f"@{number}@"} for number, item in enumerate(calls))])
    for number, time_ns in enumerate(times):
        text = text.replace(f'"@{number}@"', f"{time_ns // 1000}.{time_ns % 1000:03d}")
    # without the base time, microseconds since the epoch with their fraction are more than a double holds
    path.write_text(text.replace(str(BASE_NS), "0"))
    columns = EventColumns()
    columns.read(JsonEventFile(path, **({"piece_bytes": 5000} if in_pieces else {})))
    columns.convert()
    assert columns.frame("operators")["start_ns"].to_list() == times


def test_a_call_without_a_thread_is_counted(plain: Path, tmp_path: Path) -> None:
    lost = [{**call("aten::odd", 20, 1), "tid": None}, {**call("aten::odd", 20, 1), "pid": [1]}]
    path = tmp_path / "lost.json"
    path.write_text(json.dumps({"baseTimeNanoseconds": BASE_NS, "traceEvents": [*events(), *lost]}))
    trace = kineto.read(path)
    assert trace.health.filter(check="damaged_events")["count"].to_list() == [2]
    assert trace.ops.height == kineto.read(plain).ops.height


def test_steps_without_a_number_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "steps.json"
    odd = [call(f"ProfilerStep#{number}", 200 * index, 100, "user_annotation") for index, number in enumerate(["9" * 20, "x"], 1)]
    path.write_text(json.dumps({"traceEvents": [*events(), *odd]}))
    trace = kineto.read(path)
    assert trace.steps["id"].to_list() == [5]
    assert trace.health.filter(check="unnumbered_steps").select("count", "severity").rows() == [(2, "warning")]


HOSTILE = {
    "negative_duration": call("aten::a", 0, -5),
    "huge_numbers": call("aten::a", 0, 1, **{"External id": 2**70, "Sequence number": -(2**63)}),
    "huge_time": {**call("aten::a", 0, 1), "ts": 1e300},
    "text_numbers": {**call("aten::a", 0, 1), "ts": "12.5", "pid": "10", "tid": "0x11"},
    "null_members": {**call("aten::a", 0, 1), "args": None, "cat": None, "dur": None},
    "list_name": {**call("aten::a", 0, 1), "name": ["a"]},
    "markup": call("[red]<script>alert(1)</script>\x1b[2J=1+1", 0, 1),
    "wrong_args": call("aten::a", 0, 1, **{"Input Dims": "x", "Input type": {"a": 1}, "External id": "y", "stream": [1]}),
    "deep": call("aten::a", 0, 1, **{"Input Dims": json.loads("[" * 200 + "]" * 200)}),
    "unknown_phase": {"ph": "Z", "name": "a", "ts": 1},
    "no_phase": {"name": "a"},
    "text_event": "aten::a",
    "null_event": None,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_one_hostile_event_spoils_no_other(tmp_path: Path, name: str) -> None:
    path = tmp_path / "hostile.json"
    path.write_text(json.dumps({"traceEvents": [*events(), HOSTILE[name]]}))
    run = open_run(path)
    assert run.trace().ops.filter(pl.col("name").cast(pl.String) == "aten::mm").height == 2
    assert run.steps()["duration_ns"].to_list() == [100_000]
    assert run.operators(by="shape", annotations=True).height >= 4


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"  \n ", "empty"),
        (b"hello", "not a JSON trace"),
        (b"{}", "traceEvents"),
        (b'{"a": 1}', "traceEvents"),
        (b'{"traceEvents": []}', "no events"),
        (b"[]", "no events"),
        (b'{"traceEvents": [', "no events"),
        (b"\x1f\x8b\x08\x00garbage", "empty"),
        (b"\x1f\x8b\x08\x00" + b"garbage" * 20, "gzip"),
        (b"\x00" * 100, "not a JSON trace"),
        (b'{"traceEvents": [}}}}]]]]', "no events"),
    ],
)
def test_what_is_no_trace_is_refused_in_one_sentence(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=words) as caught:
        open_run(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_random_bytes_never_escape_as_another_error(plain: Path, tmp_path: Path) -> None:
    data = bytearray(plain.read_bytes())
    choice = random.Random(7)
    for round_ in range(150):
        changed = bytearray(data)
        for _ in range(choice.randrange(1, 20)):
            changed[choice.randrange(len(changed))] = choice.randrange(256)
        path = tmp_path / f"fuzz{round_}.json"
        path.write_bytes(changed)
        with contextlib.suppress(InputError):
            open_run(path).steps()


def test_missing_paths_and_folders_without_runs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        open_run(tmp_path / "nothing.json")
    with pytest.raises(InputError, match="holds no run"):
        open_run(tmp_path)
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "round").symlink_to("about")
    (tmp_path / "about").symlink_to("round")
    for name in ("dangling", "dangling/run"):
        with pytest.raises(InputError, match=r"dangling: is a link to a place that does not exist\. Check where it leads$"):
            open_run(tmp_path / name)
    for name in ("round", "about/run"):
        with pytest.raises(InputError, match=r"is a link that leads round in circles\. Check where it leads$"):
            open_run(tmp_path / name)
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(InputError, match="not a trace"):
        open_run(tmp_path / "notes.txt")


def test_arguments_of_convolutions_alone(tmp_path: Path) -> None:
    events = []
    for number, name in enumerate(("aten::convolution", "aten::add", "aten::convolution")):
        args = {"External id": number + 1, "Input Dims": [[1, 2], []], "Concrete Inputs": ["", "[1, 1]"]}
        events.append({"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": 10 * number, "dur": 5, "args": args})
    del events[2]["args"]["Concrete Inputs"]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    ops = kineto.read(path).ops
    assert ops is not None
    assert ops["arguments"].cast(pl.String).to_list() == ['["", "[1, 1]"]', None, None]
