"""Several traces in one array of events: nothing is lost, nothing of one is taken for another's."""

from __future__ import annotations

import io
import itertools
import json
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steplens.trace.trace import Trace
from steplens.writers.common.output import NothingToWriteError, Output
from steplens.writers.trace_view import trace_view
from steplens.writers.trace_view.trace_parts import LAYER_BITS, ProcessIds

from .builder import BASE_NS, build, op, synthetic, training_step
from .test_trace_view import check, events

#: what says where an event is, and nothing of what happened
PLACES = ("pid", "id")


def several(traces: dict[str, Trace], shift_ns: int = 0) -> list[dict[str, Any]]:
    handle = io.BytesIO()
    outputs = ((name, Output(trace, BASE_NS + place * shift_ns)) for place, (name, trace) in enumerate(traces.items()))
    trace_view.write_several(outputs, BASE_NS, handle)
    return list(json.loads(handle.getvalue(), parse_float=Decimal, parse_constant=pytest.fail))


def of_trace(found: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """The events of one trace, by what its processes are called."""
    own = {event["pid"] for event in found if event["name"] == "process_name" and event["args"]["name"].startswith(f"{name}: ")}
    return [event for event in found if event["pid"] in own and event["ph"] != "M"]


def without_places(found: list[dict[str, Any]]) -> Counter[str]:
    # the lane of garbage collections is called by their process
    rows = (
        {key: value for key, value in event.items() if key not in PLACES and (key, event.get("cat")) != ("tid", "GC")}
        for event in found
    )
    return Counter(json.dumps(row, default=str) for row in rows)


def counters(group: str) -> dict[str, Any]:
    return {"time_ns": BASE_NS + 5_000, "group": group, "name": "one", "value": 1.0, "device": 0}


def test_the_same_trace_twice_is_told_apart_in_every_respect() -> None:
    one = training_step()
    found = several({"Rank 0": one, "Rank 1": training_step()})
    check(found)
    alone = [event for event in events(one) if event["ph"] != "M"]
    for name in ("Rank 0", "Rank 1"):
        assert without_places(of_trace(found, name)) == without_places(alone)
    assert not {event["pid"] for event in of_trace(found, "Rank 0")} & {event["pid"] for event in of_trace(found, "Rank 1")}
    assert sum(event["ph"] != "M" for event in found) == 2 * len(alone)
    places = {
        event["pid"]: event["args"]["sort_index"]
        for event in found
        if event["ph"] == "M" and "sort_index" in event["name"] and "process" in event["name"]
    }
    first, second = ({places[event["pid"]] for event in of_trace(found, name)} for name in ("Rank 0", "Rank 1"))
    assert max(first) < min(second)
    labels = [event["args"]["labels"] for event in found if event["name"] == "process_labels"]
    assert "CPU, recorded as process 1000" in labels


def test_ids_that_are_free_stay_as_they_were_recorded() -> None:
    found = several({"Rank 0": build(ops=[op("a", 1, 2)]), "Rank 1": build(ops=[op("b", 1, 2, pid=77)])})
    assert {(event["name"], event["pid"]) for event in found if event.get("cat") == "cpu_op"} == {("a", 1000), ("b", 77)}
    assert not [event for event in found if "recorded as" in str(event["args"])]


def test_times_are_those_of_the_common_clock() -> None:
    shift = 3_000_000_000
    late = build(ops=[op("b", 1, 2, start_ns=BASE_NS + shift + 1_001, end_ns=BASE_NS + shift + 2_000)])
    found = several({"Rank 0": build(ops=[op("a", 1, 2)]), "Rank 1": late}, shift)
    assert [(event["name"], event["ts"]) for event in found if event.get("cat") == "cpu_op"] == [
        ("a", 1),
        ("b", Decimal("1.001")),
    ]


def test_counters_of_unknown_groups_are_apart_too() -> None:
    found = several({"Rank 0": build(counters=[counters("mine")]), "Rank 1": build(counters=[counters("mine")])})
    assert len({event["pid"] for event in found if event["ph"] == "C"}) == 2


def test_traces_without_events_are_left_out() -> None:
    found = several({"Rank 0": build(), "Rank 1": build(ops=[op("b", 1, 2)])})
    check(found)
    assert len(of_trace(found, "Rank 1")) == 1
    with pytest.raises(NothingToWriteError, match="no events"):
        several({"Rank 0": build(), "Rank 1": build()})


class Unread(Trace):
    """A trace that must not read a table of events into memory that outlives its turn."""

    def table(self, name: str) -> pl.DataFrame | None:
        assert name == "meta"
        return super().table(name)


def test_one_trace_is_in_memory_at_a_time() -> None:
    handle, asked = io.BytesIO(), []

    def outputs() -> Iterator[tuple[str, Output]]:
        for number in range(3):
            made = synthetic(ops=50, kernels=5, memory_events=0)
            asked.append(handle.tell())
            yield f"Rank {number}", Output(Unread(Path("part"), {name: made.required(name) for name in made}), BASE_NS)

    trace_view.write_several(outputs(), BASE_NS, handle)
    assert all(later > sooner for sooner, later in itertools.pairwise(asked))


pids = st.integers(min_value=0, max_value=40) | st.integers(min_value=1000, max_value=50_000)


@given(st.lists(st.lists(pids, min_size=1, max_size=5, unique=True), min_size=1, max_size=6))
def test_processes_and_their_layers_never_share_an_id(jobs: list[list[int]]) -> None:
    """Whatever was recorded: every process of every trace has an id that no other and no layer of another trace has."""
    ids, seen = ProcessIds(), []
    for job in jobs:
        trace, main, recorded = ids.take(build(ops=[op(str(pid), 1, 2, pid=pid) for pid in job]), job[0])
        given_ids = trace.required("ops").select("pid").collect()["pid"].to_list()
        assert [recorded.get(pid, pid) for pid in given_ids] == job
        assert given_ids[0] == main and len(set(given_ids)) == len(job)
        layers = {main << LAYER_BITS | sort << 5 | device for sort in range(1, 32) for device in (0, 1, 31)}
        seen.append((set(given_ids), layers))
    for place, (own, layers) in enumerate(seen):
        for other, other_layers in seen[:place]:
            assert not own & other and not own & other_layers and not layers & other and not layers & other_layers
