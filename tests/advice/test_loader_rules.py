"""The rules about data loaders: on hand-built batches, and on real ones where the cure shows what the finding was worth."""

from __future__ import annotations

import json
import math
import os
import statistics
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import steplens
from steplens.advice import Finding, advise
from steplens.advice.facts import Facts
from steplens.advice.finding import Saving
from steplens.advice.rules.loaders import (
    FETCH_IN_LOOP,
    FETCH_OF_WORKERS,
    loader_slow_collate,
    loader_slow_pin,
    loader_slow_start,
    loader_slow_transfer,
    loader_too_many_workers,
    loader_too_slow,
    loader_without_pinning,
    loader_without_workers,
    waiting_ns,
)
from steplens.advice.rules.tools.loading import TAKING_OVER_NS
from steplens.advice.texts import LANGUAGES
from steplens.advice.words import Words
from steplens.readers.steplens_run import loaders as reader
from steplens.trace.building.build import conform_to_schema
from steplens.trace.health import HealthLog
from steplens.trace.schema import SCHEMA, SCOPE_USER
from steplens.trace.trace import Trace

from ..readers.loader_files import MS, START, Row, write
from ..warm_python import run_warm
from ..writers.builder import MAIN, PID, table

JOB = Path(__file__).resolve().parents[1] / "collect" / "loader_job.py"
SOURCE = Path(steplens.__file__).resolve().parents[1]
STEPS = range(1, 12)


def trace_of(folder: Path, got: Any = None, *, processors: int = 8, workers: int = 2, kernels: Any = (), **options: Any) -> Trace:
    """Steps of 10 ms, each of which begins with taking a batch of the hand-built loader."""
    write(folder, workers=workers, batches=12, **options)
    tables = reader.tables(folder, HealthLog())
    if got is not None:
        tasks = tables["pipeline_tasks"]
        tables["pipeline_tasks"] = pl.DataFrame([got(row) for row in tasks.iter_rows(named=True)], schema=tasks.schema)
    tables = {name: conform_to_schema(name, frame) for name, frame in tables.items()}
    used = pl.col("batch").cast(pl.Int64)
    tables["pipeline_tasks"] = tables["pipeline_tasks"].with_columns(step=pl.when(used.is_in(list(STEPS))).then(used))
    begins = [START + 11 * MS + step * 10 * MS for step in STEPS]
    own = {"pid": PID, "tid": MAIN}
    steps = [{"id": step, "start_ns": at, "end_ns": at + 10 * MS, **own} for step, at in zip(STEPS, begins, strict=True)]
    tables["steps"] = table("steps", steps)
    kind = FETCH_OF_WORKERS if workers else FETCH_IN_LOOP
    asked = {row["batch"]: row for row in tables["pipeline_tasks"].iter_rows(named=True)}
    ops = []
    for step, at in zip(STEPS, begins, strict=True):
        call = {**own, "step": step, "scope": SCOPE_USER, "parent": None, "depth": 0, "self_ns": 0}
        ops.append({**call, "id": len(ops), "name": f"ProfilerStep#{step}", "start_ns": at, "end_ns": at + 10 * MS})
        row = asked[step]
        times = {"start_ns": row["next_start_ns"], "end_ns": row["next_end_ns"]}
        ops.append({**call, "id": len(ops), "name": f"{kind}.__next__", **times, "parent": len(ops) - 1, "depth": 1})
    tables["ops"] = table("ops", ops)
    if kernels:
        tables["kernels"] = table("kernels", [{"id": number, **kernel} for number, kernel in enumerate(kernels)])
    tables["meta"] = table("meta", [{"key": "processor", "value": json.dumps({"count": processors})}])
    return Trace(folder, tables)


def only(found: Any) -> Finding:
    (finding,) = found
    assert isinstance(finding, Finding)
    return finding


def evidence(finding: Finding) -> dict[str, float]:
    return {one.what: one.value for one in finding.evidence}


def waits(milliseconds: int) -> Any:
    """What a loop sees that waits so long for each batch; now and then a batch is there, as in any real run."""

    def got(row: dict[str, Any]) -> dict[str, Any]:
        waited = 0 if row["batch"] % 8 == 7 else milliseconds * MS
        begin, received = row["next_start_ns"], waited + MS // 4
        receive = {"receive_start_ns": begin + waited, "receive_end_ns": begin + received}
        return {**row, **receive, "next_end_ns": begin + received, "wait_ns": waited, "ready": 0 if waited else 1}

    return got


def test_workers_that_are_too_slow_are_named_with_their_slowest_stage(tmp_path: Path) -> None:
    facts = Facts(trace_of(tmp_path, waits(4)))
    finding = only(loader_too_slow.judge(facts))
    said = evidence(finding)
    assert said["loader_fetch"] == 4 * MS
    # six batches of 9 ms each, and the five pauses of 11 ms between them
    assert said["loader_busy"] == pytest.approx(100 * 54 / (54 + 55))
    # 9 ms to make a batch, 6 ms of each step without waiting: two workers are enough, so nothing is said of more
    assert "loader_enough_workers" not in said
    slower = Facts(trace_of(tmp_path, waits(8)))
    said = evidence(only(loader_too_slow.judge(slower)))
    assert said["loader_enough_workers"] >= 3
    assert said["loader_processors"] == 8
    assert "loader_lacks_processors" not in said


def test_workers_without_processors_for_more_of_them(tmp_path: Path) -> None:
    """Two workers take 19 ms of processor time for a batch of every step of 10 ms: two processors have no room for a third."""
    busy = {"change": lambda row: {**row, "cpu_ns": (row["batch"] // 2 + 1) * 19 * MS}}
    finding = only(loader_too_slow.judge(Facts(trace_of(tmp_path, waits(8), processors=2, **busy))))
    said = evidence(finding)
    assert said["loader_cpu"] == pytest.approx(95)
    assert said["loader_lacks_processors"] > 2
    assert finding.saving == Saving(0, 0, said["waiting_for_workers"])
    text = Words("en").of(finding)
    assert text.low == "with more workers alone, for which 2 processors have no room"
    assert text.high == "if a cheaper transform or a faster source has every batch ready in time"
    assert "2 个处理器已无余量" in Words("zh").of(finding).low


@pytest.mark.parametrize("sampled", [None, 50.0, 250.0])
def test_more_workers_save_what_the_processors_have_room_for(tmp_path: Path, sampled: float | None) -> None:
    """Of 10 ms a step waits some 7; three processors have 30 ms, of which a batch takes 19 and the training the rest."""
    busy = {"change": lambda row: {**row, "cpu_ns": (row["batch"] // 2 + 1) * 19 * MS}}
    trace = trace_of(tmp_path, waits(8), processors=3, **busy)
    if sampled is not None:
        rows = [{"group": "CPU Usage", "name": "CPU Usage", "unit": "%", "time_ns": START + 60 * MS, "value": sampled}]
        tables = {name: frame for name in trace if (frame := trace.table(name)) is not None}
        trace = Trace(tmp_path, {**tables, "counters": table("counters", rows)})
    finding = only(loader_too_slow.judge(Facts(trace)))
    waiting = evidence(finding)["waiting_for_workers"]
    rest = 10 * MS - waiting
    # of a training on a CPU each further processor does 0.7, at most 1; or what samples of the process say
    usual, most = (rest * 2.4, rest * 3) if sampled is None else [sampled / 100 * 10 * MS] * 2
    likely, least = (max(10 * MS - max(rest, (19 * MS + training) / 3), 0) for training in (usual, most))
    assert finding.values["case"] == "few_processors" and likely < waiting
    assert finding.saving == Saving(pytest.approx(least / 2), pytest.approx(likely), waiting)
    if likely:
        assert Words("en").of(finding).likely == "with more workers alone, as far as 3 processors have room for them"


def test_batches_that_are_ready_are_no_fault_of_the_workers(tmp_path: Path) -> None:
    def receives(row: dict[str, Any]) -> dict[str, Any]:
        length = MS // 4 if row["batch"] % 8 == 7 else 3 * MS
        return {**row, "wait_ns": 0, "ready": 4, "next_end_ns": row["next_start_ns"] + length}

    assert list(loader_too_slow.judge(Facts(trace_of(tmp_path, receives)))) == []


def test_collating_that_the_loop_waits_for(tmp_path: Path) -> None:
    def collates(row: Row) -> Row:
        return {
            **row,
            "collate_ns": row["start_ns"] + 2 * MS,
            "transform_ns": 0,
            "transforms": 0,
            "end_ns": row["end_ns"] + 9 * MS,
        }

    facts = Facts(trace_of(tmp_path, waits(5), change=collates))
    finding = only(loader_slow_collate.judge(facts))
    assert evidence(finding)["loader_collate"] == 16 * MS
    assert finding.saving is not None
    # without collating 2 ms per batch and 2 workers: nothing is left to wait for
    assert finding.saving.likely_ns == pytest.approx(waiting_ns(facts))
    assert list(loader_slow_collate.judge(Facts(trace_of(tmp_path, waits(5))))) == []


def test_no_more_of_the_waits_is_promised_than_collating_takes(tmp_path: Path) -> None:
    """8 ms of waiting a step, of which 4 ms of collating in two workers are the cause of 2."""

    def collates(row: Row) -> Row:
        times = {"collate_ns": row["start_ns"] + MS, "end_ns": row["start_ns"] + 5 * MS}
        return {**row, **times, "transform_ns": 0, "transforms": 0}

    facts = Facts(trace_of(tmp_path, waits(8), change=collates))
    finding = only(loader_slow_collate.judge(facts))
    assert finding.saving is not None
    assert finding.saving.likely_ns == pytest.approx(2 * MS)
    assert waiting_ns(facts) > 6 * MS


def test_a_validation_now_and_then_is_not_the_loop(tmp_path: Path) -> None:
    """A loader that gives batches in two of eleven steps: how it is set up changes nothing for the training."""
    rules = (
        loader_slow_collate, loader_slow_pin, loader_slow_start, loader_slow_transfer, loader_too_many_workers, loader_too_slow,
    )  # fmt: skip
    for workers, own in ((2, rules), (0, (loader_without_workers,))):
        folder = tmp_path / str(workers)
        folder.mkdir()
        trace = trace_of(folder, waits(9), workers=workers)
        assert any(list(rule.judge(Facts(trace))) for rule in own)
        tables = {name: frame for name in SCHEMA if (frame := trace.table(name)) is not None}
        later = pl.col("step") > 2
        tables["pipeline_tasks"] = tables["pipeline_tasks"].filter(~later.fill_null(False))
        tables["ops"] = tables["ops"].filter(~(later & (pl.col("parent") >= 0)).fill_null(False))
        now_and_then = Trace(trace.source, tables)
        assert [list(rule.judge(Facts(now_and_then))) for rule in own] == [[]] * len(own)


def test_too_many_workers(tmp_path: Path) -> None:
    def rests(row: Row) -> Row:
        return {**row, "collate_ns": row["start_ns"] + MS, "end_ns": row["start_ns"] + 2 * MS, "transform_ns": 0, "transforms": 0}

    finding = only(loader_too_many_workers.judge(Facts(trace_of(tmp_path, waits(0), change=rests))))
    assert finding.values["workers"] == 1
    assert evidence(finding)["loader_busy"] == pytest.approx(100 * 12 / (12 + 90))
    assert list(loader_too_many_workers.judge(Facts(trace_of(tmp_path, waits(0))))) == []

    def works(row: Row) -> Row:
        return {**row, "end_ns": row["start_ns"] + 19 * MS, "cpu_ns": (row["batch"] // 2 + 1) * 19 * MS}

    crowded = Facts(trace_of(tmp_path, waits(4), processors=2, change=works))
    finding = only(loader_too_many_workers.judge(crowded))
    assert (finding.values["workers"], finding.level) == (1, "medium")
    assert list(loader_too_many_workers.judge(Facts(trace_of(tmp_path, waits(4), processors=8, change=works)))) == []


def test_a_thread_that_pins_too_slowly(tmp_path: Path) -> None:
    def pins(row: dict[str, Any]) -> dict[str, Any]:
        changed = waits(5)(row)
        return {**changed, "pin_end_ns": changed["receive_end_ns"] + 9 * MS}

    finding = only(loader_slow_pin.judge(Facts(trace_of(tmp_path, pins))))
    assert evidence(finding)["loader_pin"] == 9 * MS
    assert list(loader_slow_pin.judge(Facts(trace_of(tmp_path, waits(5))))) == []


def receives(milliseconds: int) -> Any:
    """What a loop sees that finds every batch ready, and takes so long for receiving it."""

    def got(row: dict[str, Any]) -> dict[str, Any]:
        begin = row["next_start_ns"]
        end = begin + milliseconds * MS
        return {**row, "receive_start_ns": begin, "receive_end_ns": end, "next_end_ns": end, "wait_ns": 0, "ready": 2}

    return got


def test_batches_that_are_ready_and_take_long_to_receive(tmp_path: Path) -> None:
    """9 ms to make a batch: who receives it in 4 ms has fewer tensors to put into it; who makes it in 1 ms needs no workers."""
    finding = only(loader_slow_transfer.judge(Facts(trace_of(tmp_path, receives(4)))))
    assert evidence(finding)["receiving"] == 4 * MS
    assert evidence(finding)["loader_made"] == 9 * MS
    assert (finding.saving, finding.values["case"]) == (Saving(0, 2 * MS, 4 * MS), "")
    assert list(loader_too_slow.judge(Facts(trace_of(tmp_path, receives(4))))) == []

    def quick(row: Row) -> Row:
        return {
            **row,
            "collate_ns": row["start_ns"] + MS // 2,
            "end_ns": row["start_ns"] + MS,
            "transform_ns": 0,
            "transforms": 0,
        }

    finding = only(loader_slow_transfer.judge(Facts(trace_of(tmp_path, receives(4), change=quick))))
    assert (finding.saving, finding.values["case"]) == (Saving(0, 3 * MS, 4 * MS), "quick_batches")
    for language in LANGUAGES:
        assert "num_workers=0" in Words(language).of(finding).remedy and "num_workers=2" in Words(language).of(finding).patch
    assert list(loader_slow_transfer.judge(Facts(trace_of(tmp_path, receives(0))))) == []
    # a loop that waits is held up by what it waits for
    assert list(loader_slow_transfer.judge(Facts(trace_of(tmp_path, waits(4))))) == []
    # a thread that pins receives beside the loop
    pinned = trace_of(tmp_path, lambda row: {**receives(4)(row), "pin_end_ns": row["next_start_ns"] + 4 * MS + 1})
    assert list(loader_slow_transfer.judge(Facts(pinned))) == []


def test_epochs_that_start_workers_again(tmp_path: Path) -> None:
    trace = trace_of(tmp_path)
    rows = [(0, 0, START, START + 5 * MS, START + 12 * MS), (0, 1, START + 40 * MS, START + 60 * MS, START + 80 * MS)]
    tables = {name: trace.table(name) for name in trace}
    epochs = pl.DataFrame(rows, schema=trace.required("pipeline_epochs").collect_schema(), orient="row")
    again = Trace(tmp_path, {**{name: frame for name, frame in tables.items() if frame is not None}, "pipeline_epochs": epochs})
    finding = only(loader_slow_start.judge(Facts(again)))
    assert finding.saving is not None
    # of 40 ms to the first batch, 9.75 ms remain to make and transfer it
    assert finding.saving.likely_ns == pytest.approx((40 - 9.75) * MS / len(STEPS))
    assert list(loader_slow_start.judge(Facts(trace))) == []


def test_copies_from_memory_that_is_not_pinned(tmp_path: Path) -> None:
    def copy(step: int, name: str) -> dict[str, Any]:
        at = START + 11 * MS + step * 10 * MS + 4 * MS
        return {"name": name, "kind": "copy", "core": "CUDA", "device": 0, "stream": 7, "start_ns": at, "end_ns": at + MS,
                "bytes": 1 << 20, "step": step}  # fmt: skip

    pageable = [copy(step, "Memcpy HtoD (Pageable -> Device)") for step in STEPS]
    finding = only(loader_without_pinning.judge(Facts(trace_of(tmp_path, kernels=pageable))))
    assert finding.saving is not None
    assert finding.saving.likely_ns == MS / 2
    assert evidence(finding)["pageable_bytes"] == 1 << 20
    pinned = [copy(step, "Memcpy HtoD (Pinned -> Device)") for step in STEPS]
    assert list(loader_without_pinning.judge(Facts(trace_of(tmp_path, kernels=pinned)))) == []


# --- real ones

#: so often a job is run, at most, where the machine holds up the workers of the cured loader
ATTEMPTS = 3


#: the job, which also tells when each epoch began
TIMED = """
import json, sys, time
sys.path.insert(0, sys.argv[1])
import loader_job

begun = []

class Timed(loader_job.DataLoader):
    def __iter__(self):
        begun.append(time.time_ns())
        return super().__iter__()

loader_job.DataLoader = Timed
print(json.dumps({**loader_job.main(json.loads(sys.argv[2])), "begun": begun}))
"""


def run(folder: Path, job: dict[str, Any]) -> tuple[list[int], list[int], list[Finding]]:
    """How long (ns) the loop waited for each batch, and from each ``iter()`` to its first batch, by its own clock; findings."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    text = json.dumps({"out": str(folder), "steps": True, **job})
    done = run_warm("-c", TIMED, JOB.parent, text, env=environment)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    waits, begun = told["waits"], told["begun"]
    assert len(waits) == job["batches"] * len(begun)
    starts = [waits[at * job["batches"]][1] - begin for at, begin in enumerate(begun)]
    return [had - asked for asked, had in waits], starts, list(advise(steplens.open(folder)).findings)


@pytest.mark.parametrize(("processors", "short", "workers"), [(8, False, 2), (2, False, 2), (1, True, 1)])
def test_processor_time_of_a_loop_that_loads(tmp_path: Path, processors: int, short: bool, workers: int) -> None:
    """9 ms of processor time from batch to batch, in steps of 10 ms: one processor has no time for two things at once."""
    trace = trace_of(tmp_path, lambda row: {**row, "cpu_ns": 9 * MS}, workers=0, processors=processors)
    finding = only(loader_without_workers.judge(Facts(trace)))
    figures = evidence(finding)
    assert (finding.values["case"], finding.values["workers"]) == ("few_processors" if short else "", workers)
    assert figures["loader_processors"] == processors
    assert figures.get("loader_processor_time") == (9 * MS if short else None)
    assert finding.saving is not None
    loading = figures["loading_in_the_loop"]
    assert finding.saving.likely_ns == pytest.approx(1 * MS if short else loading - TAKING_OVER_NS)


@pytest.mark.parametrize(("cpu_ms", "case"), [(3, "workers_wait"), (9, "few_processors"), (None, "workers_may_wait")])
def test_more_workers_than_processors_are_told_why(tmp_path: Path, cpu_ms: float | None, case: str) -> None:
    """Loading takes 9 of 10 ms: workers that wait for storage can be more than the processors, and words say what bears them."""
    cpu_ns = None if cpu_ms is None else int(cpu_ms * MS)
    trace = trace_of(tmp_path, lambda row: {**waits(9)(row), "cpu_ns": cpu_ns}, workers=0, processors=2)
    finding = only(loader_without_workers.judge(Facts(trace)))
    text = Words("en").of(finding)
    assert finding.values["case"] == case
    figures = evidence(finding)
    if case == "workers_wait":
        assert int(finding.values["workers"]) > 2
        assert figures["loader_processor_time"] == 3 * MS
        assert f"need 3 ms of processor time a step, and there are {finding.values['have']} ms" in text.cause
    elif case == "workers_may_wait":
        assert "was not recorded" in text.cause and "loader_processor_estimate" in figures
    for language in LANGUAGES:
        told = Words(language).of(finding)
        assert f"num_workers={finding.values['workers']}" in told.cause + told.remedy and "{" not in told.cause + told.remedy
        assert told.patch == text.patch and "num_workers=" in text.patch


def test_the_function_that_collates_and_how_many_workers_are_enough(tmp_path: Path) -> None:
    def collates(row: Row) -> Row:
        return {**row, "collate_ns": row["start_ns"] + MS, "transform_ns": 0, "transforms": 0}

    trace = trace_of(tmp_path, waits(9), workers=0, change=collates)
    tables = {name: frame for name in SCHEMA if (frame := trace.table(name)) is not None}
    loaders = tables["pipeline_loaders"]
    tables["pipeline_loaders"] = loaders.with_columns(collate=pl.lit("main.<locals>.join", loaders.schema["collate"]))
    finding = only(loader_without_workers.judge(Facts(Trace(tmp_path, tables))))
    places = {item.what: item.places for item in finding.evidence}
    assert places["loader_collate"][1:] == ("main.<locals>.join",) and "no_collate_line" in places
    words = Words("en").of(finding).cause
    loading, beside = (float(finding.values[name]) for name in ("loading", "beside"))
    assert finding.values["workers"] == math.ceil(loading / beside) + 1
    assert f"{finding.values['loading']} ms of loading (recording taken off) / {finding.values['beside']} ms" in words
    # a function of the same name elsewhere is another one
    (task, *_) = tables["pipeline_tasks"].drop_nulls("collate_ns").sort("collate_ns").iter_rows(named=True)
    calls = [("train.py(7): join", task["collate_ns"] + 1, 10), ("posixpath.py(71): join", task["end_ns"] + 1, 10**9)]
    tables["python"] = table(
        "python",
        [
            {"id": number, "name": name, "start_ns": at, "end_ns": at + length, "pid": task["pid"], "tid": MAIN}
            for number, (name, at, length) in enumerate(calls)
        ],
    )
    finding = only(loader_without_workers.judge(Facts(Trace(tmp_path, tables))))
    places = {item.what: item.places for item in finding.evidence}
    assert places["loader_collate"][1:] == ("train.py(7): join",) and "no_collate_line" not in places


@pytest.mark.slow
@pytest.mark.parametrize("tensors", [1, 60])
def test_what_receiving_takes_is_what_the_loop_measured(tmp_path: Path, tensors: int) -> None:
    """One tensor to a batch is made in little time, so no workers are a cure; of sixty, each made slowly, fewer are."""
    pytest.importorskip("torch")
    job = {"workers": 1, "kind": "many", "tensors": tensors, "batches": 30}
    job |= {"fetch": 0.0, "step": 0.01} if tensors == 1 else {"fetch": 0.0002, "step": 0.15}
    waited, _, findings = run(tmp_path / "slow", job)
    (found,) = [finding for finding in findings if finding.rule == "loader_slow_transfer"]
    figures = evidence(found)
    assert found.values["case"] == ("quick_batches" if figures["loader_made"] <= figures["receiving"] / 2 else "")
    # the rest of next() sends the worker its next indices, some half a millisecond
    assert (
        statistics.median(waited) - MS <= figures["receiving"] * 1.3 and figures["receiving"] <= statistics.median(waited) * 1.1
    )
    assert not any(finding.rule in ("next_input_bound", "loader_too_slow") for finding in findings)
    cured, _, healthy = run(
        tmp_path / "fast", {**job, "workers": 0} if tensors == 1 else {**job, "tensors": 1, "kind": "samples"}
    )
    assert not [finding for finding in healthy if finding.rule == "loader_slow_transfer"] or tensors > 1
    assert found.saving is not None
    gained = statistics.median(waited) - statistics.median(cured)
    assert found.saving.low_ns <= gained <= found.saving.high_ns * 1.3 + MS / 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "faulty", "cure"),
    [
        ("loader_slow_collate", {"workers": 1, "collate": 0.03, "fetch": 0.001, "step": 0.01, "batches": 30}, {"collate": 0}),
        ("loader_slow_start", {"workers": 2, "epochs": 5, "step": 0.005, "batches": 8}, {"persistent": True}),
        ("loader_too_slow", {"workers": 1, "fetch": 0.01, "step": 0.01, "batches": 30}, {"fetch": 0}),
    ],
)
def test_a_finding_is_worth_what_the_cure_gives(tmp_path: Path, rule: str, faulty: dict[str, Any], cure: dict[str, Any]) -> None:
    """What the same run would not have waited, had it got its batches as the cured one usually gets them."""
    pytest.importorskip("torch")
    wrong: list[tuple[float, float]] = []
    for attempt in range(ATTEMPTS):
        waited, starts, findings = run(tmp_path / f"slow{attempt}", faulty)
        left, starts_left, healthy = run(tmp_path / f"fast{attempt}", {**faulty, **cure})
        found = [finding for finding in findings if finding.rule == rule]
        assert len(found) == 1 and found[0].saving is not None, [finding.id for finding in findings]
        cured, still = waited, statistics.median(left)
        if rule == "loader_slow_start":
            # an epoch counts that began within the steps, so the first one may not
            epochs = next(item.value for item in found[0].evidence if item.what == "loader_epochs")
            assert epochs in (len(starts) - 1, len(starts))
            # workers that are there make the first batch of an epoch all the same
            cured, still = starts[-int(epochs) :], statistics.median(starts_left[1:])
        # with the cure a batch is usually there, unless the machine has no time for the workers: then nobody knows what it gives
        if statistics.median(left) > 0.1 * statistics.mean(cured):
            continue
        gained = sum(wait - still for wait in cured) / len(waited)
        if found[0].saving.likely_ns != pytest.approx(gained, rel=0.3):
            wrong.append((found[0].saving.likely_ns, gained))
            continue
        again = [finding for finding in healthy if finding.rule == rule and finding.level != "low"]
        if not again:
            return
        # a busy machine holds up workers of any kind: then the loop has waited for them, and as long as it is told
        assert again[0].saving is not None
        assert again[0].saving.likely_ns == pytest.approx(statistics.mean(left), rel=0.3, abs=MS)
    assert not wrong, f"priced at one figure and worth another (ns of a step): {wrong}"
    pytest.skip(f"the machine is too busy: with the cure the loop still waited {left} ns")
