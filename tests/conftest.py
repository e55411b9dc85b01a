"""What holds for every test."""

from __future__ import annotations

import gc
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from . import captures_marker, shared_data
from .once import once, run_ranks, session_folder

# benchmarks is a package in the root of the repository, which pytest alone does not look into
sys.path.append(str(Path(__file__).resolve().parents[1]))

# The time of an example, or of making one, says how busy the machine is, not whether the code is right.
ANY_TIME = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
#: the same examples every time
settings.register_profile("steplens", derandomize=True, database=None, max_examples=60, **ANY_TIME)
#: other ones each time, and more, for `make test-long`: --hypothesis-profile=free
settings.register_profile("free", max_examples=300, **ANY_TIME)
settings.load_profile("steplens")


def pytest_configure() -> None:
    """What a script starts in the background ignores Ctrl-C, and hands that on to all that it starts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


# before pytest looks which markers were asked for
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    captures_marker.mark(items)


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: to look through it again and again costs a twentieth of all tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def pytest_runtest_setup() -> None:
    shared_data.asked = False


def pytest_runtest_teardown(item: pytest.Item) -> None:
    captures_marker.check(item)


@pytest.fixture(scope="session", autouse=True)
def state_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where steplens keeps its secret and its caches, also in processes that tests start: nothing of the user is used or made.

    All workers have the same, so that what one keeps beside a shared recording serves the others.
    """
    folder = session_folder(tmp_path_factory) / "state"
    folder.mkdir(mode=0o700, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder))
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        yield folder


@pytest.fixture
def million_steps_s() -> float:
    """Processor time of a loop of a million steps, here and now: limits of time are multiples of it, because machines differ."""
    taken = []
    for _ in range(3):
        begin = time.process_time()
        for _ in range(1_000_000):
            pass
        taken.append(time.process_time() - begin)
    return min(taken)


@pytest.fixture(scope="session")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded training on four ranks, the last of which is late; nobody changes it."""
    pytest.importorskip("torch")
    script = Path(__file__).with_name("server") / "cluster_job.py"
    return once(tmp_path_factory, "cluster", lambda folder: run_ranks(4, script, folder / "run", folder=folder)) / "run"
