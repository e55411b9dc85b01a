"""Which steps a schedule records."""

import pytest

from steplens import ProfilerAction, schedule

LETTERS = {"N": ProfilerAction.NONE, "W": ProfilerAction.WARMUP, "R": ProfilerAction.RECORD, "S": ProfilerAction.RECORD_AND_SAVE}


@pytest.mark.parametrize(
    ("repeat", "expected"),
    [
        (0, {0: "N", 1: "N", 3: "N", 5: "W", 6: "R", 7: "S", 13: "S"}),
        (1, {7: "S", 13: "N"}),
        (4, {13: "S", 25: "S", 30: "N"}),
    ],
)
def test_cycles(repeat, expected):
    plan = schedule(wait=2, active=2, warmup=2, repeat=repeat, skip_first=2)
    assert {step: plan(step) for step in expected} == {step: LETTERS[letter] for step, letter in expected.items()}


@pytest.mark.parametrize("arguments", [(0, 0, 0, 0, 0), (-1, -1, -1, -1, -1)])
def test_reset_values_record_every_step(arguments):
    plan = schedule(*arguments)
    assert plan.active == 1
    assert {plan(step) for step in range(20)} == {ProfilerAction.RECORD_AND_SAVE}


@pytest.mark.parametrize(("skip_first_wait", "expected"), [(1, "NWRSNNWRSNNNN"), (0, "NNNWRSNNWRSNN"), (0.5, "NNNWRSNNWRSNN")])
def test_first_wait_can_be_skipped(skip_first_wait, expected):
    plan = schedule(skip_first=1, wait=2, warmup=1, active=2, repeat=2, skip_first_wait=skip_first_wait)
    assert [plan(step) for step in range(13)] == [LETTERS[letter] for letter in expected]


def test_second_positional_argument_is_active():
    plan = schedule(1, 3, 2)
    assert (plan.wait, plan.active, plan.warmup) == (1, 3, 2)


def test_negative_step_raises():
    with pytest.raises(ValueError, match="not less than 0"):
        schedule(wait=0, active=1)(-1)


@pytest.mark.parametrize("value", [-1, 1.5, "2", None])
@pytest.mark.parametrize("name", ["wait", "warmup", "repeat", "skip_first", "active"])
def test_wrong_value_is_reset_with_a_warning(name, value, capfd):
    plan = schedule(**{"wait": 1, "active": 1, "warmup": 1, name: value})
    assert getattr(plan, name) == (1 if name == "active" else 0)
    assert f"[WARNING] [{__import__('os').getpid()}] profiler.py: Parameter {name} " in capfd.readouterr().err


def test_missing_warmup_is_recommended(capfd):
    schedule(wait=0, active=1)
    assert "warmup" in capfd.readouterr().err


@pytest.mark.parametrize(("variable", "value"), [("TORCH_NPU_WARNING_DISABLE", "1"), ("RANK", "3")])
def test_warnings_can_be_muted(variable, value, monkeypatch, capfd):
    monkeypatch.setenv(variable, value)
    schedule(wait=-1, active=1)
    assert capfd.readouterr().err == ""
