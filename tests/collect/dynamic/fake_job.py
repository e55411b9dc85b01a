"""A job without a framework: processes that only step, and captures that only write down the steps they saw.

``python fake_job.py FOLDER --ranks 4 --steps 200`` forks the ranks; they step together, as gradients would make them.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from steplens.collect.dynamic import configuration
from steplens.collect.dynamic.agent import Agent
from steplens.collect.dynamic.plan import Identity, Outcome, Plan


class FakeCapture:
    """Notes the steps that end while it runs."""

    def __init__(self, form: FakeForm, plan: Plan, step: int) -> None:
        self._form = form
        self.begun = step
        self.ended = step
        self.directory: Path | None = Path(plan.settings.prof_dir).absolute() / f"{os.getpid()}_{time.monotonic_ns()}"
        if plan.settings.metadata.get("fail") == "begin":
            raise RuntimeError("cannot begin")
        self._fail = plan.settings.metadata.get("fail")
        self._open = True
        form.captures.append(self)

    def step(self) -> None:
        if self._fail == "step":
            raise RuntimeError("cannot step")
        self.ended += 1

    def finish(self) -> Outcome:
        if self._fail == "finish":
            raise RuntimeError("cannot finish")
        time.sleep(self._form.save_s)
        assert self.directory is not None
        self.directory.mkdir(parents=True)
        # whoever waits for the file finds it whole
        written = self.directory / "steps.part"
        written.write_text(json.dumps([self.begun, self.ended, self._form.rank]))
        written.rename(self.directory / "steps.json")
        self._open = False
        return Outcome(self.directory)


class FakeForm:
    """Reads PyTorch's configuration file, and records nothing."""

    name = "fake"

    def __init__(self, rank: int = -1, world_size: int | None = None, group: str | None = None) -> None:
        self.rank = rank
        self.world_size = world_size
        self.group = group
        self.hindrance = ""
        self.save_s = 0.0
        self.captures: list[FakeCapture] = []

    def template(self) -> Mapping[str, Any]:
        return configuration.TEMPLATE

    def plan(self, document: Mapping[str, Any], rank: int) -> Plan:
        return configuration.read_plan(document, rank)

    def identity(self) -> Identity:
        return Identity(self.rank, self.world_size, self.group or f"alone {os.getpid()}")

    def obstacle(self) -> str:
        return self.hindrance

    def capture(self, plan: Plan, step: int) -> FakeCapture:
        return FakeCapture(self, plan, step)


def train(options: argparse.Namespace, rank: int, barrier: Any) -> None:
    """One rank."""
    form = FakeForm(rank, options.ranks, f"job {options.group or os.getppid()}")
    form.save_s = options.save * rank
    agent = Agent(options.folder, form, "test", "step()")
    if rank == options.stuck:
        signal.pause()
    dice = random.Random(rank)
    for _ in range(options.steps):
        time.sleep(dice.uniform(0, 2 * options.pause))
        if barrier is not None:
            barrier.wait()
        agent.step()
    agent.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--steps", type=int, default=10**9)
    parser.add_argument("--pause", type=float, default=0.002, help="mean seconds per step")
    parser.add_argument("--save", type=float, default=0.0, help="seconds to save a capture, times the rank")
    parser.add_argument("--stuck", type=int, default=-1, help="a rank that never steps")
    parser.add_argument("--group", default="")
    options = parser.parse_args()
    if options.ranks == 1:
        train(options, 0, None)
        return
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(options.ranks - (options.stuck >= 0))
    processes = [context.Process(target=train, args=(options, rank, barrier), daemon=True) for rank in range(options.ranks)]
    for process in processes:
        process.start()
    print(*[process.pid for process in processes], flush=True)
    for process in processes:
        process.join()
    sys.exit(any(process.exitcode for process in processes))


if __name__ == "__main__":
    main()
