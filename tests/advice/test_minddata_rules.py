"""The rules about data pipelines on hand-built traces: what is said, what it costs, and silence just below every threshold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple
from typing import Any

import pytest

from steplens.advice import Finding, advise
from steplens.advice.facts import Facts
from steplens.advice.finding import Saving
from steplens.advice.rules.pipeline import busy_host, data_pipeline_healthy, data_processing, data_transfer, iteration_interval
from steplens.advice.rules.pipeline_operations import (
    busy_workers,
    idle_workers,
    queue_drop,
    slow_batch,
    slow_generator,
    slow_map,
    slow_operation,
    slow_source,
    slower_than_input,
    starved_device_queue,
    underfilled_source,
)
from steplens.advice.texts import CATALOGUES, TEXTS
from steplens.advice.words import Words
from steplens.analysis.data_loading.pipeline_verdict import held_up_by
from steplens.run import Run, Source
from steplens.trace.schema import SCOPE_USER
from steplens.trace.trace import Trace
from steplens.writers.mindspore import mindspore_pipeline

from ..writers.builder import BASE_NS, MAIN, PID, build, kernel, op

MS = 1_000_000
RULES = (
    iteration_interval, data_processing, data_transfer, data_pipeline_healthy, busy_host, slow_source, slow_generator, slow_map,
    slow_batch, slow_operation, queue_drop, busy_workers, idle_workers, underfilled_source, starved_device_queue,
    slower_than_input,
)  # fmt: skip


def points(intervals_ms: Sequence[float], step_ms: float = 10) -> list[dict[str, Any]]:
    """Steps one behind the other, as a device records them."""
    rows = []
    for number, interval in enumerate(intervals_ms, start=1):
        start = BASE_NS + round(number * step_ms * MS)
        end = start + round(step_ms * MS)
        rows.append({"step": number, "start_ns": start, "forward_ns": start + round(interval * MS), "backward_ns": end - MS,
                     "end_ns": end})  # fmt: skip
    return rows


def steps_of(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"id": row["step"], "start_ns": row["start_ns"], "end_ns": row["end_ns"], "pid": PID, "tid": MAIN} for row in rows]


def sent(sizes: Iterable[int], kind: str = "send") -> list[dict[str, Any]]:
    """Batches and the size of the queue that each found."""
    return [
        {"kind": kind, "batch": number, "time_ns": number * MS, "queue_size": size, "queue_capacity": 64, "push_ns": 2 * MS,
         "wait_ns": 3 * MS}
        for number, size in enumerate(sizes, start=1)
    ]  # fmt: skip


def chain(*operations: tuple[str, int | None, float | None], first: int = 0) -> dict[str, list[dict[str, Any]]]:
    """Operations from the last one to the source: type, workers, usage of the output queue of 64 (None: no queue)."""
    rows, samples = [], []
    for number, (kind, workers, usage) in enumerate(operations, start=first):
        parent = None if number == first else number - 1
        rows.append({"id": number, "type": kind, "workers": workers, "parent": parent,
                     "queue_capacity": None if usage is None else 64})  # fmt: skip
        samples += [
            {"scope": "op", "op": number, "name": "queue_size", "unit": "batches", "sample": sample, "value": (usage or 0) * 64}
            for sample in range(4 if usage is not None else 0)
        ]
    return {"pipeline_ops": rows, "pipeline_samples": samples}


def load(percents: dict[int, float]) -> list[dict[str, Any]]:
    """CPU use of all workers of an operation together, half of it in the operating system."""
    return [
        {"scope": "op", "op": number, "name": f"{part}_utilization", "unit": "%", "sample": sample, "value": percent / 2}
        for number, percent in percents.items()
        for part in ("user", "sys")
        for sample in range(3)
    ]


def host(idle: float) -> list[dict[str, Any]]:
    values = {"idle": idle, "user": 60, "sys": 100 - idle - 60, "io": 0}
    return [
        {"scope": "host", "op": None, "name": f"{name}_utilization", "unit": "%", "sample": sample, "value": value}
        for name, value in values.items()
        for sample in range(3)
    ]


def found(rule: Any, trace: Trace) -> list[Finding]:
    return list(rule.judge(Facts(trace)))


def only(rule: Any, trace: Trace) -> Finding:
    (finding,) = found(rule, trace)
    assert finding.rule == rule.name
    return finding


def figures(finding: Finding) -> dict[str, float]:
    return {item.what: item.value for item in finding.evidence}


def test_interval() -> None:
    rows = points([8, 1.5, 1.5, 1.5])
    # a first step that compiles takes longer
    rows[0]["start_ns"] -= 30 * MS
    finding = only(iteration_interval, build(step_points=rows, steps=steps_of(rows)))
    # the first step warms up; all but 0.5 ms can go
    assert finding.saving is not None
    assert (finding.saving.low_ns, finding.saving.likely_ns, finding.saving.high_ns) == (0.5 * MS, MS, 1.5 * MS)
    assert (finding.step_ns, finding.level, finding.evidence[0].steps) == (10 * MS, "high", (2, 3, 4))
    assert figures(finding)["interval_share"] == pytest.approx(15)
    rows = points([0.5] * 4)
    assert found(iteration_interval, build(step_points=rows, steps=steps_of(rows))) == []
    # a first step that begins with its first operator tells nothing
    rows = points([0])
    assert found(iteration_interval, build(step_points=rows, steps=steps_of(rows))) == []


def waiting_loop(name: str = "Iterator.__next__", **tables: Any) -> Trace:
    """Four steps of 10 ms, of which 2 ms are in the iterator of a pipeline."""
    rows = points([0] * 4)
    begins = [(row["step"], (row["start_ns"] - BASE_NS) / 1000) for row in rows]
    waits = [op(f"enumerate(DataLoader)#{name}", begin, begin + 2000, step=step, scope=SCOPE_USER) for step, begin in begins]
    return build(ops=waits, steps=steps_of(rows), **tables)


def test_interval_of_steps_whose_thread_waits() -> None:
    """Without points of a device: the time in the iterator of MindSpore's pipeline. PyTorch's loaders have their own rules."""
    finding = only(iteration_interval, waiting_loop())
    assert finding.saving is not None and finding.saving.high_ns == 2 * MS
    assert found(iteration_interval, waiting_loop("_SingleProcessDataLoaderIter.__next__")) == []


def test_the_operation_that_is_named_has_the_price() -> None:
    """What the loop waits; where the process uses nine tenths of the processors, a tenth of a step is left to hide it in."""
    tables: dict[str, Any] = chain(("BatchOp", 1, 0.1), ("MapOp", 1, 0.1), ("TFReaderOp", 8, 0.9))
    empty = sent([0] * 10)
    finding = only(slow_map, waiting_loop(**tables))
    assert finding.saving == Saving(0, MS, 2 * MS) and figures(finding)["wait_for_data"] == 2 * MS
    timed = [{**row, "time_ns": BASE_NS + number * MS} for number, row in enumerate(empty, 1)]
    tables["pipeline_batches"] = timed
    tables["pipeline_samples"] += [
        {"scope": "process", "name": f"{part}_utilization", "unit": "%", "sample": sample, "value": 45.0,
         "time_ns": BASE_NS + sample * MS}
        for part in ("user", "sys")
        for sample in range(1, 6)
    ]  # fmt: skip
    bounded = only(slow_map, waiting_loop(**tables)).saving
    assert bounded is not None and astuple(bounded) == pytest.approx((MS / 2, MS, 2 * MS))
    # those that only say that the loop waits are explained by it
    whole = waiting_loop(**tables)
    assert only(data_processing, whole).saving is not None and only(iteration_interval, whole).saving is not None
    rules = {each.rule for each in advise(Run(whole.source, [(Source(whole.source), whole)], [])).findings}
    assert "slow_map" in rules and not {"data_processing", "iteration_interval"} & rules
    # on a CPU no device waits, and sinking data does nothing
    on_cpu = only(iteration_interval, waiting_loop(kernels=[kernel("MatMul", 1, 2)]))
    for language in ("en", "zh"):
        text = Words(language).of(on_cpu)
        assert not {word for word in ("device", "sinking", "设备", "下沉") if word in text.title + text.cause + text.remedy}


def test_empty_queue() -> None:
    rows = points([2] * 4)
    queues = {"step_points": rows, "steps": steps_of(rows)}
    finding = only(data_processing, build(**queues, pipeline_batches=sent([0, 0, 0, 0] + [5] * 6)))
    assert (finding.evidence[0].value, finding.evidence[0].steps) == (4, (1, 2, 3, 4))
    assert figures(finding)["queue_empty_share"] == 40
    # a fifth of the step waits
    assert finding.level == "high" and "no_device_queue" in figures(finding)
    # the device always found a batch
    both = build(**queues, pipeline_batches=[*sent([0] * 4 + [5] * 6), *sent([1] * 10, "receive")])
    assert only(data_processing, both).level == "low"
    # 30 % is not more than 30 %
    assert found(data_processing, build(pipeline_batches=sent([0, 0, 0] + [5] * 7))) == []
    assert found(data_processing, build()) == []


def test_slow_transfer() -> None:
    batches = [*sent([5] * 10), *sent([0, 0, 1, 1, 1, 1, 1, 1, 1, 1], "receive")]
    finding = only(data_transfer, build(pipeline_batches=batches))
    assert (finding.evidence[0].value, finding.evidence[0].steps, finding.level) == (2, (1, 2), "medium")
    assert (figures(finding)["transfer"], figures(finding)["device_waits_for_batch"]) == (2 * MS, 3 * MS)
    always = build(pipeline_batches=[*sent([5] * 10), *sent([0] * 10, "receive")])
    assert only(data_transfer, always).level == "high"
    few = build(pipeline_batches=[*sent([5] * 3), *sent([0, 1, 1], "receive")])
    assert only(data_transfer, few).level == "low"
    # the pipeline itself is too slow, or nothing was empty
    assert found(data_transfer, build(pipeline_batches=[*sent([0] * 10), *sent([0] * 10, "receive")])) == []
    assert found(data_transfer, build(pipeline_batches=[*sent([5] * 10), *sent([1] * 10, "receive")])) == []


def test_a_healthy_pipeline_is_called_healthy() -> None:
    finding = only(data_pipeline_healthy, build(pipeline_batches=[*sent([0, 5, 5, 5]), *sent([1] * 4, "receive")]))
    assert (finding.level, finding.saving) == ("low", None)
    assert figures(finding) == {"queue_empty": 1, "queue_batches": 4, "device_queue_empty": 0}
    assert found(data_pipeline_healthy, build(pipeline_batches=[*sent([5] * 4), *sent([0, 1, 1, 1], "receive")])) == []
    assert found(data_pipeline_healthy, build(pipeline_batches=sent([0, 0, 5, 5]))) == []
    assert found(data_pipeline_healthy, build()) == []


def test_busy_processors() -> None:
    finding = only(busy_host, build(pipeline_samples=host(19)))
    assert figures(finding) == {"busy_time": 81, "user_time": 60, "sys_time": 21, "io_time": 0}
    assert found(busy_host, build(pipeline_samples=host(20))) == []
    npu = [kernel("MatMul", 1, 2, core="AI_CORE")]
    assert only(busy_host, build(pipeline_samples=host(5), kernels=npu)).values["percent"] == "95"
    # the CPU trains: it should be busy
    assert found(busy_host, build(pipeline_samples=host(5), kernels=[kernel("MatMul", 1, 2)])) == []


@pytest.mark.parametrize(
    ("rule", "operations", "subject"),
    [
        (slow_source, [("BatchOp", 4, 0.1), ("MapOp", 8, 0.1), ("TFReaderOp", 8, 0.59)], "TFReaderOp_2"),
        (slow_generator, [("BatchOp", 4, 0.1), ("GeneratorOp", 1, 0.1)], "GeneratorOp_1"),
        (slow_map, [("BatchOp", 4, 0.1), ("MapOp", 8, 0.59), ("TFReaderOp", 8, 0.8)], "MapOp_1"),
        (slow_batch, [("BatchOp", 4, 0.59), ("MapOp", 8, 0.8), ("TFReaderOp", 8, 0.7)], "BatchOp_0"),
        # the last operation, when all queues are full; the incumbent never says so
        (slow_batch, [("BatchOp", 4, None), ("MapOp", 8, 0.8), ("TFReaderOp", 8, 0.9)], "BatchOp_0"),
        (slow_operation, [("BatchOp", 4, 0.1), ("ShuffleOp", 1, 0.1), ("TFReaderOp", 8, 0.9)], "ShuffleOp_1"),
    ],
)
def test_the_operation_that_holds_up_the_others(rule: Any, operations: list[Any], subject: str) -> None:
    trace = build(**chain(*operations))
    finding = only(rule, trace)
    assert (finding.subject, finding.values["operations"], finding.level) == (subject, subject, "medium")
    said = [one.name for one in (slow_source, slow_generator, slow_map, slow_batch, slow_operation) if found(one, trace)]
    assert said == [rule.name]
    # nobody waits for it
    rows = points([0.1] * 4)
    assert only(rule, build(**chain(*operations), step_points=rows, steps=steps_of(rows))).level == "low"
    rows = points([0.5] * 4)
    assert only(rule, build(**chain(*operations), step_points=rows, steps=steps_of(rows))).level == "medium"


def test_queues_at_the_thresholds() -> None:
    """A queue of 60 % is not empty, one below 80 % is not full."""
    for operations in (
        [("BatchOp", 4, 0.6), ("TFReaderOp", 8, 0.6)],
        [("BatchOp", 4, 0.1), ("MapOp", 8, 0.6), ("TFReaderOp", 8, 0.9)],
        [("BatchOp", 4, 0.1), ("MapOp", 8, 0.2), ("TFReaderOp", 8, 0.79)],
    ):
        trace = build(**chain(*operations))
        assert [
            one.name for one in (slow_source, slow_generator, slow_map, slow_batch, slow_operation) if found(one, trace)
        ] == []


def test_a_drop_between_queues_is_a_weak_sign() -> None:
    finding = only(queue_drop, build(**chain(("BatchOp", 4, 0.65), ("MapOp", 8, 0.7), ("TFReaderOp", 8, 0.8125))))
    assert (finding.subject, finding.level, finding.confidence) == ("MapOp_1", "low", 0.3)
    assert figures(finding)["usage_drop"] == pytest.approx(11.25)
    assert found(queue_drop, build(**chain(("BatchOp", 4, 0.65), ("MapOp", 8, 0.7), ("TFReaderOp", 8, 0.8)))) == []
    # what the strict rules say is not said again
    assert found(queue_drop, build(**chain(("BatchOp", 4, 0.3), ("MapOp", 8, 0.3), ("TFReaderOp", 8, 0.9)))) == []


def loaded(percents: dict[int, float], *operations: Any) -> Trace:
    tables = chain(*operations)
    return build(pipeline_ops=tables["pipeline_ops"], pipeline_samples=[*tables["pipeline_samples"], *load(percents)])


def test_load_of_workers() -> None:
    operations = (("BatchOp", 1, 0.7), ("MapOp", 2, 0.7), ("TFReaderOp", 4, 0.75))
    # 151 % in two workers are 75.5 % each
    trace = loaded({1: 151, 2: 4 * 20.0}, *operations)
    finding = only(busy_workers, trace)
    assert (finding.subject, figures(finding)["worker_load"]) == ("MapOp_1", 75.5)
    assert "slowest_operation" in figures(finding)
    assert found(idle_workers, trace) == []
    trace = loaded({0: 19, 1: 150, 2: 4 * 19.9}, *operations)
    assert found(busy_workers, trace) == []
    # one worker cannot be too many
    finding = only(idle_workers, trace)
    assert (finding.subject, finding.level) == ("TFReaderOp_2", "low")
    # one thread runs these, whatever is configured
    assert found(busy_workers, loaded({0: 99}, ("ShuffleOp", 1, 0.7), ("TFReaderOp", 4, 0.75))) == []


def test_queues_by_the_rules_of_mindspore() -> None:
    assert only(underfilled_source, build(**chain(("BatchOp", 4, 0.7), ("TFReaderOp", 8, 0.49)))).subject == "TFReaderOp_1"
    assert found(underfilled_source, build(**chain(("BatchOp", 4, 0.7), ("TFReaderOp", 8, 0.5)))) == []
    # all queues little used is the stricter rule's
    assert found(underfilled_source, build(**chain(("BatchOp", 4, 0.1), ("TFReaderOp", 8, 0.1)))) == []
    finding = only(slower_than_input, build(**chain(("BatchOp", 4, 0.1), ("MapOp", 8, 0.2), ("TFReaderOp", 8, 0.75))))
    assert (finding.subject, figures(finding)["usage_drop"]) == ("MapOp_1", pytest.approx(55))
    assert found(slower_than_input, build(**chain(("BatchOp", 4, 0.1), ("MapOp", 8, 0.25), ("TFReaderOp", 8, 0.75)))) == []


def test_the_queue_in_front_of_the_device() -> None:
    tables = chain(("DeviceQueueOp", 1, None), ("BatchOp", 4, 0.1), ("TFReaderOp", 8, 0.7))
    for empty, speaks in ((7, True), (6, False)):
        samples = [row for row in tables["pipeline_samples"] if row["op"] != 1]
        samples += [{"scope": "op", "op": 1, "name": "queue_size", "unit": "batches", "sample": number,
                     "value": 0 if number < empty else 9} for number in range(10)]  # fmt: skip
        trace = build(pipeline_ops=tables["pipeline_ops"], pipeline_samples=samples)
        assert [finding.subject for finding in found(starved_device_queue, trace)] == (["DeviceQueueOp_0"] if speaks else [])
        if speaks:
            assert figures(only(starved_device_queue, trace))["queue_empty_share"] == 70


def every_finding() -> list[Finding]:
    rows = points([4] * 4)
    pipeline = chain(("DeviceQueueOp", 1, None), ("BatchOp", 4, 0.0), ("MapOp", 2, 0.0), ("GeneratorOp", 1, 0.9))
    more = chain(("BatchOp", 4, 0.65), ("MapOp", 8, 0.2), ("TFReaderOp", 8, 0.75))
    traces = [
        build(**{**pipeline, "pipeline_samples": [*pipeline["pipeline_samples"], *load({2: 190, 1: 1}), *host(3)]},
              step_points=rows, steps=steps_of(rows), pipeline_batches=sent([0] * 10)),
        build(**more, pipeline_batches=[*sent([5] * 10), *sent([0] * 10, "receive")]),
        build(pipeline_batches=sent([5] * 10)),
        *[build(**chain(*operations)) for operations in (
            [("BatchOp", 4, 0.65), ("MapOp", 8, 0.7), ("TFReaderOp", 8, 0.9)], [("BatchOp", 4, 0.1), ("TFReaderOp", 8, 0.1)],
            [("BatchOp", 4, 0.9), ("TFReaderOp", 8, 0.9)], [("BatchOp", 4, 0.1), ("SkipOp", 1, 0.1), ("TFReaderOp", 8, 0.9)],
            [("BatchOp", 4, 0.1), ("GeneratorOp", 1, 0.1)], [("BatchOp", 4, 0.65), ("TFReaderOp", 8, 0.3)])],
    ]  # fmt: skip
    return [finding for trace in traces for rule in RULES for finding in found(rule, trace)]


def test_all_that_is_said_has_words_in_both_languages() -> None:
    findings = every_finding()
    assert {finding.rule for finding in findings} == {rule.name for rule in RULES}
    for finding in findings:
        for language in ("en", "zh"):
            words = Words(language, TEXTS)
            text = words.of(finding)
            assert "{" not in f"{text.title}{text.cause}{text.remedy}{text.patch}", finding.rule
            assert all(item.what in CATALOGUES["en"].evidence for item in finding.evidence), finding


def test_pipelines_of_pytorch_are_left_to_the_rules_about_loaders() -> None:
    tables = chain(("BatchOp", 4, 0.1), ("MapOp", 8, 0.2), ("TFReaderOp", 8, 0.9))
    fetch = op("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 5, scope=SCOPE_USER)
    trace = build(**tables, ops=[fetch], pipeline_batches=sent([5] * 10, "iterate"))
    of_operations = [rule for rule in RULES if rule not in (data_processing, data_transfer, busy_host)]
    assert [finding for rule in of_operations for finding in found(rule, trace)] == []


def test_a_run_of_queues_alone_is_judged() -> None:
    from pathlib import Path

    trace = build(**chain(("BatchOp", 4, 0.1), ("TFReaderOp", 8, 0.1)))
    advice = advise(Run(Path("run"), [(Source(Path("run")), trace)], []))
    assert [finding.id for finding in advice.findings] == ["slow_source:TFReaderOp_1"]
    assert advice.step_ns == 0


def taken(sizes: Iterable[int]) -> list[dict[str, Any]]:
    return sent(sizes, "iterate")


EPOCHS = ("EpochCtrlOp", 1, None)
#: the rules that say an operation of the pipeline is too slow
BLAMING = (slow_source, slow_generator, slow_map, slow_batch, slow_operation, queue_drop, busy_workers, underfilled_source,
           starved_device_queue, slower_than_input)  # fmt: skip


@pytest.mark.parametrize(
    ("operations", "sizes", "blamed"),
    [
        # the generator's queue is low, and yet there is always a batch
        ((EPOCHS, ("BatchOp", 2, 0.3), ("GeneratorOp", 1, 0.1)), [3] * 20, []),
        ((EPOCHS, ("BatchOp", 2, 0.3), ("GeneratorOp", 1, 0.1)), [0] * 20, [2]),
        # everything is full: whoever takes the batches is slow, not what counts epochs
        ((EPOCHS, ("BatchOp", 2, 0.9), ("GeneratorOp", 1, 0.95)), [9] * 20, []),
        ((EPOCHS, ("BatchOp", 2, 0.9), ("GeneratorOp", 1, 0.95)), [0] * 20, []),
        ((("EpochCtrlOp", 1, 0.1), ("BatchOp", 2, 0.9), ("GeneratorOp", 1, 0.95)), [0] * 20, []),
        ((EPOCHS, ("BatchOp", 2, 0.1), ("MapOp", 2, 0.1), ("GeneratorOp", 1, 0.9)), [0] * 20, [2]),
        # neither full nor empty, but with a gap of more than half of the capacity
        ((EPOCHS, ("BatchOp", 2, 0.15), ("MapOp", 2, 0.7), ("GeneratorOp", 1, 0.7)), [0] * 20, [1]),
    ],
)
def test_the_file_and_the_advice_name_the_same_operation(
    operations: tuple[tuple[str, int | None, float | None], ...], sizes: list[int], blamed: list[int]
) -> None:
    trace = build(**chain(*operations), pipeline_batches=taken(sizes))
    assert held_up_by(trace) == blamed
    written = mindspore_pipeline.summary(trace)
    names = [f"{operations[number][0].removesuffix('Op')}(id={number})" for number in blamed]
    assert written.get("bottleneck_warning", []) == names
    said = {place for rule in BLAMING for finding in found(rule, trace) for item in finding.evidence for place in item.places}
    assert {f"{operations[number][0]}_{number}" for number in blamed} <= said
    healthy = found(data_pipeline_healthy, trace)
    assert not (healthy and said), "either it keeps up, or something is too slow"
    assert bool(healthy) == bool(sizes[0])
