"""The addresses of the timeline on real traces: lanes, tiles, details, links, arrows."""

from __future__ import annotations

import bisect
import itertools
import json
import struct
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import steplens
from steplens.analysis.device.breakdown import temporal_breakdown
from steplens.analysis.steps.basis import step_basis
from steplens.analysis.steps.choice import chosen_steps
from steplens.analysis.steps.phases import (
    BACKWARD,
    BETWEEN,
    DATA,
    DEVICE_WAIT,
    FORWARD,
    OPTIMIZER,
    phase_of_calls,
)  # fmt: skip
from steplens.run import Run

from .conftest import Client, Start, sample

CPU, CUDA, ASCEND = range(3)


@pytest.fixture(scope="module")
def paths(recorded: Path) -> list[Path]:
    return [recorded, sample("kineto", "cuda_ns_resolution_rank0.json.gz"), sample("ascend_pytorch", "db_level0")]


@pytest.fixture(scope="module")
def client(serve: Start, paths: list[Path]) -> Client:
    return serve(paths)


@pytest.fixture(scope="module")
def runs(paths: list[Path]) -> list[Run]:
    return [steplens.open(path) for path in paths]


#: source of lanes -> table
TABLES = {
    "operators": "ops",
    "kernels": "kernels",
    "python": "python",
    "runtime": "api",
    "steps": "steps",
    "gc": "gc",
    "marks": "marks",
}


@pytest.mark.parametrize("run", range(3))
def test_every_recorded_event_is_on_a_lane(client: Client, runs: list[Run], run: int) -> None:
    timeline = client.get(f"/api/runs/{run}/timeline")
    on_lanes: dict[str, int] = {}
    for lane in timeline["lanes"]:
        on_lanes[lane["source"]] = on_lanes.get(lane["source"], 0) + lane["events"]
    trace = runs[run].traces[0]
    for source, table in TABLES.items():
        rows = trace.required(table).select(pl.len()).collect().item()
        if table == "kernels" and run == CPU:
            # its tasks are the operator calls, which are there already
            assert rows > 0
            rows = 0
        assert on_lanes.get(source, 0) + timeline["unplaced"].get(source, 0) == rows, source
    assert timeline["events"] == sum(on_lanes.values())
    assert timeline["origin_ns"] == client.get(f"/api/runs/{run}")["origin_ns"]
    labels = [lane["label"] for lane in timeline["lanes"]]
    assert len(set(labels)) == len(labels)
    if run == ASCEND:
        # what took calls from the queue, and what went backward, stands in the tables; the names are numbers alone
        (dequeuing,) = set(trace.required("task_queue").collect()["dequeue_tid"])
        calls = trace.required("ops").select("tid", pl.col("name").cast(pl.String)).collect()
        backward = set(calls.filter(pl.col("name").str.contains("AccumulateGrad"))["tid"])
        (training,) = set(trace.required("steps").collect()["tid"])
        assert {f"thread {tid} (autograd)" for tid in backward} | {f"thread {training}"} == {
            lane["label"] for lane in timeline["lanes"] if lane["source"] == "operators"
        }
        assert f"dequeue, thread {dequeuing} (task queue)" in labels


@pytest.mark.parametrize("run", range(3))
def test_the_timeline_has_the_recorded_steps_and_the_session_its_traces(client: Client, runs: list[Run], run: int) -> None:
    state = client.get(f"/api/runs/{run}")
    assert [(one["trace"], one["rank"]) for one in state["traces"]] == [
        (number, trace.rank if trace.rank >= 0 else None) for number, trace in enumerate(runs[run].traces)
    ]
    timeline = client.get(f"/api/runs/{run}/timeline")
    assert state["traces"][0]["origin_ns"] == timeline["origin_ns"]
    origin = int(timeline["origin_ns"])
    recorded = runs[run].traces[0].required("steps").collect().sort("start_ns")
    assert [(one["step"], one["start_ns"] + origin, one["end_ns"] + origin) for one in timeline["steps"]] == list(
        recorded.select("id", "start_ns", "end_ns").iter_rows()
    )


@pytest.mark.parametrize("run", range(3))
def test_the_whole_timeline_in_one_pixel_and_event_by_event(client: Client, run: int) -> None:
    timeline = client.get(f"/api/runs/{run}/timeline")
    window = {"start_ns": timeline["start_ns"], "end_ns": timeline["end_ns"] + 1}
    for pixels in (1, 100, 20_000):
        tile = client.get(f"/api/runs/{run}/timeline/tile", **window, pixels=pixels, format="json")
        assert tile["events"] == timeline["events"] == sum(tile["columns"]["count"])
        per_lane: dict[int, int] = {}
        for row in tile["rows"]:
            counts = tile["columns"]["count"][row["first"] : row["first"] + row["count"]]
            per_lane[row["lane"]] = per_lane.get(row["lane"], 0) + sum(counts)
        assert per_lane == {lane["lane"]: lane["events"] for lane in timeline["lanes"]}


def test_both_forms_of_a_tile_say_the_same(client: Client) -> None:
    timeline = client.get(f"/api/runs/{CUDA}/timeline")
    address = f"/api/runs/{CUDA}/timeline/tile?start_ns={timeline['start_ns']}&end_ns={timeline['end_ns']}&pixels=700&lanes=4,9"
    answer = client.ask(address)
    assert answer.headers["content-type"] == "application/vnd.steplens.tile"
    (length,) = struct.unpack_from("<I", answer.body, 4)
    header = json.loads(answer.body[8 : 8 + length])
    as_json = client.get(f"{address}&format=json")
    assert {name: value for name, value in header.items() if name != "columns"} == {
        name: value for name, value in as_json.items() if name != "columns"
    }
    for column in header["columns"]:
        code = {"f8": "d", "u4": "I"}[column["type"]]
        values = struct.unpack_from(f"<{header['items']}{code}", answer.body, 8 + length + column["offset"])
        assert list(values) == as_json["columns"][column["name"]]


def zoomed(client: Client, run: int, lane: dict[str, Any]) -> list[dict[str, Any]]:
    """The first events of a lane, one by one."""
    found = client.get(
        f"/api/runs/{run}/timeline/tile",
        start_ns=lane["start_ns"],
        end_ns=lane["start_ns"] + 200_000,
        pixels=20_000,
        lanes=lane["lane"],
        format="json",
    )
    columns = found["columns"]
    return [{name: columns[name][place] for name in columns} for place in range(found["items"]) if columns["count"][place] == 1]


@pytest.mark.parametrize("run", range(3))
def test_the_details_of_an_event_are_its_row(client: Client, runs: list[Run], run: int) -> None:
    timeline = client.get(f"/api/runs/{run}/timeline")
    origin = int(timeline["origin_ns"])
    looked_at = 0
    for lane in timeline["lanes"]:
        if lane["source"] not in ("operators", "kernels", "python", "runtime"):
            continue
        table = (
            runs[run].traces[0].required(TABLES[lane["source"]]).with_columns(pl.col(pl.Categorical).cast(pl.String)).collect()
        )
        for item in zoomed(client, run, lane)[:5]:
            event = client.get(f"/api/runs/{run}/timeline/events/{int(item['event'])}")
            assert (event["start_ns"], event["end_ns"]) == (item["start_ns"], item["end_ns"])
            same = table.filter((pl.col("start_ns") == event["start_ns"] + origin) & (pl.col("name") == event["name"]))
            assert any(
                all(event["columns"][key] == row[key] for key in ("name",)) and event["columns"]["end_ns"] == str(row["end_ns"])
                for row in same.to_dicts()
            )
            assert event["lane"] == lane["lane"]
            looked_at += 1
    assert looked_at > 5


def test_links_lead_from_operators_to_tasks_and_back(client: Client, runs: list[Run]) -> None:
    kernels = runs[CUDA].traces[0].required("kernels").collect()
    ops = runs[CUDA].traces[0].required("ops").collect()
    operator = int(kernels.drop_nulls("op").filter(pl.col("op") >= 0)["op"][0])
    name = str(ops["name"].cast(pl.String)[operator])
    found = client.get(f"/api/runs/{CUDA}/timeline/occurrences", text=name, limit=1000)["events"]
    origin = int(client.get(f"/api/runs/{CUDA}")["origin_ns"])
    (event,) = [one for one in found if one["start_ns"] + origin == ops["start_ns"][operator] and one["lane"] != 0]
    details = client.get(f"/api/runs/{CUDA}/timeline/events/{event['event']}")
    links = {link["kind"]: link for link in details["links"]}
    assert links["task"]["count"] == kernels.filter(pl.col("op") == operator).height
    parent = int(ops["parent"][operator])
    assert links["parent"]["events"][0]["name"] == ops["name"].cast(pl.String)[parent]
    task = client.get(f"/api/runs/{CUDA}/timeline/events/{links['task']['events'][0]['event']}")
    back = {link["kind"]: link for link in task["links"]}
    assert [one["event"] for one in back["operator"]["events"]] == [event["event"]]
    assert back["runtime"]["count"] >= 1


def test_arrows_lead_from_the_launch_to_the_task(client: Client, runs: list[Run]) -> None:
    timeline = client.get(f"/api/runs/{CUDA}/timeline")
    kernels = runs[CUDA].traces[0].required("kernels").drop_nulls(["launch_ns", "op"]).filter(pl.col("op") >= 0).collect()
    window = {"start_ns": timeline["start_ns"], "end_ns": timeline["end_ns"]}
    found = client.get(f"/api/runs/{CUDA}/timeline/flows", **window, limit=2000)
    launches = [arrow for arrow in found["arrows"] if arrow["kind"] == "launch"]
    origin = int(timeline["origin_ns"])
    expected = set(kernels.select(pl.col("launch_ns") - origin, pl.col("start_ns") - origin).iter_rows())
    assert launches
    sources = {lane["lane"]: lane["source"] for lane in timeline["lanes"]}
    for arrow in launches:
        assert (arrow["start"]["time_ns"], arrow["end"]["time_ns"]) in expected
        assert (sources[arrow["start"]["lane"]], sources[arrow["end"]["lane"]]) == ("operators", "kernels")
        assert arrow["end"]["event"] is not None
    for arrow in found["arrows"][::40]:
        for end in (arrow["start"], arrow["end"]):
            if end["event"] is not None:
                event = client.get(f"/api/runs/{CUDA}/timeline/events/{end['event']}")
                assert (event["lane"], event["depth"]) == (end["lane"], end["depth"])
                assert event["start_ns"] <= end["time_ns"] <= event["end_ns"]
    assert max(arrow["start"]["depth"] for arrow in found["arrows"]) > 0, "launches come from nested calls"
    recorded = runs[CUDA].traces[0].required("flows").filter(pl.col("kind").cast(pl.String) == "fwdbwd").collect().height
    assert found["total"] >= len(launches) + min(recorded, 1)


@pytest.mark.parametrize("run", range(3))
def test_a_selection_of_everything_counts_everything(client: Client, runs: list[Run], run: int) -> None:
    timeline = client.get(f"/api/runs/{run}/timeline")
    lanes = [lane for lane in timeline["lanes"] if lane["source"] == "operators"]
    found = client.get(
        f"/api/runs/{run}/timeline/selection",
        start_ns=timeline["start_ns"],
        end_ns=timeline["end_ns"] + 1,
        lanes=",".join(str(lane["lane"]) for lane in lanes),
        limit=1000,
    )
    ops = runs[run].traces[0].required("ops").with_columns(pl.col("name").cast(pl.String)).collect()
    expected = {
        name: (count, total)
        for name, count, total in ops.group_by("name").agg(pl.len(), (pl.col("end_ns") - pl.col("start_ns")).sum()).iter_rows()
    }
    assert {row["name"]: (row["count"], row["total_ns"]) for row in found["names"]} == expected
    assert sum(lane["count"] for lane in found["lanes"]) == ops.height


def test_wrong_windows_lanes_and_events(client: Client) -> None:
    address = f"/api/runs/{CPU}/timeline"
    assert client.get(f"{address}/tile", expect=422, start_ns=10, end_ns=5, pixels=10)["problem"]
    assert client.get(f"{address}/tile", expect=404, start_ns=0, end_ns=5, pixels=10, lanes="999")["problem"]
    assert client.get(f"{address}/tile", expect=422, start_ns=0, end_ns=5, pixels=10, lanes="1,x")["problem"]
    assert client.get(f"{address}/tile", expect=422, start_ns=0, end_ns=5, pixels=0)["problem"]
    assert client.get(f"{address}/events/99999999", expect=404)["problem"]
    assert client.get(f"{address}/series/999", expect=404, start_ns=0, end_ns=5)["problem"]
    empty = client.get(f"{address}/tile", start_ns=2**61, end_ns=2**62, pixels=100, format="json")
    assert empty["items"] == 0


@pytest.mark.parametrize("run", range(3))
def test_the_lane_of_computing_covers_what_the_breakdown_says(client: Client, runs: list[Run], run: int) -> None:
    timeline = client.get(f"/api/runs/{run}/timeline")
    (lane,) = [one["lane"] for one in timeline["lanes"] if one["label"] == "device: computing"]
    window = {"start_ns": timeline["start_ns"], "end_ns": timeline["end_ns"] + 1, "lanes": lane}
    found = client.get(f"/api/runs/{run}/timeline/selection", **window)
    assert found["lanes"][0]["covered_ns"] == temporal_breakdown(runs[run].traces[0])["compute_ns"][0]


def calls_inside(trace: Any, start: int, end: int) -> dict[int, dict[str, Any]]:
    """The operator calls that overlap a window in Unix ns, by row: one loop over the table, each with its time inside."""
    inside = {}
    ops = trace.required("ops").with_columns(pl.col("name", "module").cast(pl.String)).collect()
    for row, call in enumerate(ops.iter_rows(named=True)):
        if call["start_ns"] < end and (call["end_ns"] > start or call["start_ns"] >= start):
            length = min(call["end_ns"], end) - max(call["start_ns"], start)
            inside[row] = {
                **call,
                "parent": call["parent"] if call["parent"] is not None else -1,
                "inside": length,
                "self": length,
            }
    for call in inside.values():
        if call["parent"] >= 0:
            inside[call["parent"]]["self"] -= call["inside"]
    return inside


@pytest.mark.parametrize("run", [CPU, CUDA])
def test_self_times_and_the_flame_of_a_window_agree_with_a_loop_over_the_calls(client: Client, runs: list[Run], run: int) -> None:
    timeline = client.get(f"/api/runs/{run}/timeline")
    origin = int(timeline["origin_ns"])
    # half of the calls begin inside, and the window cuts through some
    begins = runs[run].traces[0].required("ops").collect()["start_ns"].sort().to_list()
    start, end = (begins[len(begins) * share // 4] + 100 - origin for share in (1, 3))
    lanes = [lane["lane"] for lane in timeline["lanes"] if lane["source"] == "operators"]
    window = {"start_ns": start, "end_ns": end, "lanes": ",".join(map(str, lanes))}
    calls = calls_inside(runs[run].traces[0], start + origin, end + origin)
    assert len(calls) > 20
    expected: dict[str, list[int]] = {}
    paths: dict[tuple[str, ...], list[int]] = {}
    by_module: dict[str, int] = {}
    for call in calls.values():
        for row in (expected.setdefault(call["name"], [0, 0, 0]), paths.setdefault(path_of(call, calls), [0, 0, 0])):
            row[0] += 1
            row[1] += call["inside"]
            row[2] += call["self"]
        by_module[call["module"] or ""] = by_module.get(call["module"] or "", 0) + call["self"]
    found = client.get(f"/api/runs/{run}/timeline/selection", **window, limit=1000)
    assert {row["name"]: [row["count"], row["total_ns"], row["self_ns"]] for row in found["names"]} == expected
    tops = 1 if len(lanes) > 1 else 0
    flame = client.get(f"/api/runs/{run}/timeline/flame", **window, limit=5000)
    assert flame["left_out"] == 0
    boxes: dict[tuple[str, ...], list[int]] = {}
    for node in flame["nodes"]:
        name = box_path(node, flame["nodes"])[tops:]
        if name:
            row = boxes.setdefault(name, [0, 0, 0])
            row[:] = [row[0] + node["count"], row[1] + node["total_ns"], row[2] + node["self_ns"]]
    assert boxes == paths
    assert flame["total_ns"] == sum(call["self"] for call in calls.values())
    fewer = client.get(f"/api/runs/{run}/timeline/flame", **window, limit=7)
    assert len(fewer["nodes"]) == 7 and fewer["left_out"] == len(flame["nodes"]) - 7
    if "module" in flame["offered"]:
        of_modules: dict[str, int] = {}
        for node in (answer := client.get(f"/api/runs/{run}/timeline/flame", **window, by="module", limit=5000))["nodes"]:
            name = ".".join(box_path(node, answer["nodes"])[tops:-1])
            of_modules[name] = of_modules.get(name, 0) + node["self_ns"]
        assert {name: length for name, length in of_modules.items() if length} == {
            name: length for name, length in by_module.items() if length
        }


def path_of(call: dict[str, Any], calls: dict[int, dict[str, Any]]) -> tuple[str, ...]:
    return (*(path_of(calls[call["parent"]], calls) if call["parent"] >= 0 else ()), call["name"])


def box_path(node: dict[str, Any], nodes: list[dict[str, Any]]) -> tuple[str, ...]:
    return (*(box_path(nodes[node["parent"]], nodes) if node["parent"] >= 0 else ()), node["name"])


@pytest.mark.parametrize("run", range(3))
def test_the_first_view_is_a_complete_step_and_phases_are_those_of_the_calls(client: Client, runs: list[Run], run: int) -> None:
    trace = runs[run].traces[0]
    timeline = client.get(f"/api/runs/{run}/timeline")
    first = client.get(f"/api/runs/{run}/timeline/opening")
    chosen = chosen_steps(trace).steps
    if not chosen:
        assert first is None
        return
    (step,) = [step for step in timeline["steps"] if step["step"] == first["step"]]
    assert first["trace"] == 0 and first["step"] in (step_basis(trace).device_steps or chosen)
    assert first["start_ns"] == step["start_ns"] and first["end_ns"] >= step["end_ns"]
    phases = client.get(f"/api/runs/{run}/timeline/phases")
    calls = trace.required("ops").collect()
    words = {"data": DATA, "forward": FORWARD, "backward": BACKWARD, "optimizer": OPTIMIZER, "device_wait": DEVICE_WAIT}
    begins = [start + int(timeline["origin_ns"]) for start in phases["host"]["start_ns"]]
    assert begins == sorted(begins)
    for time_ns, phase, scope in zip(calls["start_ns"], phase_of_calls(trace), calls["scope"], strict=True):
        place = bisect.bisect_right(begins, time_ns) - 1
        found = phases["host"]["phase"][place] if place >= 0 else ""
        assert words.get(found, BETWEEN) == phase or scope == 1
    streams = {str(lane["lane"]): lane for lane in timeline["lanes"] if lane["source"] == "kernels"}
    assert set(phases["lanes"]) == set(streams)


def test_callers_are_the_calls_around_an_event(client: Client, runs: list[Run]) -> None:
    calls = runs[CUDA].traces[0].required("ops").with_columns(pl.col("name").cast(pl.String)).collect()
    deepest = client.get(f"/api/runs/{CUDA}/timeline/occurrences", text=calls.sort("depth")["name"][-1], limit=5)["events"][-1]
    shown = client.get(f"/api/runs/{CUDA}/timeline/events/{deepest['event']}")
    assert [caller["depth"] for caller in shown["callers"]] == list(range(shown["depth"]))
    for caller, inner in itertools.pairwise([*shown["callers"], shown]):
        assert caller["start_ns"] <= inner["start_ns"] and inner["end_ns"] <= caller["end_ns"]
    (parent,) = [link["events"][0] for link in shown["links"] if link["kind"] == "parent"]
    assert parent == shown["callers"][-1]


def test_the_arrows_of_one_event(client: Client) -> None:
    timeline = client.get(f"/api/runs/{CUDA}/timeline")
    window = {"start_ns": timeline["start_ns"], "end_ns": timeline["end_ns"]}
    arrow = client.get(f"/api/runs/{CUDA}/timeline/flows", **window, limit=1)["arrows"][0]
    found = client.get(f"/api/runs/{CUDA}/timeline/flows", **window, event=arrow["end"]["event"])
    assert arrow in found["arrows"]
    assert all(arrow["end"]["event"] in (one["start"]["event"], one["end"]["event"]) for one in found["arrows"])
    assert client.get(f"/api/runs/{CUDA}/timeline/flows", 404, **window, event=1 << 30)["problem"]
