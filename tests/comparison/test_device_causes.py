"""What explains the change of a step on a device: programs whose queue is simulated, so that the change is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl
import pytest

import steplens
from steplens.analysis.steps.times import DEVICE_PARTS, runs_behind
from steplens.comparison.causes import cause as causes
from steplens.comparison.causes.cause import Causes
from steplens.comparison.causes.device_times import device_times
from steplens.comparison.causes.find import find_causes
from steplens.comparison.causes.sentences import explain_cause
from steplens.comparison.recordings import Recording, find_recordings
from steplens.trace.schema import SCOPE_BACKWARD, SCOPE_USER

from ..shared_data import shared
from .device_programs import COMMUNICATION, COMPUTE, COPY, HostCall, Task, insert_time, recorded_on_device

NODE = "autograd::engine::evaluate_function: "


def called(name: str, *tasks: Task, **values: object) -> HostCall:
    return replace(HostCall(name, tasks), **values)


def node(name: str, sequence: int, *tasks: Task) -> HostCall:
    inner = called(name, *tasks, scope=SCOPE_BACKWARD, sequence=sequence, gap_us=0.0)
    return called(f"{NODE}{name}", scope=SCOPE_BACKWARD, sequence=sequence, shapes="", types="", inside=(inner,))


def linear(us: float, sequence: int, shapes: str) -> HostCall:
    product = called("aten::addmm", Task("sgemm", us), gap_us=0.0, shapes=shapes)
    return called("aten::linear", sequence=sequence, shapes=shapes, inside=(product,))


def optimizer(name: str, *operators: HostCall) -> HostCall:
    return called(f"Optimizer.step#{name}.step", scope=SCOPE_USER, shapes="", types="", inside=operators)


LINEAR = linear(300.0, 1, "8,8;8,16")
GELU = called("aten::gelu", Task("gelu_kernel", 60.0), sequence=2)
SECOND = linear(280.0, 3, "8,16;16,8")
LOSS = called("aten::mse_loss", Task("mse_kernel", 20.0), sequence=4)
BACKWARD = (
    node("MseLossBackward0", 4, Task("mse_backward", 20.0)),
    node("AddmmBackward0", 3, Task("sgemm", 280.0), Task("sgemm_t", 270.0)),
    node("GeluBackward0", 2, Task("gelu_backward", 80.0)),
    node("AddmmBackward0", 1, Task("sgemm", 300.0), Task("sgemm_t", 290.0)),
)


def reduced(us: float) -> HostCall:
    return called("c10d::allreduce_", Task("ncclDevKernel_AllReduce_Sum_f32_RING_LL", us, COMMUNICATION, (COMPUTE,)))


def waits_for_reduced(call: HostCall) -> HostCall:
    return replace(call, tasks=tuple(replace(task, after=(COMMUNICATION,)) for task in call.tasks))


REDUCED = reduced(150.0)
ADAM_FUSED = optimizer("AdamW", waits_for_reduced(called("aten::_fused_adamw_", Task("fused_adam", 90.0))))
ADAM_SINGLE = optimizer(
    "AdamW",
    waits_for_reduced(called("aten::lerp_", Task("lerp", 12.0))),
    *(called(name, Task(name, 12.0)) for name in ("aten::mul_", "aten::addcmul_", "aten::sqrt", "aten::addcdiv_") * 6),
)
LOADER = called("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", own_us=40.0, scope=SCOPE_USER, shapes="", types="")
COPIED = called("aten::copy_", Task("Memcpy HtoD (Pinned -> Device)", 30.0, COPY))
FIRST = replace(LINEAR, inside=(replace(LINEAR.inside[0], tasks=(Task("sgemm", 300.0, after=(COPY,)),)),))
BASE = (LOADER, COPIED, FIRST, GELU, SECOND, LOSS, *BACKWARD, REDUCED, ADAM_FUSED)


def change(old: HostCall, *new: HostCall, calls: Sequence[HostCall] = BASE) -> tuple[HostCall, ...]:
    """Calls with others in the place of one."""
    place = next(number for number, call in enumerate(calls) if call is old)
    return (*calls[:place], *new, *calls[place + 1 :])


def inner(call: HostCall, **values: object) -> HostCall:
    """A call whose first inner one has other values."""
    return replace(call, inside=(replace(call.inside[0], **values), *call.inside[1:]))


def assert_parts_add_up(recordings: Sequence[Recording]) -> None:
    """Each nanosecond of a part of the device period is of one row."""
    for recording in recordings:
        times = device_times(recording.traces[0])
        assert times is not None
        part = times.keys["part"].gather(times.times["key"])
        told = dict(times.times.with_columns(part=part).group_by("part").agg(pl.col("ns").sum()).iter_rows())
        expected = recording.usual.select(DEVICE_PARTS).sum().row(0, named=True)
        assert {name: told.get(name, 0.0) for name in DEVICE_PARTS} == pytest.approx(expected, abs=1.0)


def found(after: Sequence[HostCall], before: Sequence[HostCall] = BASE) -> Causes:
    sides = recorded_on_device(before), recorded_on_device(after)
    assert any(runs_behind(recording.traces[0]) for side in sides for recording in side)
    for side in sides:
        assert_parts_add_up(side)
    told = find_causes(*sides)
    assert told is not None and told.side == causes.DEVICE
    assert told.rest_ns == pytest.approx(0.0, abs=1.0)
    assert all("{" not in explain_cause(cause, language) for cause in told.causes for language in ("en", "zh"))
    return told


ITEM = called(
    "aten::item", shapes="", types="", inside=(
        called("aten::_local_scalar_dense", Task("Memcpy DtoH (Device -> Pageable)", 2.0, COPY, (COMPUTE,)), gap_us=0.0,
               waits="cudaStreamSynchronize"),
    ),
)  # fmt: skip
SYNCHRONIZE = called("synchronize", own_us=0.0, waits="cudaDeviceSynchronize", is_operator=False)
LOG = called("a log", own_us=80.0, is_operator=False)
LONG_LOG, LONG_SORT = replace(LOG, own_us=2500.0), called("aten::sort", own_us=2500.0)
#: name, later version, earlier version, kind of the first cause, what is said of it, its difference in us
CHANGES = [
    ("slower kernel", change(GELU, called("aten::gelu", Task("gelu_slow", 160.0), sequence=2)), BASE, causes.SPEED,
     "aten::gelu in forward takes", 100.0),
    ("split kernel", change(SECOND, inner(SECOND, tasks=(Task("sgemm_part", 280.0), Task("splitKreduce", 99.0)))), BASE,
     causes.SPEED, "aten::addmm in forward takes", 100.0),
    ("shapes", change(SECOND, inner(SECOND, tasks=(Task("sgemm", 480.0),), shapes="16,16;16,8")), BASE, causes.SHAPES,
     "works on [16,16] [16,8] instead of [8,16] [16,8]", 200.0),
    ("types", change(SECOND, inner(SECOND, tasks=(Task("hgemm", 120.0),), types="c10::BFloat16;c10::BFloat16")), BASE,
     causes.TYPES, "works on c10::BFloat16 instead of float", -160.0),
    ("more calls", change(GELU, GELU, replace(GELU, sequence=-1), replace(GELU, sequence=-1)), BASE, causes.CALLS,
     "aten::gelu in forward is called 3 times instead of 1", 122.0),
    ("added", change(LOSS, LOSS, called("aten::norm", Task("norm_kernel", 150.0))), BASE, causes.ADDED, "aten::norm", 151.0),
    ("communication", change(REDUCED, reduced(450.0)), BASE, causes.COMMUNICATION, "AllReduce", 300.0),
    ("copies", change(COPIED, called("aten::copy_", Task("Memcpy HtoD (Pageable -> Device)", 230.0, COPY, (COMPUTE,)))), BASE,
     causes.SPEED, "aten::copy_", None),
    ("not fused", change(ADAM_FUSED, ADAM_SINGLE), BASE, causes.OPTIMIZER,
     "the optimizer is AdamW (for each parameter) instead of AdamW (fused)", None),
    ("item", change(LOSS, LOSS, ITEM), BASE, causes.SYNCHRONISATION, "aten::item in forward", None),
    ("synchronize", change(GELU, GELU, SYNCHRONIZE, LOG), change(GELU, GELU, LOG), causes.SYNCHRONISATION,
     "cudaDeviceSynchronize", None),
    ("loader", change(LOADER, replace(LOADER, own_us=2500.0)), BASE, causes.LOADER, "waiting for the data loader", None),
    ("Python", change(GELU, GELU, LONG_LOG), BASE, causes.GAPS, "Python runs before aten::linear in forward", None),
    ("added operator of the host", change(GELU, GELU, LONG_SORT), BASE, causes.ADDED,
     "aten::sort in forward, which was not there before", None),
    ("operator of the host", change(GELU, GELU, LONG_SORT), change(GELU, GELU, called("aten::sort")), causes.GAPS,
     "while the host runs aten::sort in forward", None),
    ("launches", tuple(replace(call, own_us=350.0) for call in BASE), BASE, causes.GAPS, "while the host runs", None),
    ("allocation", change(GELU, replace(GELU, allocates_us=2500.0)), BASE, causes.GAPS,
     "while the host allocates its memory before aten::gelu in forward", None),
    ("Python behind a wait", change(GELU, GELU, SYNCHRONIZE, replace(LOG, own_us=980.0)), change(GELU, GELU, SYNCHRONIZE, LOG),
     causes.GAPS, "Python runs before aten::linear in forward", 900.0),
]  # fmt: skip


@pytest.mark.parametrize(("after", "before", "kind", "said", "us"), [row[1:] for row in CHANGES], ids=[row[0] for row in CHANGES])
def test_the_first_cause_is_the_true_one(
    after: Sequence[HostCall], before: Sequence[HostCall], kind: str, said: str, us: float | None
) -> None:
    told = found(after, before)
    first = told.causes[0]
    assert (first.kind, said in first.sentence) == (kind, True), [cause.sentence for cause in told.causes[:4]]
    assert first.is_certain
    if us is not None:
        assert first.difference_ns / 1000 == pytest.approx(us, abs=0.02 * abs(us) + 1.0)
    assert told.explained is not None and told.explained >= 0.9


def test_names_of_a_damaged_source_end_nothing() -> None:
    odd = replace(ITEM, name="aten::it\x1fem\x1f")
    told = find_causes(recorded_on_device(BASE), recorded_on_device(change(LOSS, LOSS, odd)))
    assert told is not None and told.causes[0].kind == causes.SYNCHRONISATION and told.rest_ns == pytest.approx(0.0, abs=1.0)


@pytest.mark.parametrize("source", ["kineto/cuda_ns_resolution_rank0.json.gz", "kineto/cuda_nccl_distributed.json.gz",
                                    "kineto/rocm_mi250_minitoy.json.gz", "ascend_pytorch/text_level1"])  # fmt: skip
def test_the_rows_of_a_real_capture_add_up(source: str) -> None:
    traces = steplens.open(shared(source)).traces
    assert traces
    for recording in find_recordings(traces[:1]):
        assert_parts_add_up([recording])


@pytest.mark.parametrize("place", range(3))
def test_an_operator_of_a_real_capture_that_is_made_slower_is_the_cause(place: int) -> None:
    """Of a capture of a GPU that runs behind its host; in the middle of each task of an operator more time passes."""
    (trace,) = steplens.open(shared("kineto/cuda_ns_resolution_rank0.json.gz")).traces
    assert runs_behind(trace)
    tasks = trace.required("kernels").filter(pl.col("kind").cast(pl.String) == "compute").select("op", "start_ns", "end_ns")
    named = tasks.join(trace.required("ops").select(op="id", name=pl.col("name").cast(pl.String)), on="op").collect()
    names = named.group_by("name").agg(ns=(pl.col("end_ns") - pl.col("start_ns")).sum()).sort("ns", descending=True)["name"]
    slower = named.filter(pl.col("name") == names[place])
    moments = ((slower["start_ns"] + slower["end_ns"]) // 2).to_list()
    extra_ns = 60_000_000 // len(moments)
    before, after = (
        find_recordings([insert_time(trace, moments, ns, 100 * side + number) for number in range(2)])
        for side, ns in enumerate((0, extra_ns))
    )
    assert_parts_add_up(after)
    told = find_causes(before, after)
    assert told is not None and told.side == causes.DEVICE and told.change_ns > 10e6
    first = told.causes[0]
    assert (first.kind, first.names) == (causes.SPEED, (names[place],)), [cause.sentence for cause in told.causes[:4]]
    assert told.explained is not None and told.explained >= 0.9
