"""Ranges of nn.Module calls."""

import threading

import pytest

from steplens import profile, tensorboard_trace_handler

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.usefixtures("each_recorder")
nn = torch.nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(4, 4)

    def forward(self, x):
        return self.line(x)


class Net(nn.Module):
    def __init__(self, fail=None):
        super().__init__()
        self.encoder = nn.ModuleList([Block(), Block()])
        self.loose = [nn.ReLU()]
        self.fail = fail

    def forward(self, x):
        for block in self.encoder:
            x = block(x)
        if self.fail:
            raise self.fail
        return self.loose[0](x)


def record(look, run):
    with profile(on_trace_ready=tensorboard_trace_handler("out", analyse_flag=False), with_modules=True):
        run()
    (found,) = look.runs("out")
    assert not nn.modules.module._global_forward_hooks
    assert not nn.modules.module._global_forward_pre_hooks
    return [event for event in look.raw(found)["traceEvents"] if event["name"].startswith("nn.Module: ")], found


def modules(events):
    return [event["name"].removeprefix("nn.Module: ") for event in sorted(events, key=lambda event: event["ts"])]


def test_qualified_names(look):
    net = Net()
    events, _ = record(look, lambda: net(torch.ones(2, 4)))
    assert modules(events) == ["Net", "Net.encoder.0", "Net.encoder.0.line", "Net.encoder.1", "Net.encoder.1.line", "Net.ReLU"]
    outer = max(events, key=lambda event: event["dur"])
    for event in events:
        assert outer["ts"] <= event["ts"]
        assert event["ts"] + event["dur"] <= outer["ts"] + outer["dur"] + 0.001


def test_part_called_alone_is_named_by_itself_until_the_whole_is_called(look):
    net = Net()

    def run():
        net.encoder[0](torch.ones(2, 4))
        net(torch.ones(2, 4))

    events, _ = record(look, run)
    assert modules(events)[:5] == ["Block", "Block.line", "Net", "Net.encoder.0", "Net.encoder.0.line"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_exceptions_leave_no_range_open(look, error):
    broken, net = Net(fail=error()), Net()

    def run():
        with pytest.raises(error):
            broken(torch.ones(2, 4))
        if error is ValueError:
            net(torch.ones(2, 4))

    events, found = record(look, run)
    assert modules(events).count("Net") == (2 if error is ValueError else 1)
    first = next(event for event in events if event["name"] == "nn.Module: Net")
    second = [event for event in events if event["name"] == "nn.Module: Net"][1:]
    assert all(first["ts"] + first["dur"] <= event["ts"] for event in second)
    assert look.checks(found) == []


def test_caught_interrupt_inside_is_closed_with_the_outer_call(look):
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Net(fail=KeyboardInterrupt())

        def forward(self, x):
            try:
                self.inner(x)
            except KeyboardInterrupt:
                return x
            return None

    outer = Outer()
    events, _ = record(look, lambda: [outer(torch.ones(2, 4)) for _ in range(2)])
    assert modules(events).count("Outer") == 2
    assert modules(events).count("Outer.inner") == 2


def test_window_that_begins_and_ends_inside_a_call(look):
    class Inside(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = Net()

        def forward(self, x):
            self.prof.start()
            self.net(x)
            self.prof.stop()
            return x

    inside = Inside()
    inside.prof = profile(on_trace_ready=tensorboard_trace_handler("out", analyse_flag=False), with_modules=True)
    inside(torch.ones(2, 4))
    (run,) = look.runs("out")
    assert look.state(run)["state"] == "collected"
    assert look.checks(run) == []


def test_threads_do_not_mix(look, each_recorder):
    nets = [Net(), Net()]

    def run():
        threads = [threading.Thread(target=lambda net=net: [net(torch.ones(2, 4)) for _ in range(20)]) for net in nets]
        for thread in threads:
            thread.start()
        nets[0](torch.ones(2, 4))
        for thread in threads:
            thread.join()

    events, found = record(look, run)
    # Kineto only records the thread that started it
    assert modules(events).count("Net") == (1 if each_recorder == "off" else 41)
    if each_recorder != "off":
        of_threads = {event["tid"] for event in events}
        assert len(of_threads) == 3
        assert all(sum(event["tid"] == thread for event in events) in (6, 120) for thread in of_threads)
    assert look.checks(found) == []


def test_compiled_model_still_runs(look):
    net = torch.compile(Block(), backend="eager")
    expected = net(torch.ones(2, 4))
    results = []
    _, found = record(look, lambda: results.append(net(torch.ones(2, 4))))
    assert torch.equal(results[0], expected)
    assert look.checks(found) == []


def test_gradients_are_the_same(look):
    net = Net()
    net(torch.ones(2, 4)).sum().backward()
    expected = net.encoder[0].line.weight.grad.clone()
    net.zero_grad()
    record(look, lambda: net(torch.ones(2, 4)).sum().backward())
    assert torch.equal(net.encoder[0].line.weight.grad, expected)
