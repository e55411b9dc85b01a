"""Runs the seeded training and opens what it recorded: for the tests of the rules and the table of their precision."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import steplens
from steplens.advice import Advice, advise

SCRIPT = Path(__file__).with_name("seeded.py")
_SECONDS = 600
#: a run that waited for a processor for a larger share of its steps shows what else the machine did
BUSY = 0.1
#: what the rule about large blocks advises. All runs but its own fault keep freed memory: whether a page has to be asked for
#: depends on the layout of the heap, and would make runs of equal programs differ by more than some faults cost
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(1 << 32), "MALLOC_TRIM_THRESHOLD_": str(1 << 34), "MALLOC_TOP_PAD_": str(1 << 26)}


@dataclass(frozen=True)
class Trained:
    """One recorded run: what its own clock says of its steps (the slowest rank's), and what steplens says.

    Attributes:
        out: where it was recorded.
        median_ns, mean_ns: of the recorded steps.
        delayed: share of them in which the loop waited for a processor that others had.
        advice: the findings.
    """

    out: Path
    median_ns: float
    mean_ns: float
    delayed: float
    advice: Advice


class Trainer:
    """Processes that train on request; a context manager."""

    def __init__(self) -> None:
        self._servers: dict[bool, subprocess.Popen[str]] = {}

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers.values():
            server.kill()
            server.communicate()

    def train(self, fault: str, out: Path, ranks: int = 1) -> Trained:
        """Train with one fault, in as many processes as there are ranks.

        Raises:
            RuntimeError: it failed; with the reason.
        """
        keeps = fault != "blocks"
        server = self._servers.get(keeps) or self._start(keeps)
        assert server.stdin is not None
        assert server.stdout is not None
        print(json.dumps({"fault": fault, "out": str(out), "ranks": ranks}), file=server.stdin, flush=True)
        if not select.select([server.stdout], [], [], _SECONDS)[0]:
            raise RuntimeError(f"{fault} did not end within {_SECONDS} s")
        said = json.loads(server.stdout.readline() or '{"error": "the server died"}')
        if said["error"]:
            raise RuntimeError(f"{fault}: {said['error'][-2000:]}")
        median, mean, delayed = (max(float(time[key]) for time in said["times"]) for key in ("median", "mean", "delayed"))
        return Trained(out, median, mean, delayed, advise(steplens.open(out)))

    def _start(self, keeps: bool) -> subprocess.Popen[str]:
        command = [sys.executable, str(SCRIPT)]
        environment = {**os.environ, **(KEEP_MEMORY if keeps else {})}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self._servers[keeps] = subprocess.Popen(command, env=environment, text=True, **pipes)
        return self._servers[keeps]


@dataclass(frozen=True)
class Fault:
    """A fault, what must name it, and the training without it.

    Attributes:
        name: of ``seeded.FAULTS``.
        rules: one of these must name it.
        cured: of ``seeded.FAULTS``: the same training without the fault.
        ranks: number of processes.
        priced: whether the finding promises time.
    """

    name: str
    rules: tuple[str, ...]
    cured: str = "none"
    ranks: int = 1
    priced: bool = True


#: any rule about the loader's workers: the more is known of them, the more precise it is
_LOADER = ("loader_too_slow", "loader_slow_fetch", "loader_slow_transform", "loader_slow_collate")

FAULTS = (
    Fault("workers", ("loader_without_workers",)),
    Fault("source", _LOADER),
    Fault("transform", _LOADER),
    Fault("collections", ("garbage_collection",)),
    Fault("optimizer", ("single_tensor_optimizer",), "fused"),
    Fault("loop", ("tiny_operators",)),
    Fault("items", ("scalar_reads",)),
    Fault("python", ("python_in_the_loop",)),
    Fault("shapes", ("changing_shapes",), "padded"),
    Fault("recompilation", ("recompilation",), "compiled"),
    Fault("zeros", ("gradient_zeroing",), "nones"),
    Fault("float32", ("float32_matmul",), "bfloat16"),
    Fault("checkpoints", ("checkpoint_stalls",), "background"),
    Fault("outliers", ("outlier_steps",)),
    Fault("leak", ("memory_growth",), priced=False),
    Fault("blocks", ("large_blocks",), "kept_blocks", priced=False),
    Fault("cold", ("first_steps",), priced=False),
    Fault("straggler", ("slow_rank",), ranks=2),
    Fault("straggler", ("slow_rank",), ranks=4),
    Fault("after_backward", ("exposed_gradients",), "beside_backward", ranks=2),
)
#: trainings without a fault, and their number of ranks
HEALTHY = (("none", 1), ("in_memory", 1), ("none", 2), ("none", 4))
#: workers that are too slow end their batches together, so that one step waits for all of them and the next for none
_OVER_STEPS = ("checkpoints", "outliers", "shapes", "recompilation", "source", "transform")


def saved_ns(fault: Fault, faulty: Trained, cured: Trained) -> float:
    """How much shorter a step really became; the mean where steps differ by what the fault does."""
    if fault.name in _OVER_STEPS:
        return faulty.mean_ns - cured.mean_ns
    return faulty.median_ns - cured.median_ns
