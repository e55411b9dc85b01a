"""How long threads wait for a processor, against a program that has to share one."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from steplens.collect.common.processor_times import thread_times, time_between

pytestmark = pytest.mark.skipif(
    not os.path.exists("/proc/self/schedstat"), reason="this system does not tell how long threads wait"
)


def work(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def test_a_thread_that_shares_its_processor_waits_half_of_the_time() -> None:
    allowed = os.sched_getaffinity(0)
    one = min(allowed)
    child = subprocess.Popen([sys.executable, "-c", f"import os\nos.sched_setaffinity(0, {{{one}}})\nwhile True: pass"])
    try:
        os.sched_setaffinity(0, {one})
        time.sleep(0.2)
        before = thread_times()
        work(0.6)
        shared = time_between(before, thread_times())
    finally:
        child.kill()
        child.wait()
        os.sched_setaffinity(0, allowed)
    assert shared is not None
    # on a machine that has more to do it waits longer
    assert shared["waited_ns"] > 0.3 * (shared["ran_ns"] + shared["waited_ns"])
    assert 0.05e9 < shared["ran_ns"] < 0.75e9


def test_what_is_not_known_is_not_said() -> None:
    assert time_between({}, thread_times()) is None and time_between(thread_times(), {}) is None
    # a thread that began meanwhile counts from its beginning, one that ended in neither sum
    assert time_between({"1": (100, 10), "2": (5, 5)}, {"1": (150, 30), "3": (7, 2)}) == {"ran_ns": 57, "waited_ns": 22}
