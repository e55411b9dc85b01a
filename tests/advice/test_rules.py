"""Every rule on hand-built traces, where cause and price are known exactly."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steplens.advice import Evidence, Finding, Saving, advise
from steplens.advice.facts import Facts
from steplens.advice.recording import without_recording
from steplens.advice.registry import built_in_rules
from steplens.advice.rule import Rule
from steplens.advice.rules.host import checkpoint_stalls, device_waits_for_host, garbage_collection
from steplens.advice.rules.loaders import FETCH_IN_LOOP, FETCH_OF_WORKERS, loader_too_slow, loader_without_workers
from steplens.advice.rules.memory import allocation_stalls, memory_growth
from steplens.advice.rules.operators import tiny_operators
from steplens.advice.rules.optimizers import single_tensor_optimizer
from steplens.advice.rules.synchronization import scalar_reads
from steplens.advice.rules.tools.digits import in_digits, in_ms
from steplens.advice.rules.tools.loading import TAKING_OVER_NS, LoadingInLoop
from steplens.analysis.operators.recording_cost import find_recording_cost, recording_cost, step_without_recording
from steplens.analysis.steps.summary import summarize_steps
from steplens.run import Run, Source
from steplens.trace.schema import SCHEMA, SCOPE_USER
from steplens.trace.trace import Trace

from ..writers.builder import BASE_NS, MAIN, PID, build, kernel, memory, op

STEP_US = 10_000
US = 1000
STEPS = range(6)


def training(more: list[list[dict[str, Any]]], **tables: Any) -> Trace:
    """Six steps of 10 ms, each with the given calls (times in us after the beginning of the step).

    Keywords are tables, and entries of ``meta`` where no table is of that name.
    """
    meta = {name: tables.pop(name) for name in list(tables) if name not in SCHEMA}
    ops: list[dict[str, Any]] = []
    for step, calls in zip(STEPS, more, strict=True):
        begin = step * STEP_US
        first = len(ops)
        ops.append(op(f"ProfilerStep#{step}", begin, begin + STEP_US, step=step, scope=SCOPE_USER))
        for call in calls:
            values = {**call, "start_ns": call["start_ns"] + begin * US, "end_ns": call["end_ns"] + begin * US, "step": step}
            values["parent"] = first + values["parent"] if values["parent"] >= 0 else first
            ops.append(values)
    steps = [
        {
            "id": step,
            "start_ns": BASE_NS + step * STEP_US * US,
            "end_ns": BASE_NS + (step + 1) * STEP_US * US,
            "pid": PID,
            "tid": MAIN,
        }
        for step in STEPS
    ]
    return build(meta=meta, ops=ops, steps=steps, **tables)


def only(found: Any) -> Finding:
    (finding,) = found
    assert isinstance(finding, Finding)
    return finding


def test_loading_in_the_loop() -> None:
    fetch = op(f"{FETCH_IN_LOOP}.__next__", 0, 6000, scope=SCOPE_USER)
    finding = only(loader_without_workers.judge(Facts(training([[fetch]] * 6))))
    # 6 ms of loading and 4 ms of the rest: three workers load a batch in 2 ms, while the rest runs
    assert finding.values["workers"] == 3
    assert finding.saving is not None
    # taking over a batch that is ready stays
    assert (finding.saving.likely_ns, finding.saving.high_ns) == (6_000_000 - TAKING_OVER_NS, 6_000_000)
    assert (finding.level, finding.id, finding.evidence[0].steps) == ("high", "loader_without_workers", tuple(STEPS))
    little = op(f"{FETCH_IN_LOOP}.__next__", 0, 100, scope=SCOPE_USER)
    assert list(loader_without_workers.judge(Facts(training([[little]] * 6)))) == []


def loop_with(processors: int | None, used_ns: float) -> LoadingInLoop:
    return LoadingInLoop(26_400_000, 11_450_000, processors, (used_ns, used_ns, used_ns))


def test_workers_and_training_share_the_processors() -> None:
    """A script on two processors: 384 average poolings in a Python loop per batch, no workers, two small convolutions.

    Processor time of a step without the profiler: 25.5 ms to train, and 11.45 ms to load with one thread, which takes as long
    alone. So a step of 26.4 ms takes (11.45 + 25.5) / 2 = 18.5 ms at best with workers.
    """
    short = loop_with(2, 36_950_000)
    saving = short.worker_saving()
    assert (short.is_short_of_processors, short.worker_count) == (True, 1)
    assert saving.likely_ns == pytest.approx(26_400_000 - 36_950_000 / 2)
    assert saving.high_ns == saving.likely_ns < 11_450_000
    # with processors to spare all of it goes, but for taking over the batch
    enough = loop_with(16, 36_950_000)
    assert (enough.is_short_of_processors, enough.worker_count) == (False, 2)
    assert enough.worker_saving().likely_ns == 11_450_000 - TAKING_OVER_NS
    # recording the calls of loading is part of neither the step nor the saving without the profiler
    recorded = LoadingInLoop(26_400_000, 11_450_000, 2, (36_950_000,) * 3, (2_000_000, 3_000_000, 4_000_000))
    assert recorded.worker_saving().likely_ns == pytest.approx(23_400_000 - 33_950_000 / 2)
    assert recorded.worker_saving().high_ns == pytest.approx(24_400_000 - 34_950_000 / 2)
    # where only the estimate says that processors are short, the batch that a worker hands over still has to be taken
    estimated = LoadingInLoop(26_400_000, 11_450_000, 2, (20_000_000, 36_950_000, 40_000_000)).worker_saving()
    assert estimated.likely_ns < estimated.high_ns == 11_450_000 - TAKING_OVER_NS
    # one processor does nothing beside anything else; a source that is waited for needs none
    assert loop_with(1, 26_400_000).worker_saving().likely_ns == 0
    assert loop_with(1, 15_000_000).worker_saving().likely_ns == pytest.approx(11_250_000)


_USED = st.lists(st.floats(0, 1e10), min_size=3, max_size=3)


@given(st.floats(1e5, 1e9), st.floats(0, 1), st.sampled_from([None, 1, 2, 3, 8, 64]), _USED)
def test_workers_never_save_more_than_loading(step: float, share: float, processors: int | None, used: list[float]) -> None:
    least, likely, most = sorted(used)
    work = LoadingInLoop(step, share * step, processors, (least, likely, most))
    saving = work.worker_saving()
    assert 0 <= saving.low_ns <= saving.likely_ns <= saving.high_ns <= share * step
    assert 1 <= work.worker_count <= 16


def test_loading_that_no_number_of_workers_hides() -> None:
    fetch = op(f"{FETCH_IN_LOOP}.__next__", 0, 9990, scope=SCOPE_USER)
    finding = only(loader_without_workers.judge(Facts(training([[fetch]] * 6))))
    assert finding.values["workers"] == 16
    assert finding.saving is not None
    # a step then takes a sixteenth of the loading
    assert finding.saving.likely_ns == pytest.approx(STEP_US * US - 9_990_000 / 16)


def test_workers_that_are_too_slow() -> None:
    fetches = [op(f"{FETCH_OF_WORKERS}.__next__", 0, length, scope=SCOPE_USER) for length in (200, 5200, 5200, 5200, 5200, 5200)]
    finding = only(loader_too_slow.judge(Facts(training([[fetch] for fetch in fetches]))))
    assert finding.saving is not None
    # no more than 1 ms of a fetch is what a batch that is ready costs
    assert finding.saving.likely_ns == pytest.approx(5 * (5_200_000 - 1_000_000) / 6)
    same = [op(f"{FETCH_OF_WORKERS}.__next__", 0, 400, scope=SCOPE_USER)]
    assert list(loader_too_slow.judge(Facts(training([same] * 6)))) == []


def test_collections() -> None:
    gc = [
        {
            "start_ns": BASE_NS + (step * STEP_US + 100) * US,
            "end_ns": BASE_NS + (step * STEP_US + 2100) * US,
            "pid": PID,
            "tid": MAIN,
            "generation": 2,
        }
        for step in (1, 2, 4)
    ]
    finding = only(garbage_collection.judge(Facts(training([[]] * 6, gc=gc))))
    assert finding.evidence[0].value == 1_000_000
    assert finding.evidence[0].steps == (1, 2, 4)
    assert finding.saving is not None and finding.saving.likely_ns == pytest.approx(950_000)
    assert list(garbage_collection.judge(Facts(training([[]] * 6)))) == []


def test_checkpoints_in_the_loop() -> None:
    marks = [
        {
            "domain": "default",
            "message": message,
            "start_ns": BASE_NS + at * US,
            "end_ns": BASE_NS + (at + 3000) * US,
            "pid": PID,
            "tid": MAIN,
        }
        for message, at in (
            ("save_checkpoint", 21_000),
            ("save_checkpoint", 41_000),
            ("forward", 11_000),
            ("save_checkpoint", 90_000),
        )
    ]
    finding = only(checkpoint_stalls.judge(Facts(training([[]] * 6, marks=marks))))
    # two of 3 ms in six steps; what was saved after them does not count
    assert (finding.evidence[0].value, finding.evidence[0].steps) == (1_000_000, (2, 4))
    assert finding.evidence[1].value == 3_000_000
    assert finding.saving is not None and finding.saving.likely_ns == pytest.approx(800_000)
    # 3 MB are copied in 1 ms, which stays
    finding = only(checkpoint_stalls.judge(Facts(training([[]] * 6, marks=marks, checkpoint_bytes=3_000_000))))
    assert (finding.evidence[2].what, finding.evidence[2].value) == ("checkpoint_size", 3_000_000)
    assert finding.saving is not None and finding.saving.likely_ns == pytest.approx(1_000_000 * 2 / 3)
    # copying takes as long as writing does
    finding = only(checkpoint_stalls.judge(Facts(training([[]] * 6, marks=marks, checkpoint_bytes=30_000_000))))
    assert finding.saving is not None and finding.saving.likely_ns == 0
    # another thread writes
    beside = [{**mark, "tid": MAIN + 1} for mark in marks]
    assert list(checkpoint_stalls.judge(Facts(training([[]] * 6, marks=beside)))) == []
    unknown = [{**mark, "tid": None} for mark in marks]
    assert only(checkpoint_stalls.judge(Facts(training([[]] * 6, marks=unknown)))).evidence[0].value == 1_000_000


def optimizer_calls(
    per_parameter: int, parameters: int, name: str = "aten::op{}", optimizer: str = "Adam"
) -> list[dict[str, Any]]:
    calls = [op(f"Optimizer.step#{optimizer}.step", 0, 6000, scope=SCOPE_USER)]
    for number in range(per_parameter * parameters):
        calls.append(op(name.format(number % per_parameter), number * 10, number * 10 + 8, parent=1))
    return calls


def test_an_optimizer_that_goes_one_by_one() -> None:
    finding = only(single_tensor_optimizer.judge(Facts(training([optimizer_calls(12, 40)] * 6))))
    assert finding.saving is not None
    assert finding.saving.likely_ns == pytest.approx(6_000_000 * (1 - 2 / 12))
    assert finding.values == {"optimizer": "Adam", "parameters": 40}
    # two operators per parameter are what a fused update does as well
    assert list(single_tensor_optimizer.judge(Facts(training([optimizer_calls(2, 100)] * 6)))) == []
    assert list(single_tensor_optimizer.judge(Facts(training([optimizer_calls(12, 40, "aten::_foreach_op{}")] * 6)))) == []
    assert list(single_tensor_optimizer.judge(Facts(training([optimizer_calls(12, 40, optimizer="FusedAdam")] * 6)))) == []


def test_a_storm_of_tiny_operators() -> None:
    storm = [
        op("aten::add" if number % 2 else "aten::select", 1000 + number * 10, 1000 + number * 10 + 5) for number in range(300)
    ]
    finding = only(tiny_operators.judge(Facts(training([storm] * 6))))
    assert finding.evidence[0].value == (300 * 10 - 5) * US
    # of 5 us a call takes 3 us whatever it does; no call was recorded that does nothing, which would tell what recording takes
    assert finding.saving is not None and finding.saving.likely_ns == pytest.approx(2_995_000 - 300 * 2_000)
    # large operators, few of them, many different ones, and those of the optimizer are no storm
    large = [op("aten::mm", number * 100, number * 100 + 90) for number in range(100)]
    few = [op("aten::add", number * 10, number * 10 + 5) for number in range(90)]
    different = [op(f"aten::op{number}", number * 10, number * 10 + 5) for number in range(300)]
    for calls in (large, few, different, optimizer_calls(3, 100)):
        assert list(tiny_operators.judge(Facts(training([calls] * 6)))) == []


def test_a_storm_while_the_loop_loads_data() -> None:
    """Averaging the samples of a batch one by one: work stays, recording goes, and the cure is none for a model.

    Of a loop over 64 samples, 12.7 ms of a recorded step and 10.5 ms of processor time without the profiler, averaging the whole
    batch at once saved 1.5 ms; the same calls with nothing to do took 1.6 ms.
    """
    loop = [op(f"{FETCH_IN_LOOP}.__next__", 0, 5000, scope=SCOPE_USER)]
    for number in range(300):
        at = 10 + number * 15
        loop += [op("aten::avg_pool2d", at, at + 12, self_us=12), op("aten::as_strided", at + 13, at + 13.2, self_us=0.2)]
    trace = training([loop] * 6)
    finding = only(tiny_operators.judge(Facts(trace)))
    figures = {item.what: item.value for item in finding.evidence}
    assert (finding.part, finding.values["case"]) == ("data_wait_ns", "loading")
    # of a call of 0.2 us that does nothing: a call without work takes 16 times as long, and recording one 2.5 times
    assert figures["storm_work"] == pytest.approx(300 * (12_000 - 16 * 200))
    assert finding.recording_ns == pytest.approx(600 * 2.5 * 200)
    assert finding.saving is not None
    # no end of the range sells what recording took: at most it is what it costs at least
    gone = figures["storms"] - figures["storm_work"]
    (storms, *_) = finding.evidence
    assert sum(storms.places_ns) + storms.other_places_ns == pytest.approx(storms.value)
    assert finding.saving.high_ns == pytest.approx(gone - 600 * 1.9 * 200)
    assert finding.saving.likely_ns == pytest.approx(gone - 600 * 2.5 * 200)
    assert finding.saving.low_ns == pytest.approx(min(finding.saving.likely_ns / 2, gone - 600 * 4.5 * 200))
    # what another rule would save of that phase it saves of the phase without recording, in proportion, and says so
    facts = Facts(trace)
    length_ns, cost_ns = facts.most_ns("data_wait_ns"), 600 * 2.5 * 200
    assert length_ns is not None
    other = without_recording(Finding("other", 1.0, (), Saving(0.0, length_ns / 2, length_ns), part="data_wait_ns"), facts)
    assert other.saving is not None
    assert (other.saving.likely_ns, other.saving.high_ns) == (
        pytest.approx((length_ns - cost_ns) / 2),
        pytest.approx(length_ns - cost_ns),
    )
    assert other.evidence[-1] == Evidence("recording_taken_off", pytest.approx(cost_ns), "ns")
    # another phase has no such calls
    forward = Finding("other", 1.0, (), Saving(0.0, 1.0, 2.0), part="forward_ns")
    assert without_recording(forward, facts) == forward
    # workers leave of the storm what they leave of loading, and a cheaper transform as much of theirs: both give the same sum
    advice = advise(Run(Path("run"), [(Source(Path("run")), trace)], []), [loader_without_workers, tiny_operators])
    savings = {each.rule: each.saving.likely_ns for each in advice.findings if each.saving is not None}
    assert savings.keys() >= {"loader_without_workers", "tiny_operators"}
    for each in advice.findings:
        for beside, after_ns in each.after_ns.items():
            both_ns = savings[each.rule] + savings[beside] * (1 - savings[each.rule] / (length_ns - cost_ns))
            assert after_ns + savings[beside] == pytest.approx(both_ns)
            assert both_ns <= length_ns - cost_ns
    assert advice.likely_together_ns == pytest.approx(both_ns)
    # of both the larger saving is the better beginning, also where processors are short
    weights = [each.weight_ns for each in advice.findings if each.rule in ("loader_without_workers", "tiny_operators")]
    assert weights == sorted(weights, reverse=True)
    # 0.3 ms of a step of 10 ms are not worth a word
    assert find_recording_cost(trace) == () and step_without_recording([trace], summarize_steps([trace])) is None
    views = training([[*loop, *(op("aten::as_strided", 9000 + n, 9000.4 + n) for n in range(900))]] * 6)
    (cost,) = find_recording_cost(views)
    assert (cost.count, cost.severity) == (1, "info")
    assert cost.message.startswith("recording itself is about 1.5 ms of a step here (15 % of its 10 ms on the host;")
    whole = summarize_steps([views])
    costs = recording_cost(views)
    assert costs is not None and costs.least_ns < 1.5e6 < costs.most_ns
    assert step_without_recording([views], whole) == pytest.approx((10e6 - costs.most_ns, 10e6 - costs.least_ns))
    # a device that runs behind has the time for it, and of a rank without a cost nothing is known
    assert step_without_recording([views], dataclasses.replace(whole, behind=True)) is None
    assert step_without_recording([views, trace], whole) is None


def test_reads_on_a_cpu() -> None:
    reads = [op("aten::item", number * 10, number * 10 + 4, stack="train.py(3): <module>") for number in range(100)]
    finding = only(scalar_reads.judge(Facts(training([reads] * 6))))
    # a hundred reads of 4 us and the 6 us between two of them
    assert finding.evidence[0].value == (100 * 4 + 99 * 6) * US
    assert finding.evidence[0].places == ("train.py(3): <module>",)
    assert list(tiny_operators.judge(Facts(training([reads] * 6)))) == []
    one = [op("aten::item", 100, 104)]
    assert list(scalar_reads.judge(Facts(training([one] * 6)))) == []


def test_reads_that_something_interrupts() -> None:
    """Recording takes new memory for every few hundred calls: the loop of reads is the same before and after it."""

    def reading(pauses: dict[int, int], *others: dict[str, Any]) -> float:
        """What a hundred reads of 4 us, 6 us apart, cost; with pauses (us) before some of them."""
        late = [sum(pause for at, pause in pauses.items() if at <= number) for number in range(100)]
        reads = [op("aten::item", 100 + number * 10 + late[number], 104 + number * 10 + late[number]) for number in range(100)]
        return only(scalar_reads.judge(Facts(training([[*reads, *others]] * 6)))).evidence[0].value / US

    whole = 100 * 4 + 99 * 6
    assert reading({}) == whole
    assert reading({50: 70}) == whole + 70
    assert reading({9: 70, 18: 60, 91: 80}) == whole + 70 + 60 + 80
    # by what is not the loop of reads: another operator, much time, few reads before or after
    assert reading({50: 70}, op("aten::mm", 100 + 495, 100 + 550)) == whole - 6
    assert reading({50: 2000}) == whole - 6
    assert reading({8: 70, 92: 60, 50: 70, 58: 70}) == whole - 4 * 6
    assert reading(dict.fromkeys(range(1, 100), 50)) == 100 * 4


def test_reads_cost_what_the_device_is_idle_afterwards() -> None:
    """The host waits 3 ms for the device; only the 700 us until the next kernel are lost."""
    reads = [op("aten::item", 1000, 4000, stack="train.py(9): step")]
    kernels = []
    for step in STEPS:
        begin = step * STEP_US
        kernels.append(kernel("matmul", begin + 500, begin + 3990, core="CUDA", step=step))
        kernels.append(kernel("matmul", begin + 4690, begin + STEP_US + 450, core="CUDA", step=step))
    finding = only(scalar_reads.judge(Facts(training([reads] * 6, kernels=kernels))))
    assert finding.evidence[0].value == 700 * US
    assert finding.evidence[2].value == 3_000_000
    assert finding.level == "medium"


def gaps(cause_api: str = "", **more: Any) -> Trace:
    """On a device: a task of 2 ms, then 1 ms of nothing, of which 300 us are one call, then a task launched 200 us before."""
    kernels, api = [], []
    for step in STEPS:
        begin = step * STEP_US
        launch = BASE_NS + (begin + 2800) * US
        kernels.append(kernel("a", begin, begin + 2000, core="CUDA", step=step, launch_ns=BASE_NS + begin * US))
        kernels.append(kernel("b", begin + 3000, begin + STEP_US, core="CUDA", step=step, launch_ns=launch))
        if cause_api:
            call = {"start_ns": BASE_NS + (begin + 2100) * US, "end_ns": BASE_NS + (begin + 2400) * US, "pid": PID, "tid": MAIN}
            api.append({"name": cause_api, **call})
    return training([[op("aten::mm", 2100, 2400)]] * 6, kernels=kernels, api=api, **more)


def test_a_device_that_waits_for_the_host() -> None:
    finding = only(device_waits_for_host.judge(Facts(gaps())))
    values = {one.what: one.value for one in finding.evidence}
    assert values == {
        "idle_for_host": 1000 * US, "idle_calls": 300 * US, "idle_python": 500 * US, "idle_launch": 200 * US,
        "device_tasks": 2, "task_length": 4500 * US,
    }  # fmt: skip
    assert finding.saving is not None and finding.saving.likely_ns == pytest.approx(800 * US)
    assert list(allocation_stalls.judge(Facts(gaps()))) == []


def test_memory_requested_inside_steps() -> None:
    finding = only(allocation_stalls.judge(Facts(gaps("cudaMalloc"))))
    assert finding.evidence[0].value == 300 * US
    values = {one.what: one.value for one in only(device_waits_for_host.judge(Facts(gaps("cudaMalloc")))).evidence}
    assert values["idle_for_host"] == 700 * US


def test_memory_that_grows() -> None:
    events, level = [], 0
    for step in STEPS:
        for number, size in enumerate((50_000, 70_000)):
            level += size
            events.append(memory(step * STEP_US + 100 + number, 4096 * (2 * step + number + 1), size, allocated=level, op=0))
        level -= 50_000
        events.append(memory(step * STEP_US + 5000, 4096 * (2 * step + 1), -50_000, allocated=level))
    finding = only(memory_growth.judge(Facts(training([[]] * 6, memory=events))))
    assert finding.evidence[0].value == 70_000
    assert (finding.id, finding.level, finding.saving) == ("memory_growth:cpu0", "high", None)
    assert finding.evidence[0].places == ("ProfilerStep#0",)
    # what the first step leaves behind is no leak
    early = [
        memory(100, 4096, 1_000_000, allocated=1_000_000),
        *(memory(step * STEP_US + 100, 8192, 0, allocated=1_000_000) for step in STEPS),
    ]
    assert list(memory_growth.judge(Facts(training([[]] * 6, memory=early)))) == []


@pytest.mark.parametrize("rule", built_in_rules(), ids=lambda rule: rule.name)
def test_a_trace_without_anything(rule: Rule) -> None:
    for trace in (build(), training([[]] * 6)):
        if rule.judge_run is None:
            assert list(rule.judge(Facts(trace))) == []
        else:
            run = Run(Path("run"), [(Source(Path("run")), trace)], [])
            findings = list(rule.judge_run(run, [Facts(trace)]))
            # steps in which nothing but Python runs are bound by the host, and that is said
            assert [finding.rule for finding in findings] in ([], ["next_host_bound"] if trace.steps is not None else [])


def test_numbers_in_sentences_have_no_exponent() -> None:
    assert [in_digits(value) for value in (0.516, 8.0, 61.3, 134.0, 98_765.0)] == ["0.52", "8", "61", "130", "99000"]
    assert [in_ms(2200), in_ms(134e6), in_ms(1.2345e12, 3)] == ["0.0022", "130", "1230000"]
