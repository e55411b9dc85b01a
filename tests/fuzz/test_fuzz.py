"""A short hunt on every reader, the mistakes that longer ones found, and whether a hunt would notice."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from . import campaign, targets, worker
from .mutations import LIMIT, SIZE_LIMIT, Step, mutate
from .seeds import SEEDS, Seed

numbers = st.integers(0, LIMIT - 1)
programs = st.lists(st.tuples(numbers, numbers, numbers, numbers, numbers), min_size=1, max_size=4)


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Seed]]:
    return {reader: campaign.make_seeds(reader, tmp_path_factory.mktemp(reader)) for reader in SEEDS}


@pytest.mark.parametrize("reader", SEEDS)
def test_good_captures_are_read(reader: str, seeds: dict[str, list[Seed]], tmp_path: Path) -> None:
    for seed in seeds[reader]:
        result = worker.run(reader, seed.files, tmp_path / "case")
        assert result["failure"] == ""
        assert result["outcome"].startswith("read: ")
        # there is something in it to damage
        assert "ops" in result["outcome"] or "kernels" in result["outcome"]


# more of them find more, so there is no end to them
@pytest.mark.parametrize("examples", [6, pytest.param(50, marks=pytest.mark.long)])
@pytest.mark.parametrize("reader", SEEDS)
def test_damaged_captures_give_a_trace_or_an_input_error(
    reader: str, examples: int, seeds: dict[str, list[Seed]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    scratch = tmp_path_factory.mktemp(reader) / "case"

    # the same programs every time: what is new is for the long hunts
    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(which=st.integers(0, 20), program=programs)
    def hunt(which: int, program: list[Step]) -> None:
        seed = seeds[reader][which % len(seeds[reader])]
        result = worker.run(reader, mutate(seed.files, seed.targets, program), scratch)
        assert result["failure"] == "", result["failure"]

    hunt()


def _side_file(seeds: dict[str, list[Seed]], ending: str, value: Any, tmp_path: Path) -> dict[str, Any]:
    (seed,) = seeds["run_directory"]
    (name,) = (name for name in seed.files if name.endswith(ending))
    return worker.run("run_directory", {**seed.files, name: json.dumps(value).encode()}, tmp_path / "case")


ENTRY = {
    "is_p2p": False, "process_group": ["0", "default_pg"], "profiling_name": "gloo:all_reduce", "input_sizes": [[3]],
    "input_dtypes": ["Float"], "time_created_ns": 1,
}  # fmt: skip


@pytest.mark.parametrize(
    ("ending", "value"),
    [
        ("host_events.json", {"gc": [[1 << 70, 2, 3, 4, 5]]}),
        ("host_events.json", {"gc": [[1, 2, 10**10, 4, 5]]}),
        ("host_events.json", {"gc": [[1, 2, True, 4, "5"], [1, 2], 7]}),
        ("host_events.json", {"gc": 7}),
        ("collectives.json", {"entries": [{**ENTRY, "time_created_ns": 1 << 70}]}),
        ("collectives.json", {"entries": [{**ENTRY, "input_sizes": [[1 << 40] * 9999]}]}),
        ("collectives.json", {"entries": [{**ENTRY, "profiling_name": 7, "process_group": [{}, []]}]}),
        ("collectives.json", {"entries": [{**ENTRY, "input_dtypes": ["half \ud800"]}]}),
        ("collectives.json", {"entries": {}}),
        ("state.json", {"state": "collected", "health": [{"check": "a", "severity": "info", "count": 1 << 70}]}),
        ("state.json", {"state": "collected", "health": [{"count": -(1 << 70)}, 7, None]}),
        ("state.json", {"state": "collected", "health": 7}),
        ("profiler_metadata.json", {"half \ud800": ["of \ud800 a", {"pair \udfff": "\udc00"}]}),
    ],
)
def test_side_files_of_any_numbers(ending: str, value: Any, seeds: dict[str, list[Seed]], tmp_path: Path) -> None:
    result = _side_file(seeds, ending, value, tmp_path)
    assert result["failure"] == ""
    assert "ops" in result["outcome"]


def test_a_program_does_the_same_every_time(seeds: dict[str, list[Seed]]) -> None:
    program: list[Step] = [(3, 7, 5, 11, 13), (1, 2, 1 << 20, 1 << 30, 77), (0, 5, 99, 98, 97)]
    for reader in SEEDS:
        for seed in seeds[reader]:
            changed = mutate(seed.files, seed.targets, program)
            assert changed == mutate(seed.files, seed.targets, program)
            untouched = set(seed.files) - set(seed.targets)
            assert all(changed[name] == seed.files[name] for name in untouched)
            assert all(len(data) <= max(SIZE_LIMIT, 2 * len(seed.files.get(name, b""))) for name, data in changed.items())


def test_most_programs_change_something(seeds: dict[str, list[Seed]]) -> None:
    for reader in SEEDS:
        seed = seeds[reader][0]
        changed = sum(
            mutate(seed.files, seed.targets, [(n, n * 3, n * 7919, n * 104_729, n * 31)]) != seed.files for n in range(1, 60)
        )
        assert changed > 40


@pytest.mark.parametrize(
    ("does", "expected"),
    [("raises", "ValueError: wrong"), ("is slow", "of processor time"), ("is greedy", "MiB more than any case before")],
)
def test_a_hunt_notices(
    does: str, expected: str, seeds: dict[str, list[Seed]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(path: Path, *, through_cache: bool = False) -> str:
        if does == "raises":
            raise ValueError("wrong")
        if does == "is slow":
            monkeypatch.setattr(worker, "TIME_LIMIT", 0.01)
            end = time.process_time() + 0.05
            while time.process_time() < end:
                pass
        if does == "is greedy":
            # less than the limit is noticed as well when the peak before was higher, so the limit is lowered instead
            monkeypatch.setattr(worker, "MEMORY_LIMIT", -1)
            monkeypatch.setattr(worker, "MEMORY_PER_BYTE", 0)
        return "read: "

    monkeypatch.setattr(targets, "read", read)
    result = worker.run("kineto", seeds["kineto"][0].files, tmp_path / "case")
    assert expected in result["failure"]


@pytest.mark.parametrize(
    ("code", "expected"),
    [("import os; os.abort()", "failed: died"), ("import time; time.sleep(60)", "failed: hang"), ("print('x', end='')", "died")],
)
def test_a_hunt_notices_a_worker_that_dies_or_hangs(
    code: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "hang" in expected:  # what dies is waited for as long as a busy machine takes to start it
        monkeypatch.setattr(campaign, "HANG", 1.0)
    asked = campaign.Worker("kineto", tmp_path / "seeds", tmp_path / "case")
    monkeypatch.setattr(asked, "_command", [sys.executable, "-c", code])
    result = asked.ask({"seed": 0, "program": []})
    asked.close()
    assert expected in result["outcome"]
    assert result["failure"]


def test_failures_of_one_mistake_are_one() -> None:
    def failure(value: int) -> str:
        return f'File "/a/steplens/trace/x.py", line 7, in f\n  boom\nValueError: {value} is too large'

    assert campaign.place(failure(5)) == campaign.place(failure(123)) == "steplens/trace/x.py:7 f: ValueError: # is too large"


def test_a_campaign_from_end_to_end(tmp_path: Path) -> None:
    report = campaign.hunt("framework", 1.0, cases=15, save=tmp_path)
    assert report.cases == 15
    assert sum(report.outcomes.values()) == 15
    assert report.failures == {}
    assert list(tmp_path.iterdir()) == []
