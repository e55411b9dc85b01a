"""Two sides compared: what the address answers is what ``steplens.comparison`` finds, with a picture's figures beside it."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import steplens
from steplens.advice import advise
from steplens.advice.compare import compare as compare_advice
from steplens.comparison import circumstances
from steplens.comparison.causes.sentences import state_cause
from steplens.comparison.comparison import Comparison, compare_runs
from steplens.comparison.item_times import SELF
from steplens.comparison.operator_steps import compare_operator
from steplens.server.comparison import aligned_steps
from steplens.server.comparison.call_trees import merge_call_paths
from steplens.trace.health_words import VALUE, translate_message

from ..writers.builder import BASE_NS, MAIN, PID, build, kernel, op
from .conftest import Client, Start

BEFORE, AFTER, OTHER_RANKS = range(3)
STEPS = 12
#: lengths of steps vary by so much, in turn, us
JITTER = (0, 4, -3, 2, -5, 1)


def event(name: str, start_us: float, duration_us: float, category: str = "cpu_op") -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 7, "tid": 7, "ts": start_us, "dur": duration_us, "args": {}}


def program(mm_us: float, inner: str, begin: float) -> list[dict[str, Any]]:
    """Steps of 2 ms and a call of aten::linear, which takes ``mm_us`` in aten::mm and 100 us in another operator."""
    events = []
    for step in range(STEPS):
        taken = mm_us + JITTER[step % len(JITTER)]
        events.append(event(f"ProfilerStep#{step}", begin, 2000 + taken, "user_annotation"))
        events.append(event("aten::linear", begin + 100, taken + 200))
        events.append(event("aten::mm", begin + 150, taken))
        events.append(event(inner, begin + 160 + taken, 100))
        events.append(event("Optimizer.step#SGD.step", begin + 1000 + taken, 500, "user_annotation"))
        begin += 2000 + taken
    return events


def write(path: Path, events: list[dict[str, Any]], **header: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"schemaVersion": 1, **header, "traceEvents": events}))


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("compared")
    for number, (before_us, after_us) in enumerate(((4000, 5000), (4060, 5080))):
        begin = 1000.0 + 900_000 * number
        write(
            folder / "before" / f"{number}.json", program(before_us, "aten::add_", begin), pid=100 + number, torch_version="2.4"
        )
        write(folder / "after" / f"{number}.json", program(after_us, "aten::add", begin), pid=100 + number, torch_version="2.13")
    for rank in range(2):
        header = {"distributedInfo": {"rank": rank, "world_size": 2}}
        write(folder / "ranks" / f"{rank}.json", program(4000, "aten::add_", 1000), pid=rank, **header)
    return [folder / name for name in ("before", "after", "ranks")]


@pytest.fixture(scope="module")
def client(serve: Start, paths: list[Path]) -> Client:
    return serve(paths)


@pytest.fixture(scope="module")
def comparison(paths: list[Path]) -> Comparison:
    return compare_runs(steplens.open(paths[BEFORE]), steplens.open(paths[AFTER]))


def test_the_answer_is_what_the_terminal_rests_on(client: Client, comparison: Comparison) -> None:
    found = client.get("/api/compare", before=BEFORE, after=AFTER)
    step = comparison.step
    assert step is not None and found["step"]["verdict"] == step.step_verdict == "slower"
    assert [found["step"][name] for name in ("ratio", "low", "high", "runs_needed")] == [
        step.ratio, step.low, step.high, step.runs_needed,
    ]  # fmt: skip
    assert [(part["part"], part["difference_ns"], part["error_ns"], part["share"]) for part in found["parts"]] == [
        (part.part, part.difference_ns, part.error_ns, part.share) for part in comparison.parts
    ]
    assert [row["name"] for row in found["operators"]] == comparison.operators["name"].to_list()
    for row, expected in zip(found["operators"], comparison.operators.to_dicts(), strict=True):
        difference = compare_operator(comparison.before, comparison.after, row["name"], SELF).difference
        assert difference is not None and row["error_ns"] == difference.error
        assert (row["before_ns"], row["after_ns"]) == (expected["before_self_ns"], expected["after_self_ns"])
    assert found["operators"][0]["name"] == "aten::mm" and found["operators"][0]["error_ns"] < 1e6
    assert [doubt["en"] for doubt in found["doubts"]] == list(comparison.doubts)
    assert "PyTorch 不同：之前为 2.4，之后为 2.13" in [doubt["zh"] for doubt in found["doubts"]]
    causes = found["causes"]
    assert comparison.causes is not None and causes["explained"] == comparison.causes.explained
    first = comparison.causes.causes[0]
    assert causes["causes"][0]["texts"]["en"] == state_cause(first) and "aten::mm" in state_cause(first)
    assert causes["causes"][0]["difference_ns"] == first.difference_ns == pytest.approx(1010e3, rel=0.01)
    together_ns = sum(cause["difference_ns"] for cause in causes["causes"]) + causes["others_ns"]
    assert together_ns == pytest.approx(comparison.causes.change_ns)
    # nothing ran on an accelerator
    assert (found["tasks"], found["device_time"], found["device_parts"], found["calls_of"]) == ([], [], [], ["host"])


def test_a_side_says_how_its_steps_spread(client: Client, comparison: Comparison) -> None:
    found = client.get("/api/compare", before=BEFORE, after=AFTER)
    for side, measured in ((found["before"], comparison.before), (found["after"], comparison.after)):
        assert (side["recordings"], side["steps"], side["step_ns"]) == (2, 2 * STEPS, measured.step_ns)
        assert side["medians_ns"] == [recording.steps["step_time_ns"].median() for recording in measured.recordings]
        spread = side["spread"]
        assert len(spread["edges_ns"]) == len(spread["counts"]) + 1
        assert sum(spread["counts"]) + spread["outside"] == 2 * STEPS
        assert spread["edges_ns"] == sorted(set(spread["edges_ns"]))


def test_the_calls_of_both_sides_are_one_tree(client: Client) -> None:
    found = client.get("/api/compare/calls", before=BEFORE, after=AFTER)
    nodes = found["nodes"]
    names = [node["name"] for node in nodes]
    # the first number behind a range is that of its step
    assert names[0] == "ProfilerStep" and nodes[0]["parent"] == -1
    assert nodes[0]["before_ns"] == pytest.approx(found["before_ns"]) == pytest.approx(6030e3, rel=0.001)
    assert nodes[0]["after_ns"] == pytest.approx(7040e3, rel=0.001)
    linear = names.index("aten::linear")
    assert nodes[linear]["parent"] == 0 and {nodes[names.index(name)]["parent"] for name in ("aten::mm", "aten::add")} == {linear}
    gone, new = nodes[names.index("aten::add_")], nodes[names.index("aten::add")]
    assert (gone["before_calls"], gone["after_ns"], gone["after_calls"]) == (1, 0, 0)
    assert (new["before_ns"], new["after_ns"], new["after_self_ns"]) == (0, pytest.approx(100e3), pytest.approx(100e3))
    for side in ("before", "after"):
        for place, node in enumerate(nodes):
            inside = sum(child[f"{side}_ns"] for child in nodes if child["parent"] == place)
            assert node[f"{side}_ns"] == pytest.approx(node[f"{side}_self_ns"] + inside)
    few = client.get("/api/compare/calls", before=BEFORE, after=AFTER, limit=2)
    assert [node["name"] for node in few["nodes"]] == ["ProfilerStep", "aten::linear"]
    assert few["left_out"] == len(nodes) - 2 and few["before_ns"] == found["before_ns"]
    # on the CPU what operators take themselves is device time
    of_operators = sum(node["after_self_ns"] for node in nodes if node["name"].startswith("aten"))
    device = client.get("/api/compare/calls", before=BEFORE, after=AFTER, of="device")
    assert device["after_ns"] == pytest.approx(of_operators)


def test_the_tree_of_a_side_with_itself_has_no_difference(comparison: Comparison) -> None:
    paths = comparison.before.figures.call_paths
    same = merge_call_paths(paths, paths, "host", 1000)
    assert same.nodes and all(node.before_ns == node.after_ns and node.before_calls == node.after_calls for node in same.nodes)


def test_what_became_of_the_advice(client: Client, paths: list[Path]) -> None:
    found = client.get("/api/compare/findings", before=BEFORE, after=AFTER)
    change = compare_advice(*(advise(steplens.open(paths[side])) for side in (BEFORE, AFTER)))
    for part in ("cured", "remaining", "new"):
        assert [one["id"] for one in found[part]] == [one.id for one in getattr(change, part)]
    assert found["promised_ns"] == change.promised_ns


def test_a_step_that_the_device_is_behind_has_its_own_calls_alone() -> None:
    """What the host does while the device still works is of the next step."""
    calls, tasks, marks = [], [], []
    for step in range(12):
        begin = 1000 * step
        calls += [op("aten::first", begin + 10, begin + 50, step=step), op("aten::add", begin + 500, begin + 980, step=step)]
        for number, (start, end) in enumerate(((600, 1100), (1100, 1590))):
            task = kernel("gemm", begin + start, begin + end, op=2 * step + number, step=step, core="GPU", stream=7)
            tasks.append({**task, "correlation": len(tasks) + 1, "launch_ns": calls[-2 + number]["start_ns"]})
        start_ns = BASE_NS + begin * 1000
        marks.append({"id": step, "start_ns": start_ns, "end_ns": start_ns + 1_000_000, "pid": PID, "tid": MAIN})
    trace = build(meta={"rank": 0, "whole_steps": True, "device_type": "CUDA"}, ops=calls, kernels=tasks, steps=marks)
    run = SimpleNamespace(traces=[trace], paths=[Path("trace")])
    side = SimpleNamespace(recordings=[], step_ns=None)
    opened: Any = SimpleNamespace(
        id=0, origins=[BASE_NS], run=run, answer=lambda key, make, size=None: side if key == ("side",) else make()
    )
    step = aligned_steps._find_step(opened)
    assert step is not None and (step.calls.names, step.length_ns) == (["aten::first", "aten::add"], 1_590_000)
    assert max(end for _, _, end in step.calls.phases) <= 1_000_000
    assert step.calls.device_end.tolist() == [1_100_000, 1_590_000]


def test_the_step_that_is_drawn_is_of_a_recording_like_the_side(serve: Start, tmp_path: Path) -> None:
    """The first recording was disturbed: its usual step is not what a step of its side takes."""
    for number, mm_us in enumerate((16_000, 4000, 4100)):
        begin = 1000.0 + 900_000 * number
        write(tmp_path / "before" / f"{number}.json", program(mm_us, "aten::add_", begin), pid=100 + number)
    write(tmp_path / "after" / "0.json", program(5000, "aten::add_", 1000), pid=100)
    client = serve([tmp_path / "before", tmp_path / "after"])
    steps = client.get("/api/compare/steps", before=0, after=1)
    shown_ns = client.get("/api/compare", before=0, after=1)["before"]["step_ns"]
    assert (steps["before"]["recording"], steps["before"]["recordings"], steps["before"]["trace"]) == ("2.json", 3, 2)
    assert abs(steps["before"]["length_ns"] - shown_ns) < abs(18e6 - shown_ns)
    assert (steps["after"]["recording"], steps["after"]["recordings"]) == ("0.json", 1)


def test_sides_on_other_ranks_are_refused(client: Client) -> None:
    refused = client.get("/api/compare", expect=409, before=BEFORE, after=OTHER_RANKS)
    assert "holds ranks 0, 1" in refused["problem"] and "--rank" in refused["remedy"]


def sentences_of(source: str) -> Iterator[str]:
    """What a module says, with ``VALUE`` for what is put into it."""
    tree = ast.parse(source)
    documented = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else VALUE for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented | inner:
            yield node.value


def test_every_doubt_is_told_in_chinese() -> None:
    source = Path(str(circumstances.__file__)).read_text(encoding="utf-8")
    doubts = {text.replace(VALUE, "2") for text in sentences_of(source) if len(text.split()) > 3}
    assert len(doubts) >= 9
    assert {doubt for doubt in doubts if not re.search("[\u4e00-\u9fff]", translate_message(doubt, "zh"))} == set()
