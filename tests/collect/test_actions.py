"""The action table."""

import pytest

from steplens import ProfilerAction
from steplens.collect.pytorch import actions
from steplens.collect.pytorch.actions import TRANSITIONS, ActionController, to_action

CALLS = ("warn", "init_trace", "warmup_trace", "start_trace", "stop_trace", "finalize_trace", "trace_ready", "delete_prof_dir")


@pytest.fixture
def controller():
    calls = []

    def call(name):
        return lambda *_: calls.append(name)

    failed = []
    result = ActionController({name: call(name) for name in CALLS}, lambda name, exception: failed.append((name, str(exception))))
    result.calls, result.failed_calls = calls, failed
    return result


def test_every_transition_once_gives_the_known_counts(controller):
    assert len(TRANSITIONS) == 20
    for previous, current in TRANSITIONS:
        controller.transit(previous, current)
    counts = [controller.calls.count(name) for name in CALLS if name not in ("warn", "warmup_trace")]
    assert counts == [6, 7, 9, 10, 6, 1]


def test_every_pair_of_actions_is_in_the_table():
    currents = [*ProfilerAction, actions.EXIT]
    assert set(TRANSITIONS) == {(previous, current) for previous in ProfilerAction for current in currents}


def test_calls_come_in_order(controller):
    controller.transit(ProfilerAction.RECORD_AND_SAVE, ProfilerAction.WARMUP)
    assert controller.calls == ["stop_trace", "finalize_trace", "trace_ready", "init_trace", "warmup_trace"]


def test_a_failing_call_does_not_stop_the_others(controller):
    def fail():
        raise OSError("no")

    controller._calls = {**controller._calls, "stop_trace": fail}
    controller.transit(ProfilerAction.RECORD_AND_SAVE, ProfilerAction.NONE)
    assert controller.calls == ["finalize_trace", "trace_ready"]
    assert controller.failed_calls == [("stop_trace", "no")]


def test_actions_of_torch_are_understood():
    torch_profiler = pytest.importorskip("torch.profiler")
    assert to_action(torch_profiler.ProfilerAction.RECORD_AND_SAVE) is ProfilerAction.RECORD_AND_SAVE
    with pytest.raises(TypeError, match="not a ProfilerAction"):
        to_action("RECORD")
