"""Steps of a script that trains nothing: where one ends, and what is none."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from steplens.collect.dynamic.steps.forward_steps import ForwardSteps  # noqa: E402

ORIGINAL = torch.nn.Module.__call__


@pytest.fixture
def kinds() -> Iterator[SimpleNamespace]:
    """Classes of models that no other test knows; afterwards the class of all modules is as it was."""

    class Inner(torch.nn.Module):  # type: ignore[misc]
        def forward(self, values: Any) -> Any:
            return values * 2

    class Net(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        def forward(self, values: Any, left: int = 0) -> Any:
            return self(values, left - 1) if left else self.inner(values)

    class Failing(Net):
        def forward(self, values: Any, left: int = 0) -> Any:
            raise ValueError("of the model")

    yield SimpleNamespace(Inner=Inner, Net=Net, Failing=Failing)
    # a model that ends now has the next one looked for
    gc.collect()
    torch.nn.Module.__call__ = ORIGINAL


@pytest.fixture
def steps(kinds: SimpleNamespace) -> ForwardSteps:
    found = ForwardSteps(lambda: None)
    found.install()
    return found


VALUES = torch.ones(2)


def test_every_call_of_the_model_but_the_first_ends_a_step(steps: ForwardSteps, kinds: SimpleNamespace) -> None:
    net = kinds.Net()
    counts = []
    for _ in range(4):
        net(VALUES)
        counts.append(steps.count)
    assert counts == [0, 1, 2, 3]


def test_the_step_has_ended_when_the_call_begins(kinds: SimpleNamespace) -> None:
    said: list[str] = []

    class Talking(kinds.Net):  # type: ignore[misc, name-defined]
        def forward(self, values: Any, left: int = 0) -> Any:
            said.append("call")
            return values

    ForwardSteps(lambda: said.append("step"), lambda: said.append("model")).install()
    net = Talking()
    hook = torch.nn.modules.module.register_module_forward_pre_hook(lambda module, inputs: said.append("hook"))
    try:
        net(VALUES)
        net(VALUES)
    finally:
        hook.remove()
    assert said == ["model", "hook", "call", "step", "hook", "call"]


def test_other_modules_end_no_step(steps: ForwardSteps, kinds: SimpleNamespace) -> None:
    net, other = kinds.Net(), kinds.Net()
    net(VALUES)
    other(VALUES)
    net.inner(VALUES)
    assert steps.count == 0


def test_a_model_that_calls_itself_is_one_call(steps: ForwardSteps, kinds: SimpleNamespace) -> None:
    net = kinds.Net()
    net(VALUES)
    net(VALUES, 3)
    assert steps.count == 1


def test_a_method_that_was_kept_is_the_model(steps: ForwardSteps, kinds: SimpleNamespace) -> None:
    net = kinds.Net()
    call = net.__call__
    for _ in range(3):
        call(VALUES)
    assert steps.count == 2


def test_a_call_that_fails_is_a_call_and_its_exception_the_scripts(steps: ForwardSteps, kinds: SimpleNamespace) -> None:
    net = kinds.Failing()
    for _ in range(3):
        with pytest.raises(ValueError, match="of the model"):
            net(VALUES)
    assert steps.count == 2


def test_the_next_model_takes_the_place_of_one_that_is_gone(steps: ForwardSteps, kinds: SimpleNamespace) -> None:
    for expected in (1, 2, 3):
        net = kinds.Net()
        net(VALUES)
        net(VALUES)
        assert steps.count == expected
        del net
        gc.collect()


def test_calls_on_other_threads_do_not_count(steps: ForwardSteps, kinds: SimpleNamespace) -> None:
    net = kinds.Net()
    net(VALUES)
    thread = threading.Thread(target=net, args=(VALUES,))
    thread.start()
    thread.join()
    assert steps.count == 0
    net(VALUES)
    assert steps.count == 1


def test_what_is_calculated_again_inside_of_backward_is_no_step(steps: ForwardSteps, kinds: SimpleNamespace) -> None:
    net = kinds.Net()
    values = torch.ones(2, requires_grad=True)
    for _ in range(3):
        torch.utils.checkpoint.checkpoint(net, values, use_reentrant=False).sum().backward()
    assert steps.count == 2


def test_only_the_class_of_the_model_is_extended(steps: ForwardSteps, kinds: SimpleNamespace) -> None:
    net = kinds.Net()
    net(VALUES)
    assert torch.nn.Module.__call__ is ORIGINAL
    assert kinds.Inner.__call__ is ORIGINAL
    assert torch.nn.Linear.__call__ is ORIGINAL
    assert kinds.Net.__call__ is not ORIGINAL


def test_one_model_leads_while_others_of_its_class_come_and_go(steps: ForwardSteps, kinds: SimpleNamespace) -> None:
    first = kinds.Net()
    first(VALUES)
    del first
    gc.collect()
    second = kinds.Net()
    second(VALUES)
    kinds.Failing()
    torch.nn.Linear(2, 2)(VALUES)
    second(VALUES)
    assert steps.count == 1


def test_a_forked_process_counts_its_own(steps: ForwardSteps, kinds: SimpleNamespace) -> None:
    net = kinds.Net()
    net(VALUES)
    net(VALUES)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            net(VALUES)
            before = steps.count
            steps.follow_fork()
            for _ in range(3):
                net(VALUES)
            os.write(write, f"{before} {steps.count}".encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 100) == b"1 2"
    os.close(read)
    os.close(write)
    assert steps.count == 1
