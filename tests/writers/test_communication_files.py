"""communication.json and communication_matrix.json of a hand-built run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from steplens.trace.trace import Trace
from steplens.writers.common.output import NothingToWriteError, Output
from steplens.writers.tables import communication

from .ascend import TIMES, TRANSPORTS, ascend_run, link, times
from .builder import BASE_NS, build


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Any]:
    def write(write: Callable[[Output, Path], None], trace: Trace) -> Any:
        path = tmp_path / "out.json"
        write(Output(trace, BASE_NS, "Level1"), path)
        text = path.read_bytes().decode()
        assert "\n" not in text
        return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))

    return write


def test_times_and_bandwidth_of_every_step(written: Callable[..., Any]) -> None:
    found = written(communication.write_times, ascend_run())
    assert list(found) == ["step0", "step1"]
    assert list(found["step0"]["p2p"]) == ["hcom_receive__123_0_1@12", "Total Op Info"]
    assert found["step0"]["collective"] == {} and found["step1"]["p2p"] == {}
    assert list(found["step1"]["collective"]) == [
        "hcom_allReduce__123_0_1@11",
        "hcom_allReduce__123_1_1@11",
        "Total Op Info",
    ]
    operation = found["step1"]["collective"]["hcom_allReduce__123_0_1@11"]
    assert operation["Communication Time Info"] == {
        "Start Timestamp(us)": 140.0,
        "Elapse Time(ms)": 2.0,
        "Transit Time(ms)": 0.5,
        "Wait Time(ms)": 0.25,
        "Synchronization Time(ms)": 0.25,
        "Idle Time(ms)": 0.1,
        "Wait Time Ratio": 0.3333,
        "Synchronization Time Ratio": 0.3333,
    }
    unused = {
        "Transit Size(MB)": 0,
        "Transit Time(ms)": 0,
        "Bandwidth(GB/s)": 0,
        "Large Packet Ratio": 0,
        "Size Distribution": {},
    }
    used = {
        "Transit Size(MB)": 8,
        "Transit Time(ms)": 0.5,
        "Bandwidth(GB/s)": 16,
        "Large Packet Ratio": 1,
        "Size Distribution": {"8.0": [1, 0.5]},
    }
    assert operation["Communication Bandwidth Info"] == {**dict.fromkeys(TRANSPORTS, unused), "HCCS": used}
    assert list(operation["Communication Bandwidth Info"]) == list(TRANSPORTS)


def test_totals_have_bandwidth_and_no_start(written: Callable[..., Any]) -> None:
    total = written(communication.write_times, ascend_run())["step1"]["collective"]["Total Op Info"]
    assert total["Communication Time Info"] == {
        "Elapse Time(ms)": 3.0,
        "Transit Time(ms)": 1.0,
        "Wait Time(ms)": 0.25,
        "Synchronization Time(ms)": 0.25,
        "Idle Time(ms)": 0.2,
        "Wait Time Ratio": 0.2,
        "Synchronization Time Ratio": 0.2,
    }
    bandwidth = total["Communication Bandwidth Info"]
    assert bandwidth["HCCS"] == {
        "Transit Time(ms)": 1.0,
        "Transit Size(MB)": 16.0,
        "Bandwidth(GB/s)": 16.0,
        "Size Distribution": {"8.0": [2, 1.0]},
    }
    assert bandwidth["SIO"] == {"Transit Time(ms)": 0, "Transit Size(MB)": 0, "Bandwidth(GB/s)": 0, "Size Distribution": {}}


def test_a_run_without_steps_has_one_entry(written: Callable[..., Any]) -> None:
    trace = build(communication_times=TIMES)
    found = written(communication.write_times, trace)
    assert list(found) == ["step"]
    assert len(found["step"]["collective"]) == 3 and len(found["step"]["p2p"]) == 2


def test_an_operation_outside_every_step_is_left_out(written: Callable[..., Any]) -> None:
    rows = [times("inside", "g", 50, 1, 1, 0, 0, 0), times("outside", "g", 500, 1, 1, 0, 0, 0)]
    found = written(communication.write_times, ascend_run(communication_times=rows))
    assert list(found["step0"]["collective"]) == ["inside@g", "Total Op Info"]
    assert found["step1"] == {"p2p": {}, "collective": {}}


def test_an_unknown_transport_comes_behind_the_known_ones(written: Callable[..., Any]) -> None:
    row = {"name": "op", "group": "g", "kind": "collective", "transport": "UB", "size_mb": 2.0, "transit_ms": 0.5}
    trace = build(communication_times=[times("op", "g", 1, 1, 1, 0, 0, 0)], communication_bandwidth=[row])
    found = written(communication.write_times, trace)["step"]["collective"]
    for key in ("op@g", "Total Op Info"):
        info = found[key]["Communication Bandwidth Info"]
        assert list(info) == [*TRANSPORTS, "UB"]
        assert (info["UB"]["Transit Size(MB)"], info["UB"]["Transit Time(ms)"]) == (2.0, 0.5)
    assert found["Total Op Info"]["Communication Bandwidth Info"]["UB"]["Bandwidth(GB/s)"] == 4.0


def test_values_that_are_no_numbers_do_not_reach_the_file(written: Callable[..., Any]) -> None:
    trace = build(
        communication_times=[times("op", "g", 1, float("nan"), float("inf"), 0, 0, 0)],
        communication_matrix=[link("hcom_send__0", "g", (0, 1), float("nan"), 1, float("-inf"))],
    )
    assert written(communication.write_times, trace)["step"]["collective"]["op@g"]
    assert written(communication.write_matrix, trace)["step"]["collective"]["send-top1@g"]["0-1"]["Transit Size(MB)"] == 0


def test_matrix(written: Callable[..., Any]) -> None:
    found = written(communication.write_matrix, ascend_run())
    assert list(found) == ["step0", "step1"]
    assert list(found["step1"]["collective"]) == [
        "allreduce-top1@11",
        "allreduce-middle@11",
        "allreduce-bottom1@11",
        "allreduce-total@11",
        "allreduce-bottom2@11",
    ]
    assert found["step1"]["p2p"] == {}
    assert found["step1"]["collective"]["allreduce-top1@11"] == {
        "0-1": {
            "Transport Type": "HCCS",
            "Transit Size(MB)": 4.0,
            "Transit Time(ms)": 0.25,
            "Bandwidth(GB/s)": 16.0,
            "Op Name": "hcom_allReduce__123_1_1",
        },
        "1-0": {
            "Transport Type": "HCCS",
            "Transit Size(MB)": 4.0,
            "Transit Time(ms)": 0.25,
            "Bandwidth(GB/s)": 16.0,
            "Op Name": "hcom_allReduce__123_0_1",
        },
    }
    assert found["step1"]["collective"]["allreduce-total@11"]["0-1"] == {
        "Transport Type": "HCCS",
        "Transit Size(MB)": 8.0,
        "Transit Time(ms)": 0.75,
        "Bandwidth(GB/s)": 10.6667,
    }
    assert list(found["step0"]["p2p"]) == ["receive-top1@12", "receive-middle@12", "receive-bottom1@12", "receive-total@12"]


def test_nothing_measured_gives_no_file(written: Callable[..., Any]) -> None:
    unmeasured = ascend_run(without=["communication_times", "communication_bandwidth", "communication_matrix"])
    for write in (communication.write_times, communication.write_matrix):
        with pytest.raises(NothingToWriteError, match="no measurements"):
            written(write, unmeasured)
