"""Every check of the health certificate on a hand-made run: silent when all is well, and exact when one thing is wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steplens.analysis.steps.times import step_times
from steplens.run import Run, Source
from steplens.trace import health
from steplens.trace.building import checks
from steplens.trace.building.checks.trend import does_shrink
from steplens.trace.health import CONCLUSIONS, ERROR, INFO, SEVERITIES, WARNING, HealthFinding, HealthLog, finding, unsafe
from steplens.trace.trace import Trace

from .gpu_run import STEP_NS, certificate, findings_of, raw_tables, trace_of

MS = 1_000_000
TIMES = ("start_ns", "end_ns")


def moved(frame: pl.DataFrame, by_ns: int, *columns: str) -> pl.DataFrame:
    return frame.with_columns(pl.col(*(columns or TIMES)) + by_ns)


def said(trace: Trace, *words: str) -> None:
    """One finding of the trace says all of these."""
    assert trace.health is not None
    assert any(all(word in message for word in words) for message in trace.health["message"].to_list())


def test_a_run_without_fault_has_no_findings() -> None:
    trace = trace_of(raw_tables())
    assert findings_of(trace) == []
    # the run is not simply empty: all of it is linked
    assert trace.kernels["op"].null_count() == 0
    assert trace.kernels["step"].n_unique() == trace.steps.height == 4


def test_a_cpu_run_has_no_findings() -> None:
    tables = raw_tables()
    assert certificate({name: tables[name] for name in ("ops", "meta")}) == []


@pytest.mark.parametrize("lost", [1, 17, 119])
def test_kernels_lost_in_the_middle(lost: int) -> None:
    tables = raw_tables()
    tables["kernels"] = pl.concat([tables["kernels"][: 119 - lost], tables["kernels"][-1:]])
    found = certificate(tables)
    assert ("launches_without_kernels", WARNING, lost) in found
    # where a step loses more than half of its tasks, it is named as well
    assert {check for check, _, _ in found} <= {"launches_without_kernels", "incomplete_first_step", "incomplete_last_step"}


def test_all_kernels_lost() -> None:
    tables = raw_tables()
    del tables["kernels"]
    trace = trace_of(tables)
    assert findings_of(trace) == [("launches_without_kernels", ERROR, 120)]
    said(trace, "120 calls launch device work and no device task was recorded: the trace shows the host alone")
    # the CPU's calls must not pass for the work of the device that is missing
    assert trace.kernels is None


def test_recording_ended_before_the_device_was_done() -> None:
    tables = raw_tables()
    tables["kernels"] = tables["kernels"][:-7]
    trace = trace_of(tables)
    assert findings_of(trace) == [("unfinished_launches", WARNING, 7)]
    said(trace, "the last 7 calls that launch device work", "had not run when the recording ended, or was not recorded")


def test_launches_of_which_none_has_a_task_are_lost_and_not_unfinished() -> None:
    """Only copies have tasks: the recording went on behind all launches, so it did not end before their work ran."""
    tables = raw_tables()
    copy = tables["api"][0].with_columns(name=pl.lit("cudaMemcpyAsync"), correlation=pl.lit(77_777, dtype=pl.Int64))
    tables["api"] = pl.concat([tables["api"], copy])
    tables["kernels"] = tables["kernels"][-1:].with_columns(correlation=pl.lit(77_777, dtype=pl.Int64))
    found = certificate(tables)
    assert ("launches_without_kernels", WARNING, 120) in found
    assert "unfinished_launches" not in {check for check, _, _ in found}


def test_an_empty_copy_is_no_loss() -> None:
    tables = raw_tables()
    copy = tables["api"][0].with_columns(name=pl.lit("cudaMemsetAsync"), correlation=pl.lit(77_777, dtype=pl.Int64))
    tables["api"] = pl.concat([tables["api"], copy])
    trace = trace_of(tables)
    assert findings_of(trace) == [("copies_without_tasks", INFO, 1)]
    said(trace, "1 of 1 calls that copy or set memory have no task; CUDA records none for an empty copy")


def test_launches_lost() -> None:
    tables = raw_tables()
    lost = pl.col("correlation").is_in([40, 41, 90])
    tables["api"] = tables["api"].filter(~lost)
    assert certificate(tables) == [("kernels_without_operator", WARNING, 3), ("kernels_without_launches", WARNING, 3)]


def test_tasks_from_before_the_recording_are_told_apart() -> None:
    tables = raw_tables()
    tables["api"] = tables["api"].filter(pl.col("correlation") > 2)
    trace = trace_of(tables)
    # that they have no operator follows from it
    assert findings_of(trace) == [("tasks_from_before", INFO, 2)]
    # the same data is left where those two calls were not recorded, so both are said
    said(trace, "2 device tasks at the beginning have no call", "it came before the recording began, or was not recorded")


@pytest.mark.parametrize("by_ns", [-5 * MS, -400_000, -50_000])
def test_the_clock_of_the_device_is_early(by_ns: int) -> None:
    tables = raw_tables()
    tables["kernels"] = moved(tables["kernels"], by_ns)
    ((one, severity, count),) = certificate(tables)
    early = int((trace_of(tables).kernels["wait_ns"] < -1_001).sum())
    assert (one, count) == ("tasks_before_launch", early)
    # a few tasks that are a little early say how well the clocks agree, and nothing worse
    assert severity == (INFO if by_ns == -50_000 and early < 12 else ERROR if 2 * early > 120 else WARNING)
    if severity == INFO:
        said(trace_of(tables), "by up to", "the clocks of host and device agree to about that")
    else:
        said(trace_of(tables), "the clock of the device is early by at least that, or they are linked to the wrong calls")


def test_tasks_that_are_linked_to_wrong_calls_are_early_on_a_right_clock() -> None:
    tables = raw_tables()
    tables["kernels"] = tables["kernels"].with_columns(correlation=121 - pl.col("correlation"))
    trace = trace_of(tables)
    assert {check for check, _, _ in findings_of(trace)} >= {"tasks_before_launch", "device_clock_late"}
    messages = trace.health["message"].to_list()
    assert sum("or they are linked to the wrong calls" in message for message in messages) == 2


def test_the_clock_of_the_device_is_late() -> None:
    tables = raw_tables()
    tables["kernels"] = moved(tables["kernels"], 5 * MS)
    trace = trace_of(tables)
    assert findings_of(trace) == [("device_clock_late", ERROR, 4)]
    said(trace, "4 calls that wait for the device return up to", "late by at least that")


def test_the_clock_of_the_device_is_late_without_a_call_that_waits() -> None:
    tables = raw_tables(steps=20)
    tables["api"] = tables["api"].filter(pl.col("name") == "cudaLaunchKernel")
    assert certificate(tables) == []
    tables["kernels"] = moved(tables["kernels"], 5 * MS)
    trace = trace_of(tables)
    (found,) = findings_of(trace)
    assert found[:2] == ("device_clock_late", WARNING)
    # another process that has the device until each launch is served gives the same data
    said(trace, "late by nearly that, or something that was not recorded kept it busy")


def test_jitter_of_the_clocks_is_no_fault() -> None:
    tables = raw_tables()
    tables["kernels"] = (
        tables["kernels"].with_columns(start_ns=pl.col("start_ns") - pl.col("wait_ns")) if False else tables["kernels"]
    )
    wait = trace_of(tables).kernels["wait_ns"].min()
    tables["kernels"] = moved(tables["kernels"], -(wait + 900))
    assert certificate(tables) == []


def test_arrows_that_lead_back() -> None:
    tables = raw_tables()
    tables["flows"] = tables["flows"].with_columns(
        to_ns=pl.when(pl.col("flow_id") <= 5).then(pl.col("from_ns") - 2_000).otherwise("to_ns")
    )
    assert certificate(tables) == [("backward_flows", WARNING, 5)]


def test_halves_of_arrows() -> None:
    starts = pl.DataFrame({"kind": ["ac2g", "ac2g", "fwdbwd", "fwdbwd"], "flow_id": [1, 2, 1, 2]})
    ends = pl.DataFrame({"kind": ["ac2g", "ac2g", "fwdbwd"], "flow_id": [1, 3, 1]})
    # of 2 and 3 only 3 is a task's; the other is a call that launched nothing
    (found,) = checks.unmatched_flows(starts, ends, pl.Series([1, 3]))
    assert (found.check, found.count) == ("unmatched_flows", 2)
    (found,) = checks.unmatched_flows(starts, ends, None)
    assert found.count == 3
    assert list(checks.unmatched_flows(starts[:1], ends[:1], None)) == []
    (found,) = checks.unmatched_flows(starts[:0], ends, None)
    assert found.count == 3


@pytest.mark.parametrize("table", ["kernels", "api"])
def test_negative_durations(table: str) -> None:
    tables = raw_tables()
    wrong = pl.int_range(pl.len()) == 3
    tables[table] = tables[table].with_columns(end_ns=pl.when(wrong).then(pl.col("start_ns") - 5).otherwise("end_ns"))
    assert certificate(tables) == [("negative_duration", ERROR, 1)]


def test_a_negative_call_counts_as_empty() -> None:
    tables = raw_tables()
    wrong = pl.int_range(pl.len()) == 3
    tables["ops"] = tables["ops"].with_columns(end_ns=pl.when(wrong).then(pl.col("start_ns") - 5).otherwise("end_ns"))
    trace = trace_of(tables)
    assert findings_of(trace) == [("negative_duration", ERROR, 1)]
    said(trace, "calls end before they start; their length counts as zero")


def test_overlapping_calls_are_counted_and_measured() -> None:
    tables = raw_tables()
    call = tables["ops"].row(2, named=True)
    crossing = {**call, "start_ns": call["start_ns"] + 9_000, "end_ns": call["end_ns"] + 1_000, "external_id": None}
    tables["ops"] = pl.concat([tables["ops"], pl.DataFrame([crossing], schema=tables["ops"].schema)])
    trace = trace_of(tables)
    assert findings_of(trace) == [("overlapping_calls", WARNING, 1)]
    # nothing says why: asynchronous ranges do this, and so do wrong times
    assert trace.health["message"][0].endswith("end behind it, by up to 1 us")


def test_calls_that_overlap_by_no_more_than_their_clock_can_show() -> None:
    tables = raw_tables()
    call = tables["ops"].row(2, named=True)
    crossing = {**call, "start_ns": call["start_ns"] + 9_000, "end_ns": call["end_ns"] + 1_000, "external_id": None}
    tables["ops"] = pl.concat([tables["ops"], pl.DataFrame([crossing], schema=tables["ops"].schema)])
    tables["ops"] = tables["ops"].with_columns((pl.col(*TIMES) // 1000) * 1000)
    (message,) = trace_of({name: tables[name] for name in ("ops", "meta")}).health.filter(check="overlapping_calls")["message"]
    assert message.endswith("by up to 1 us (all times are multiples of 1 us)")


@pytest.mark.parametrize(("tasks", "severity"), [(1, INFO), (60, WARNING)])
def test_overlapping_tasks(tasks: int, severity: str) -> None:
    tables = raw_tables()
    later = pl.col("end_ns").shift().over("stream") - 1_500
    # tasks of one step follow each other without a gap where the host is ahead
    moved = (pl.col("correlation") % 30 > 1) & (pl.col("correlation") <= 1 + tasks * 2) & (pl.col("correlation") % 2 == 1)
    tables["kernels"] = tables["kernels"].with_columns(start_ns=pl.when(moved).then(later).otherwise("start_ns"))
    found = {check: (level, count) for check, level, count in certificate(tables)}
    assert found["overlapping_tasks"][0] == severity
    assert found["overlapping_tasks"][1] == tables["kernels"].select(moved.sum()).item()
    # a graph's tasks share the correlation of its launch, and may overlap
    tables["kernels"] = tables["kernels"].with_columns(correlation=pl.lit(1, dtype=pl.Int64))
    assert "overlapping_tasks" not in {check for check, _, _ in certificate(tables)}
    # and so may those of different streams
    tables["kernels"] = tables["kernels"].with_columns(correlation=pl.int_range(1, pl.len() + 1), stream=pl.int_range(pl.len()))
    assert "overlapping_tasks" not in {check for check, _, _ in certificate(tables)}


@pytest.mark.parametrize("table", ["ops", "api", "kernels"])
def test_duplicated_events(table: str) -> None:
    tables = raw_tables()
    tables[table] = pl.concat([tables[table], tables[table][40:47]])
    assert ("duplicated_events", ERROR, 7) in certificate(tables)


def test_equal_times_of_a_coarse_clock_are_no_copies() -> None:
    tables = raw_tables()
    coarse = {
        name: frame.with_columns((pl.col(*TIMES) // MS) * MS) for name, frame in tables.items() if "start_ns" in frame.columns
    }
    found = certificate({"ops": coarse["ops"], "meta": tables["meta"]})
    assert found == [("timestamp_precision", INFO, 1)]
    # the same without numbers: two calls of one name may honestly have the same times
    found = certificate({"ops": coarse["ops"].drop("external_id"), "meta": tables["meta"]})
    assert found == [("timestamp_precision", INFO, 1)]


@pytest.mark.parametrize(("step", "expected"), [(1000, True), (250, True), (20, False), (1, False)])
def test_precision_of_timestamps(step: int, expected: bool) -> None:
    tables = raw_tables()
    for name in ("ops", "api", "kernels"):
        tables[name] = tables[name].with_columns((pl.col(*TIMES) // step) * step)
    found = certificate(tables)
    assert (("timestamp_precision", INFO, 1) in found) is expected
    assert len(found) == expected


def test_precision_of_one_side_is_told_apart() -> None:
    tables = raw_tables()
    tables["kernels"] = tables["kernels"].with_columns((pl.col(*TIMES) // 1000 + 1) * 1000)
    trace = trace_of(tables)
    assert "of the device are multiples of 1 us" in trace.health["message"][0]
    assert "host" not in trace.health["message"][0]


def test_times_far_away() -> None:
    tables = raw_tables()
    tables["api"] = tables["api"].with_columns(
        start_ns=pl.when(pl.col("correlation") == 5).then(0).otherwise("start_ns"),
    )
    assert ("out_of_range", ERROR, 1) in certificate(tables)


@pytest.mark.parametrize(("gone", "missing"), [([11], 1), ([11, 12], 2)])
def test_missing_steps(gone: list[int], missing: int) -> None:
    tables = raw_tables()
    tables["ops"] = tables["ops"].filter(~pl.col("name").is_in([f"ProfilerStep#{number}" for number in gone]))
    assert certificate(tables) == [("missing_steps", WARNING, missing)]


def test_repeated_and_overlapping_steps() -> None:
    tables = raw_tables()
    steps = pl.col("name").str.starts_with("ProfilerStep#12")
    tables["ops"] = tables["ops"].with_columns(end_ns=pl.when(steps).then(pl.col("end_ns") + STEP_NS // 2).otherwise("end_ns"))
    found = {check: count for check, _, count in certificate(tables)}
    assert found["overlapping_steps"] == 1


def steps_of(*lengths_ms: float) -> pl.DataFrame:
    start, rows = 1_790_000_000_000_000_000, []
    for number, length in enumerate(lengths_ms):
        rows.append({"id": number, "start_ns": start, "end_ns": start + int(length * MS), "pid": 1, "tid": 1})
        start += int(length * MS)
    return pl.DataFrame(rows)


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ((30, 10, 11, 10), ["slow_first_step"]),
        ((30, 28, 10, 11, 10), ["slow_first_step"]),
        ((30, 10, 10, 27, 10, 10), []),  # every third one evaluates
        ((15, 10, 11, 10), []),
        ((0.9, 0.3, 0.3), []),  # milliseconds are needed to tell warm-up from noise
        ((10, 10, 11, 0.5), ["incomplete_last_step"]),
        ((10, 0.04), ["incomplete_last_step"]),
        ((10, 300, 0.5), ["incomplete_last_step"]),
        ((10, 300, 8), []),  # the one in the middle evaluates
        ((10,), []),
        ((10, 30, 10, 10), []),
    ],
)
def test_first_and_last_step(lengths: tuple[float, ...], expected: list[str]) -> None:
    log = HealthLog()
    tables = {"steps": steps_of(*lengths)}
    checks.check_tables(tables, log)
    assert [one.check for one in log.findings] == expected
    words = {
        "slow_first_step": "it may hold warm-up, or work that is done once",
        "incomplete_last_step": "recording ended inside it, or it does less",
    }
    assert all(one.message.endswith(words[one.check]) for one in log.findings)
    complete = step_times(Trace(Path("x"), tables))["complete"].to_list()
    assert complete == [True] * (len(lengths) - 1) + ["incomplete_last_step" not in expected]


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        # of a real window
        ((33.27, 27.87, 30.44, 25.7, 23.59), True),
        ((90, 33, 30, 28, 26, 24), True),  # the first one is a finding of its own, and the trend goes on behind it
        ((30, 29, 28, 27, 26), False),  # too little
        ((30, 20, 30, 20, 30, 20), False),
        ((20, 22, 24, 26, 28, 30), False),
        ((30, 25, 22, 20), False),  # too few
        ((*range(40, 20, -1), *[20] * 200), False),  # they have settled
        (tuple(range(300, 100, -1)), True),
    ],
)
def test_steps_that_get_faster(lengths: tuple[float, ...], expected: bool) -> None:
    log = HealthLog()
    checks.check_tables({"steps": steps_of(*lengths)}, log)
    trends = [item for item in log.findings if item.check == "steps_get_faster"]
    assert [item.unsafe for item in trends] == (["averages over steps"] if expected else [])
    assert all("record later ones" in item.message for item in trends)


@given(st.lists(st.floats(0.93, 1.07), min_size=5, max_size=60))
def test_steps_of_about_one_length_do_not_get_faster(lengths: list[float]) -> None:
    assert not does_shrink([int(length * MS) for length in lengths])


def test_steps_in_no_order_rarely_look_as_if_they_got_faster() -> None:
    """Steps whose lengths differ by a third, in a random order."""
    random = np.random.default_rng(1)
    for count, most in ((5, 0.05), (7, 0.05), (12, 0.01), (50, 0.01)):
        alarms = sum(does_shrink(list(map(int, random.lognormal(17, 0.33, count)))) for _ in range(400))
        assert alarms <= 1.5 * most * 400


def test_a_recorder_that_stopped_between_steps_knows_that_a_short_step_is_one() -> None:
    tables = {"steps": steps_of(10, 10, 11, 0.5)}
    for value, expected in (("true", []), ("false", ["incomplete_last_step"])):
        tables["meta"] = pl.DataFrame({"key": ["whole_steps"], "value": [value]})
        log = HealthLog()
        checks.check_tables(tables, log)
        assert [one.check for one in log.findings] == expected
        assert step_times(Trace(Path("x"), tables))["complete"].all() == (not expected)


@pytest.mark.parametrize("more", [1, 50])
def test_a_step_with_many_more_device_tasks_does_not_make_the_others_parts(more: int) -> None:
    """Of three steps one may evaluate: a mean of two others would lie far above both of the rest."""
    steps = steps_of(10, 10 * more, 10)
    tasks = [10, 10 * more, 10]
    kernels = pl.DataFrame(
        [
            {"core": "CUDA", "kind": "compute", "launch_ns": None, "step": step, "start_ns": 0, "end_ns": 1}
            for step, count in enumerate(tasks)
            for _ in range(count)
        ],
        schema_overrides={"launch_ns": pl.Int64},
    )
    assert list(checks.parts_of_steps({"steps": steps, "kernels": kernels})) == []
    assert [part.step for part in checks.parts_of_steps({"steps": steps, "kernels": kernels[6:]})] == [0]


@pytest.mark.parametrize(("step", "check"), [(10, "incomplete_first_step"), (13, "incomplete_last_step")])
def test_a_step_that_lacks_its_device_work(step: int, check: str) -> None:
    tables = raw_tables()
    trace = trace_of(tables)
    lost = trace.kernels.filter(pl.col("step") == step)["correlation"].head(20).implode()
    for name in ("kernels", "api"):
        tables[name] = tables[name].filter(~pl.col("correlation").is_in(lost))
    assert (check, WARNING, 1) in certificate(tables)
    happened = "began" if step == 10 else "ended"
    said(trace_of(tables), f"recording {happened} inside it, or it does less")
    steps = step_times(trace_of(tables))
    assert steps.filter(~pl.col("complete"))["step"].to_list() == [step]
    assert step_times(trace)["complete"].all()


def test_a_step_that_the_recorder_calls_whole_was_not_cut() -> None:
    """Where the recorder says that it began and ended between steps, that it did so inside one would be false."""
    tasks = pl.DataFrame(
        [
            {"core": "CUDA", "kind": "compute", "launch_ns": None, "step": step, "start_ns": 0, "end_ns": 1}
            for step, count in enumerate((10, 10, 10, 2))
            for _ in range(count)
        ],
        schema_overrides={"launch_ns": pl.Int64},
    )
    meta = pl.DataFrame({"key": ["whole_steps"], "value": ["true"]})
    (part,) = checks.parts_of_steps({"steps": steps_of(10, 10, 10, 10), "kernels": tasks, "meta": meta})
    assert part.message.endswith("the others 10: its other tasks were not recorded, or it has none")


def test_a_rank_that_is_not_said() -> None:
    tables = raw_tables()
    tables["meta"] = tables["meta"].filter(pl.col("key") != "rank")
    assert certificate(tables) == [("rank_unknown", WARNING, 1)]


def run_of(*traces: Trace) -> Run:
    return Run(Path("run"), [(Source(Path(f"trace{number}")), trace) for number, trace in enumerate(traces)], [])


def with_collectives(rank: int, by_ns: int = 0, meta: dict[str, str] | None = None) -> Trace:
    tables = raw_tables(rank=rank, seed=rank)
    for name in ("ops", "api", "kernels"):
        tables[name] = moved(tables[name], by_ns)
    tables["flows"] = moved(tables["flows"], by_ns, "from_ns", "to_ns")
    starts = [1_790_000_000_123_456_789 + step * STEP_NS + number * MS for step in range(4) for number in range(4)]
    rows = {
        "name": ["ncclAllReduce"] * 16,
        "kind": ["collective"] * 16,
        "step": [10 + number // 4 for number in range(16)],
        # they begin when the rank is ready and end together, within what networks do
        "start_ns": [start + by_ns + rank * 50_000 for start in starts],
        "end_ns": [start + by_ns + 400_000 + (number * 7919 + rank * 13) % 9000 for number, start in enumerate(starts)],
    }
    tables["communication"] = pl.DataFrame(rows)
    extra = meta or {}
    tables["meta"] = (
        pl.concat([tables["meta"], pl.DataFrame({"key": list(extra), "value": list(extra.values())})])
        if extra
        else tables["meta"]
    )
    return trace_of(tables)


def test_ranks_that_agree() -> None:
    assert run_of(with_collectives(0), with_collectives(1)).health().rows() == []


@pytest.mark.parametrize("by_ns", [-5 * MS, 5 * MS])
def test_a_rank_with_another_clock(by_ns: int) -> None:
    found = run_of(with_collectives(0), with_collectives(1, by_ns)).health()
    # the collectives of 0.4 ms leave as much open, of steps of 10 ms
    assert found.select("check", "severity", "count").rows() == [("rank_clock_offset", WARNING, 1)]
    assert f"the clock of rank 1 is 5 ms {'ahead of' if by_ns > 0 else 'behind'} that of rank 0, within " in found["message"][0]
    assert found["message"][0].endswith("corrected for it, and shorter waits are not told apart")


@pytest.mark.parametrize("name", ["ncclDevKernel_Broadcast_RING_LL", "nccl:reduce", "hcom_gather__1", "hcom_scatter__2"])
def test_collectives_that_need_not_end_together_say_nothing_of_clocks(name: str) -> None:
    """The root of a broadcast is done when it has sent, however late the others come for it."""
    traces = []
    for rank in (0, 1):
        tables = {one: trace.table(one) for trace in [with_collectives(rank)] for one in trace}
        late = pl.col("end_ns") + rank * 5 * MS
        tables["communication"] = tables["communication"].with_columns(name=pl.lit(name), end_ns=late)
        traces.append(Trace(Path("x"), tables))
    assert "rank_clock_offset" not in run_of(*traces).health()["check"].to_list()


def test_many_ranks_whose_steps_begin_at_other_times_are_one_line() -> None:
    traces = []
    for rank in range(12):
        tables = {
            name: moved(frame, 7 * rank * MS) if "start_ns" in frame.columns else frame
            for name, frame in raw_tables(rank=rank).items()
        }
        tables["flows"] = moved(tables["flows"], 7 * rank * MS, "from_ns", "to_ns")
        traces.append(trace_of(tables))
    found = run_of(*traces).health().filter(check="rank_clock_offset")
    assert found.select("severity", "count").rows() == [(WARNING, 11)]
    assert found["message"][0].startswith(
        "steps begin at other times on 11 ranks than on rank 0, 77 ms later on rank 11, and last "
    )


def test_a_rank_with_another_clock_without_collectives() -> None:
    other = {name: moved(frame, 7 * MS) if "start_ns" in frame.columns else frame for name, frame in raw_tables(rank=1).items()}
    other["flows"] = moved(other["flows"], 7 * MS, "from_ns", "to_ns")
    found = run_of(trace_of(raw_tables(rank=0)), trace_of(other)).health()
    assert found["check"].to_list() == ["rank_clock_offset"]
    assert found["message"][0].endswith("the clocks differ, or the ranks do not take their steps together")


def test_a_rank_that_is_missing() -> None:
    (one,) = run_of(with_collectives(1)).health().rows(named=True)
    assert (one["check"], one["severity"], one["count"]) == ("missing_ranks", INFO, 1)
    five = {"world_size": "5"}
    traces = [with_collectives(rank, meta=five) for rank in (0, 1, 2, 4)]
    (one,) = run_of(*traces).health().filter(pl.col("check") == "missing_ranks").rows(named=True)
    assert (one["severity"], one["count"]) == (WARNING, 1)
    assert one["message"].endswith("4 of 5 ranks are here, 1 missing: 3")


def test_two_traces_of_one_rank_at_one_time() -> None:
    found = run_of(with_collectives(0), with_collectives(0), with_collectives(1)).health()
    assert found["check"].to_list() == ["duplicated_ranks"]


def test_ranks_with_different_steps() -> None:
    tables = raw_tables(rank=1, steps=3)
    found = run_of(trace_of(raw_tables(rank=0)), trace_of(tables)).health()
    assert ("different_steps", WARNING, 1) in found.select("check", "severity", "count").rows()


def test_captures_of_different_versions_and_options() -> None:
    first = with_collectives(
        0, meta={"torch_version": '"2.6.0"', "config": '{"experimental_config": {"_profiler_level": "Level0"}}'}
    )
    second = with_collectives(
        1, meta={"torch_version": '"2.7.1"', "config": '{"experimental_config": {"_profiler_level": "Level1"}}'}
    )
    (one,) = run_of(first, second).health().rows(named=True)
    assert (one["check"], one["severity"], one["count"]) == ("mixed_captures", WARNING, 2)
    assert 'torch_version ("2.6.0" and "2.7.1")' in one["message"]
    assert '_profiler_level ("Level0" and "Level1")' in one["message"]


def test_what_is_unsafe_can_be_asked() -> None:
    tables = raw_tables()
    tables["kernels"] = moved(tables["kernels"], -5 * MS)
    run = run_of(trace_of(tables))
    assert run.unsafe(health.KERNEL_WAITS)["check"].to_list() == ["tasks_before_launch"]
    assert run.unsafe(health.OPERATOR_TIMES).is_empty()
    # findings that are only worth knowing do not count unless asked for
    assert run.unsafe(health.RANK_COMPARISON).is_empty()
    assert run.unsafe(health.RANK_COMPARISON, least=INFO)["check"].to_list() == ["missing_ranks"]
    with pytest.raises(ValueError, match="no conclusion"):
        run.unsafe("the weather")
    everything = health.frame_of([finding("truncated_file", ERROR, 1, "it breaks off", health.EVERYTHING)])
    assert unsafe(everything, health.GARBAGE_COLLECTION).height == 1


def test_words_of_a_finding() -> None:
    one = finding("a", WARNING, 1, "b", health.MEMORY, health.STEP_TIMES)
    assert one.conclusions() == [health.MEMORY, health.STEP_TIMES]
    assert HealthFinding("a", WARNING, 1, "b").conclusions() == []
    log = HealthLog()
    log.add("a", WARNING, 1, "b", [health.MEMORY, health.STEP_TIMES])
    log.add("a", WARNING, 1, "b", health.MEMORY)
    assert log.findings == [one, finding("a", WARNING, 1, "b", health.MEMORY)]
    assert all("," not in word for word in CONCLUSIONS)
    assert set(SEVERITIES) == {INFO, WARNING, ERROR}
