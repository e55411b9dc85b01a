"""How long the steps of a process take at full speed, before anything is recorded: what versions of a program are judged by."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from steplens.collect.common.processor_times import thread_times, time_between
from steplens.collect.dynamic.module_origins import find_foreign_modules
from steplens.common import json_text, rundir

#: the files with step times: of each process one, which its process id tells
FILE_PREFIX = "step_times_"


class StepTimer:
    """Takes the time of steps, of which each is a reading of a clock, and writes them down when it has enough.

    With an accelerator the host runs ahead of it, so that single steps tell little: it is waited for before the first step and
    after the last one, and what counts is how long all of them took.

    Args:
        folder: where they are written.
        skip: how many steps pass before the first one, which is the one behind the first end of a step.
        steps: how many.
        own: the checkout that runs, where there are others.
        foreign: other checkouts, from which it is not to import anything.
    """

    def __init__(self, folder: str, skip: int, steps: int, own: str = "", foreign: Sequence[str] = ()) -> None:
        self._folder = Path(folder)
        self._skip = skip
        self._steps = steps
        self._own = own
        self._foreign = foreign
        self._ends: list[int] = []
        self._seen = 0
        self._is_synchronized = False
        self._threads: dict[str, tuple[int, int]] = {}
        self.is_done = False

    def on_step(self) -> None:
        """A step has ended."""
        if self.is_done:
            return
        self._seen += 1
        if self._seen <= self._skip:
            return
        last = len(self._ends) == self._steps
        if not self._ends or last:
            self._is_synchronized = _wait_for_accelerators()
        self._ends.append(time.perf_counter_ns())
        if len(self._ends) == 1:
            self._threads = thread_times()
        elif last:
            self.write_times()

    def write_times(self) -> None:
        """Write down what there is; for the end of a program that took fewer steps, too."""
        if self.is_done:
            return
        self.is_done = True
        document = {
            "pid": os.getpid(),
            "rank": _rank_number(),
            "step_ns": [after - before for before, after in zip(self._ends, self._ends[1:], strict=False)],
            "synchronized": self._is_synchronized,
            "complete": len(self._ends) == self._steps + 1,
            "processor_time": time_between(self._threads, thread_times()),
            "foreign_modules": self._find_foreign_modules(),
        }
        # without it the command says that nothing was timed; the training goes on
        with contextlib.suppress(OSError):
            rundir.write_json(self._folder / f"{FILE_PREFIX}{os.getpid()}.json", document)

    def _find_foreign_modules(self) -> list[str]:
        try:
            return find_foreign_modules(self._own, self._foreign) if self._foreign else []
        except Exception:  # whatever modules and distributions of somebody else raise: the training goes on
            return []


def read_step_times(folder: Path) -> list[dict[str, Any]]:
    """What the processes of one run wrote down; what cannot be read is left out.

    Args:
        folder: as of ``StepTimer``.
    """
    documents = []
    for path in sorted(folder.glob(f"{FILE_PREFIX}*.json")):
        with contextlib.suppress(OSError, ValueError):
            document = json_text.loads(path.read_bytes())
            if isinstance(document, dict) and _are_times(document.get("step_ns")):
                documents.append(document)
    return documents


def _are_times(times: object) -> bool:
    return isinstance(times, list) and all(isinstance(time_ns, int) and time_ns >= 0 for time_ns in times)


def _rank_number() -> int:
    text = os.environ.get("RANK", "0")
    return int(text) if text.isdecimal() else 0


def _wait_for_accelerators() -> bool:
    """Wait until the devices that this process uses have done what they were given; whether there are any."""
    torch = sys.modules.get("torch")
    is_used = False
    for name in ("cuda", "npu", "xpu"):
        module = getattr(torch, name, None)
        # asking a device for anything would start it
        if module is not None and getattr(module, "is_initialized", bool)():
            module.synchronize()
            is_used = True
    return is_used
