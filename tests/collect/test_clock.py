"""Two clocks that are read together, while another program may take the processor between the readings."""

from types import SimpleNamespace

import pytest

from steplens.collect.common import clock
from steplens.collect.host import host_sources

APART_NS = 1_700_000_000 * 10**9


class Machine:
    """A look at a clock takes 100 ns; after some of them, counted from 1, another program runs for 20 ms."""

    def __init__(self, *disturbed):
        self.disturbed = disturbed
        self.looks = self.now = 0

    def look(self):
        found = self.now
        self.looks += 1
        self.now += 20_000_000 if self.looks in self.disturbed else 100
        return found


@pytest.mark.parametrize("disturbed", [(), (1,), (2,), (1, 2, 4, 5), tuple(range(1, 58))], ids=str)
def test_both_times_are_of_one_moment(monkeypatch, disturbed):
    machine = Machine(*disturbed)
    monkeypatch.setattr(clock, "monotonic_ns", machine.look)
    monkeypatch.setattr(clock, "now_ns", lambda: machine.look() + APART_NS)
    unix, monotonic = clock.both_ns()
    assert abs(unix - monotonic - APART_NS) <= 100


def test_where_it_never_gets_the_processor_for_long_the_closest_reading_counts(monkeypatch):
    machine = Machine(*range(1, 56), *range(57, 1000))
    monkeypatch.setattr(clock, "monotonic_ns", machine.look)
    monkeypatch.setattr(clock, "now_ns", lambda: machine.look() + APART_NS)
    unix, monotonic = clock.both_ns()
    assert abs(unix - monotonic - APART_NS) <= 10_000_000


@pytest.mark.parametrize("disturbed", [(), (4,), (5,), (4, 5, 7, 8)], ids=str)
def test_a_process_that_always_runs_uses_one_processor(monkeypatch, disturbed):
    machine = Machine(*disturbed)
    times = SimpleNamespace(time_ns=lambda: machine.look() + APART_NS, clock_gettime_ns=lambda _: machine.look())
    monkeypatch.setattr(host_sources, "time", times)
    source = host_sources.ProcessorTime(SimpleNamespace(pid=1))
    source.restart(machine.now + APART_NS, machine.now)
    shares = []
    for _ in range(3):
        machine.now += 1_000_000
        shares += [share for _, _, share in source.sample(APART_NS)]
    assert shares == pytest.approx([100] * 3, rel=0.001)
