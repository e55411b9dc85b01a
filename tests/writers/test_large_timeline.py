"""trace_view.json of a hundred thousand events, made and recorded: strict JSON, arrows with both ends in order, nesting."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any, NoReturn

import pytest

from steplens.readers.kineto import kineto
from steplens.trace.trace import Trace
from steplens.writers.common.output import LEVEL1, Output, time_base_ns
from steplens.writers.trace_view import trace_view

from ..shared_data import shared
from .builder import synthetic


def no_constant(word: str) -> NoReturn:
    """NaN and Infinity are no JSON, though Python reads them."""
    raise AssertionError(f"{word} in the file")


def recorded() -> Trace:
    files = sorted(shared("kineto").glob("cuda_nccl_distributed*"))
    return kineto.read(files[0])


TRACES = {"made": (lambda: synthetic(ops=46_000, kernels=23_000, memory_events=20_000), 110_000), "CUDA": (recorded, 45_000)}


@pytest.fixture(scope="module", params=TRACES)
def events(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    make, least = TRACES[request.param]
    trace = make()
    path = tmp_path_factory.mktemp("large") / "trace_view.json"
    trace_view.write(Output(trace, time_base_ns(trace), LEVEL1), path)
    found = json.loads(path.read_bytes().decode("utf-8", "strict"), parse_constant=no_constant, parse_float=Decimal)
    assert isinstance(found, list) and len(found) > least
    return found


def test_every_event_is_of_the_format(events: list[dict[str, Any]]) -> None:
    named = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    for event in events:
        assert event["ph"] in "XMCsf" and isinstance(event["name"], str) and isinstance(event["pid"], int)
        if event["ph"] == "M":
            continue
        assert (event["pid"], event["tid"]) in named, event
        # numbers, not texts; µs after the base to the ns
        assert isinstance(event["ts"], Decimal) and event["ts"] >= 0 and event["ts"].as_tuple().exponent >= -3
        assert event["ph"] != "X" or event["dur"] >= 0


def test_every_arrow_has_a_start_and_a_finish_in_order(events: list[dict[str, Any]]) -> None:
    slices = {(event["pid"], event["tid"], event["ts"]) for event in events if event["ph"] == "X"}
    arrows: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for event in events:
        if event["ph"] in "sf":
            assert 0 < event["id"] < 1 << 53
            assert (event["pid"], event["tid"], event["ts"]) in slices, event
            arrows.setdefault((event["cat"], event["id"]), []).append(event)
    assert len(arrows) > 8_000
    for key, ends in arrows.items():
        assert [end["ph"] for end in ends] == ["s", "f"], key
        start, finish = ends
        assert start["ts"] <= finish["ts"] and finish["bp"] == "e", key


def test_calls_of_a_thread_nest(events: list[dict[str, Any]]) -> None:
    """No two calls of a thread of the host, and no two ranges of a lane of the overlap analysis, lie across each other."""
    processes = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    lanes: dict[tuple[int, int, str], list[tuple[Decimal, Decimal]]] = {}
    for event in events:
        if event["ph"] == "X" and processes[event["pid"]] in ("Python", "Overlap Analysis"):
            lane = (event["pid"], event["tid"], event.get("cat", ""))
            lanes.setdefault(lane, []).append((event["ts"], -(event["ts"] + event["dur"])))
    checked = 0
    for lane in lanes.values():
        open_: list[Decimal] = []
        for start, negative_end in sorted(lane):
            end = -negative_end
            while open_ and open_[-1] <= start:
                open_.pop()
            # ranges of the user may lie across calls in a recording; the recorded ones here do not
            assert not open_ or end <= open_[-1], (start, end, open_[-1])
            open_.append(end)
            checked += 1
    assert checked > 15_000
