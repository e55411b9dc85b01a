"""What explains the change of a step: programs whose change is known to the nanosecond."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from steplens.comparison.causes import cause as causes
from steplens.comparison.causes.cause import Causes
from steplens.comparison.causes.find import find_causes
from steplens.comparison.causes.sentences import explain_cause
from steplens.comparison.recordings import find_recordings
from steplens.trace.schema import SCOPE_BACKWARD, SCOPE_USER

from ..writers.builder import BASE_NS, MAIN, PID, build, op
from .programs import Call, called, program, recorded

NODE = "autograd::engine::evaluate_function: "
LINEAR = called("aten::linear", 4.0, sequence=1, inside=(called("aten::addmm", 60.0, gap_us=0.0),))
ATTENTION = (
    called("aten::matmul", 3.0, sequence=2, inside=(called("aten::bmm", 40.0, gap_us=0.0),)),
    called("aten::softmax", 25.0, sequence=3),
    called("aten::matmul", 3.0, sequence=4, inside=(called("aten::bmm", 40.0, gap_us=0.0),)),
)
FUSED = (called("aten::scaled_dot_product_attention", 50.0, sequence=2),)
LOSS = called("aten::mse_loss", 10.0, sequence=5)


def node(name: str, us: float, sequence: int) -> Call:
    return called(f"{NODE}{name}", 2.0, scope=SCOPE_BACKWARD, sequence=sequence, shapes="", types="", inside=(
        called(name, us, gap_us=0.0, scope=SCOPE_BACKWARD, sequence=sequence),
    ))  # fmt: skip


BACKWARD = (
    node("MseLossBackward0", 8.0, 5), node("BmmBackward0", 70.0, 4), node("SoftmaxBackward0", 30.0, 3),
    node("BmmBackward0", 70.0, 2), node("AddmmBackward0", 110.0, 1),
)  # fmt: skip
FUSED_BACKWARD = (BACKWARD[0], node("ScaledDotProductBackward0", 90.0, 2), BACKWARD[4])


def optimizer(name: str, *operators: Call) -> Call:
    return called(f"Optimizer.step#{name}.step", 5.0, scope=SCOPE_USER, shapes="", types="", inside=operators)


SGD = optimizer("SGD", *(called("aten::add_", 12.0) for _ in range(4)))
ADAM = optimizer("AdamW", *(called(name, 12.0) for name in ("aten::lerp_", "aten::addcmul_", "aten::sqrt", "aten::addcdiv_") * 4))
FOREACH = optimizer("SGD", called("aten::_foreach_add_", 30.0))
LOADER = called("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 30.0, scope=SCOPE_USER, shapes="", types="")
BASE = (LOADER, LINEAR, *ATTENTION, LOSS, *BACKWARD, SGD)


def change(old: Call, new: Call, calls: Sequence[Call] = BASE) -> tuple[Call, ...]:
    """Calls with another one in the place of one."""
    return tuple(new if call is old else call for call in calls)


def inner(call: Call, **values: object) -> Call:
    """A call whose first inner one has other values."""
    return replace(call, inside=(replace(call.inside[0], **values), *call.inside[1:]))


def found(after: Sequence[Call], before: Sequence[Call] = BASE) -> Causes:
    causes_found = find_causes(recorded(before), recorded(after))
    assert causes_found is not None and causes_found.side == causes.HOST
    # disjoint, and all that changed is there
    assert sum(cause.difference_ns for cause in causes_found.causes) == pytest.approx(causes_found.change_ns, abs=1.0)
    assert causes_found.rest_ns == pytest.approx(0.0, abs=1.0)
    return causes_found


RECOMPUTED = replace(BACKWARD[4], inside=(replace(BACKWARD[4].inside[0], inside=(replace(LINEAR, sequence=-1),)),))
#: name, later version, earlier version, kind of the first cause, what is said of it, its difference in us
CHANGES = [
    ("slower", change(LINEAR, inner(LINEAR, own_us=90.0)), BASE, causes.SPEED, "aten::addmm in forward takes 50 % longer", 30.0),
    (
        "more calls", (*BASE[:2], replace(LINEAR, sequence=-1), *BASE[2:]), BASE, causes.CALLS,
        "aten::linear in forward is called 2 times instead of 1", 68.0,
    ),
    (
        "other shapes", change(LINEAR, inner(LINEAR, own_us=100.0, shapes="16,8;8,8")), BASE, causes.SHAPES,
        "aten::addmm in forward works on [16,8] [8,8] instead of [8,8] [8,8]", 40.0,
    ),
    (
        "other types", change(LINEAR, inner(LINEAR, own_us=30.0, types="c10::BFloat16;c10::BFloat16")), BASE, causes.TYPES,
        "aten::addmm in forward works on c10::BFloat16 instead of float", -30.0,
    ),
    (
        "fused", (LOADER, LINEAR, *FUSED, LOSS, *FUSED_BACKWARD, SGD), BASE, causes.REPLACED,
        "aten::scaled_dot_product_attention", -67.0 - 86.0,
    ),
    (
        "split", (LOADER, LINEAR, *ATTENTION, LOSS, *BACKWARD, SGD), (LOADER, LINEAR, *FUSED, LOSS, *FUSED_BACKWARD, SGD),
        causes.REPLACED, "instead of", 67.0 + 86.0,
    ),
    (
        "renamed below", change(LINEAR, replace(LINEAR, inside=(called("aten::mkldnn_linear", 20.0, gap_us=0.0),))), BASE,
        causes.REPLACED, "aten::mkldnn_linear in forward instead of aten::addmm", -40.0,
    ),
    ("added", (*BASE[:-1], called("aten::norm", 35.0), SGD), BASE, causes.ADDED, "aten::norm", 37.0),
    ("removed", BASE, (*BASE[:-1], called("aten::norm", 35.0), SGD), causes.REMOVED, "aten::norm", -37.0),
    ("recomputed", change(BACKWARD[4], RECOMPUTED), BASE, causes.RECOMPUTED, "backward computes aten::linear", 66.0),
    ("optimizer", change(SGD, ADAM), BASE, causes.OPTIMIZER, "AdamW (for each parameter) instead of SGD (for each", 12 * 14.0),
    ("foreach", change(SGD, FOREACH), BASE, causes.OPTIMIZER, "SGD (foreach) instead of SGD (for each parameter)", -24.0),
    ("loader", change(LOADER, replace(LOADER, own_us=70.0)), BASE, causes.LOADER, "waiting for the data loader", 40.0),
    ("hook", change(LOSS, replace(LOSS, gap_us=52.0)), BASE, causes.GAPS, "time without an operator before aten::mse_loss", 50.0),
]  # fmt: skip


@pytest.mark.parametrize(("after", "before", "kind", "said", "us"), [row[1:] for row in CHANGES], ids=[row[0] for row in CHANGES])
def test_the_first_cause_is_the_true_one(after: Sequence[Call], before: Sequence[Call], kind: str, said: str, us: float) -> None:
    told = found(after, before)
    first = told.causes[0]
    assert first.kind == kind, first.sentence
    assert said in first.sentence
    assert first.is_certain and first.difference_ns / 1000 == pytest.approx(us, abs=0.6)
    assert told.explained is not None and told.explained >= 0.95
    assert first.share == pytest.approx(first.difference_ns / told.change_ns)
    # nothing else moved
    assert all(abs(cause.difference_ns) < 0.05 * abs(first.difference_ns) for cause in told.causes[1:])
    assert all("{" not in explain_cause(cause, language) for cause in told.causes for language in ("en", "zh"))


def test_two_changes_at_once_are_two_causes() -> None:
    told = found((LOADER, inner(LINEAR, own_us=90.0), *FUSED, LOSS, *FUSED_BACKWARD, called("aten::norm", 35.0), SGD))
    assert [cause.kind for cause in told.causes[:3]] == [causes.REPLACED, causes.ADDED, causes.SPEED]
    assert [round(cause.difference_ns / 1000) for cause in told.causes[:3]] == [-153, 37, 30]


def test_equal_programs_have_no_cause() -> None:
    told = found(BASE)
    assert told.explained is None and not any(cause.is_certain for cause in told.causes)


def test_work_that_changed_is_told_from_speed_and_modules_are_named() -> None:
    in_modules = [
        replace(LINEAR, module=f"net.{number}", inside=(replace(LINEAR.inside[0], module=f"net.{number}"),))
        for number in range(3)
    ]
    slow = inner(in_modules[1], own_us=95.0)
    told = found((LOADER, in_modules[0], slow, in_modules[2], LOSS, SGD), (LOADER, *in_modules, LOSS, SGD))
    first = told.causes[0]
    assert (first.kind, first.work, first.modules) == (causes.SPEED, causes.SAME, ("net.1",))
    wide = found(change(LINEAR, inner(LINEAR, own_us=100.0, shapes="16,8;8,8"))).causes[0]
    assert wide.work == causes.CHANGED
    plain = [replace(call, shapes="", inside=tuple(replace(one, shapes="", types="") for one in call.inside)) for call in BASE]
    slower = [inner(call, own_us=90.0) if call.name == "aten::linear" else call for call in plain]
    unknown = found(slower, plain).causes[0]
    assert (unknown.kind, unknown.work) == (causes.SPEED, causes.UNKNOWN) and "not recorded" in unknown.sentence


def plain_inputs(call: Call, **blank: str) -> Call:
    """A call, and those inside of it, without shapes or types of its inputs."""
    return replace(call, inside=tuple(plain_inputs(one, **blank) for one in call.inside), **blank)


@pytest.mark.parametrize("blank", [{"shapes": ""}, {"types": ""}, {"shapes": "", "types": ""}])
@pytest.mark.parametrize("is_swapped", [False, True])
def test_inputs_that_one_side_alone_recorded_are_no_change(blank: dict[str, str], is_swapped: bool) -> None:
    plain, shaped = [plain_inputs(call, **blank) for call in BASE], change(LINEAR, inner(LINEAR, own_us=90.0))
    told = found(plain, shaped) if is_swapped else found(shaped, plain)
    first = told.causes[0]
    assert (first.kind, first.names, round(abs(first.difference_ns) / 1000)) == (causes.SPEED, ("aten::addmm",), 30)
    assert first.work == (causes.UNKNOWN if "shapes" in blank else causes.SAME)
    assert not {cause.kind for cause in told.causes} & {causes.SHAPES, causes.TYPES}


def test_a_small_change_of_the_optimizer_says_which() -> None:
    big, longer = called("aten::big", 60_000.0), called("aten::big", 90_000.0)
    told = found((longer, *change(SGD, ADAM)), (big, *BASE))
    of_optimizer = next(cause for cause in told.causes if cause.kind == causes.OPTIMIZER)
    assert "AdamW (for each parameter) instead of SGD (for each parameter)" in of_optimizer.sentence


def test_steps_that_take_no_time_explain_nothing() -> None:
    """As a clock that stands still makes them: what is left tells."""
    marks = [{"id": number, "start_ns": BASE_NS, "end_ns": BASE_NS, "pid": PID, "tid": MAIN} for number in range(4)]
    still = build(meta={"rank": 0, "pid": 1, "whole_steps": True}, ops=[op("aten::mm", 10, 20)], steps=marks)
    assert find_causes(find_recordings([still]), find_recordings([still])) is None
    told = find_causes(find_recordings([program(BASE, pid=3)]), find_recordings([still, program(BASE, pid=2)]))
    assert told is not None and told.causes and all(abs(cause.difference_ns) < 1 for cause in told.causes)
    assert told.change_ns == pytest.approx(0.0, abs=1.0)


def test_a_side_without_operators_has_no_causes() -> None:
    assert find_causes([], recorded(BASE)) is None


def test_what_is_certain_and_does_not_matter_is_not_all_that_is_shown() -> None:
    told = found(change(LINEAR, inner(LINEAR, own_us=90.0)))
    large, *_ = told.causes
    tiny = replace(large, before_ns=1000.0, after_ns=1010.0, error_ns=1.0)
    doubtful = replace(large, error_ns=2 * large.difference_ns)
    assert replace(told, causes=(large, tiny, doubtful)).shown_first(5) == [large]
    assert replace(told, causes=(doubtful, tiny)).shown_first(5) == [doubtful, tiny]
    assert replace(told, causes=(doubtful, tiny)).shown_first(1) == [doubtful]
    assert replace(told, causes=()).shown_first(5) == []
