"""Phases of trainings on the CPU, recorded as users record, against what the trainings measured of themselves."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import polars as pl
import pytest

import steplens
from steplens.analysis.steps.phases import BETWEEN, host_phase_names, host_phases
from steplens.analysis.steps.times import step_times
from steplens.trace.trace import Trace

from ..warm_python import run_warm, run_warm_ranks
from .simulation import PHASES

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("timed_training.py")
#: of what was measured; and, of a phase that a training does not have, how much of its next to nothing may be told, ns
TOLERANCE, NOTHING_NS = 0.05, 1_500_000
#: between the last gradient and the end of backward two threads hand over to each other, and four ranks share two cores
HANDING_OVER_NS = 5_000_000

#: only the module's own call says what is forward
NEEDS_MODULES = {"validation", "inference"}
CASES = ["plain", "accumulation", "several_losses", "checkpointing", "closure", "validation", "inference"]


def train(case: str, folder: Path, *, ranks: int = 1, with_modules: bool = False) -> None:
    command = [SCRIPT, case, folder, *(["with_modules"] if with_modules else [])]
    done = run_warm_ranks(ranks, *command) if ranks > 1 else run_warm(*command)
    assert done.returncode == 0, done.stderr[-3000:]


def traces(folder: Path, ranks: int = 1) -> dict[int, Trace]:
    run = steplens.open(folder)
    return {rank: run.trace(rank) for rank in range(ranks)} if ranks > 1 else {0: run.trace()}


def beyond(difference: int, waited: int) -> int:
    """What of a difference is not explained by waiting."""
    return max(abs(difference) - waited, 0) * (1 if difference > 0 else -1)


def assert_phases(trace: Trace, folder: Path, rank: int = 0) -> None:
    """Every phase within 5 % of its measured time, in the median over steps.

    The two clocks may differ by more where the process waited for a processor: by no more than it did in that step.
    """
    measured = json.loads((folder / f"measured_{rank}.json").read_text())
    told = host_phases(trace).sort("step")
    assert told.height == len(measured)
    wrong = []
    for phase in (*PHASES, "gradient_sync"):
        column = "data_wait_ns" if phase == "data" else f"{phase}_ns"
        wanted = [step.get(phase, 0) for step in measured]
        differences = [beyond(row - want, step["waited"]) for row, want, step in zip(told[column], wanted, measured, strict=True)]
        usual = statistics.median(wanted)
        noise = HANDING_OVER_NS if phase == "gradient_sync" else NOTHING_NS
        if abs(statistics.median(differences)) > max(TOLERANCE * usual, noise):
            told_ms, wanted_ms = statistics.median(told[column].to_list()) / 1e6, usual / 1e6
            wrong.append(f"{phase}: {told_ms:.2f} ms, measured {wanted_ms:.2f} ms")
    assert not wrong, "; ".join(wrong)


# every loop with modules; without them one, and the others, which are recorded alike, in `make test-long`
@pytest.mark.parametrize(
    ("case", "with_modules"),
    [
        *((case, True) for case in CASES),
        ("plain", False),
        *(pytest.param(case, False, marks=pytest.mark.long) for case in CASES if case not in {"plain", *NEEDS_MODULES}),
    ],
)
def test_phases(case: str, with_modules: bool, tmp_path: Path) -> None:
    train(case, tmp_path, with_modules=with_modules)
    trace = traces(tmp_path)[0]
    assert_phases(trace, tmp_path)
    # the CPU is the device: nothing runs behind the host, and no figure of it is longer than a step
    steps = step_times(trace)
    assert steps["step_time_ns"].to_list() == steps["duration_ns"].to_list()


def test_what_is_between_has_names(tmp_path: Path) -> None:
    """The augmentation and what was put behind clipping: 50 ms of each step, in one operator's name."""
    train("plain", tmp_path)
    names = host_phase_names(traces(tmp_path)[0])
    first = (
        names.filter(names["phase"] == BETWEEN)
        .group_by("name")
        .agg(pl.col("time_ns").sum())
        .sort("time_ns", descending=True)
        .row(0, named=True)
    )
    assert str(first["name"]) == "truth::work"


# four processes on a machine of two processors need it for themselves
@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=[pytest.mark.long, pytest.mark.alone])])
def test_gradient_synchronisation(ranks: int, tmp_path: Path) -> None:
    """The last rank is late: all others wait for it in backward, and for that long gradients are synchronised."""
    train("distributed", tmp_path, ranks=ranks)
    recorded = traces(tmp_path, ranks)
    for rank, trace in recorded.items():
        assert_phases(trace, tmp_path, rank)
