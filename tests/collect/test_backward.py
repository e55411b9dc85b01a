"""Windows whose beginning or end falls into a backward pass of PyTorch."""

import threading

import pytest

import steplens
from steplens import profile, schedule, tensorboard_trace_handler
from steplens.collect.torch_internals import backward as passes

torch = pytest.importorskip("torch")


def handler(folder="out"):
    return tensorboard_trace_handler(folder, analyse_flag=False)


def backward(*hooks):
    """A backward pass with these functions called inside of it."""
    weight = torch.ones(4, requires_grad=True)
    for hook in hooks:
        weight.register_hook(lambda gradient, hook=hook: (hook(), None)[1])
    (weight * 2).sum().backward()
    return weight.grad


def test_what_is_stopped_inside_of_backward_ends_after_it(look):
    """PyTorch would put the recording state back when the pass ends, and refuse every later window."""
    prof = profile(on_trace_ready=handler())
    prof.start()
    backward(prof.stop)
    assert not torch.autograd._profiler_enabled()
    (first,) = look.runs("out")
    assert look.state(first)["state"] == "collected"
    assert "aten::mul" in set(steplens.open(first).operators()["name"])
    with profile(on_trace_ready=handler("later")):
        torch.ones(4).exp()
    (second,) = look.runs("later")
    assert "aten::exp" in set(steplens.open(second).operators()["name"])


def test_steps_that_end_inside_of_backward_end_after_it(look):
    plan = schedule(wait=0, warmup=1, active=2, repeat=1)
    with profile(schedule=plan, on_trace_ready=handler()) as prof:
        for _ in range(3):
            torch.ones(4).exp()
            assert backward(prof.step) is not None
    assert not torch.autograd._profiler_enabled()
    (run,) = look.runs("out")
    opened = steplens.open(run)
    assert opened.steps()["step"].to_list() == [1, 2]
    calls = dict(opened.operators().select("name", "calls").iter_rows())
    assert (calls["aten::exp"], calls["MulBackward0"]) == (2, 2)


def test_a_window_within_one_backward_pass(look):
    prof = profile(on_trace_ready=handler())
    backward(prof.start, lambda: torch.ones(4).exp(), prof.stop)
    (run,) = look.runs("out")
    assert look.state(run)["state"] == "collected"
    assert set(steplens.open(run).operators()["name"]) >= {"aten::exp"}
    assert not torch.autograd._profiler_enabled()


def test_a_backward_pass_that_fails_ends_the_step_too(look):
    def fail():
        raise ValueError("in the hook")

    prof = profile(on_trace_ready=handler())
    prof.start()
    with pytest.raises(ValueError, match="in the hook"):
        backward(prof.stop, fail)
    (run,) = look.runs("out")
    assert look.state(run)["state"] == "collected"
    assert not torch.autograd._profiler_enabled()


def test_what_waits_is_called_once_and_in_order():
    passes.watch_backward()
    called = []

    def twice():
        for number in (1, 2):
            passes.call_after_backward(lambda number=number: called.append((number, passes.is_running())))
        assert passes.is_running()
        assert called == []

    backward(twice)
    assert called == [(1, False), (2, False)]
    passes.call_after_backward(lambda: called.append((3, passes.is_running())))
    assert called[2:] == [(3, False)]
    backward()
    assert len(called) == 3


def test_the_end_of_another_threads_pass_is_not_waited_for():
    passes.watch_backward()
    called, inside, over = [], threading.Event(), threading.Event()

    def hook():
        passes.call_after_backward(lambda: called.append(threading.get_ident()))
        inside.set()
        assert over.wait(60)

    thread = threading.Thread(target=backward, args=(hook,))
    thread.start()
    assert inside.wait(60)
    backward(lambda: passes.call_after_backward(lambda: called.append(0)))
    backward()
    assert called == [0]
    over.set()
    thread.join()
    assert called == [0, thread.ident]


def test_watching_again_changes_nothing():
    passes.watch_backward()
    before = torch.autograd._engine_run_backward
    passes.watch_backward()
    assert torch.autograd._engine_run_backward is torch.autograd.graph._engine_run_backward is before


def test_gradients_of_gradients_and_of_autograd_grad():
    called = []
    weight = torch.ones(4, requires_grad=True)
    weight.register_hook(lambda gradient: passes.call_after_backward(lambda: called.append(passes.is_running())))
    (gradient,) = torch.autograd.grad((weight**3).sum(), weight, create_graph=True)
    (again,) = torch.autograd.grad(gradient.sum(), weight)
    assert again.tolist() == [6.0] * 4
    assert called == [False, False]
