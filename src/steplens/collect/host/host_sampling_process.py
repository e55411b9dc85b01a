"""Starts and ends the process that samples the host (``host_sampling``); nothing is sampled in the training itself."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from steplens.collect.common import clock, log
from steplens.collect.common.health import INFO, WARNING, Health
from steplens.collect.handoff import handler
from steplens.collect.host import osrt
from steplens.common import json_text, rundir
from steplens.common.options import HostSystem

#: how long the end of a window waits for the samples to be written: after a short window on a busy machine the process that
#: writes them is still starting
_PATIENCE_S = 20.0

_COUNTERS = "counters"


class HostSampler:
    """Samples the host during one window.

    Args:
        systems: what to sample.
        folder: for the files.
        health: gets what is not collected.
    """

    def __init__(self, systems: list[HostSystem], folder: Path, health: Health) -> None:
        self._systems = systems
        self._folder = folder
        self._health = health
        self._traced = HostSystem.OSRT in systems
        host_sampling = "steplens.collect.host.host_sampling"
        begin = clock.monotonic_ns()
        self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
            [sys.executable, "-m", host_sampling, str(os.getpid()), str(folder), ",".join(item.value for item in systems)],
            env=handler.offline_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        #: what the training itself spends on it
        self.spent_ns = clock.monotonic_ns() - begin
        if self._traced:
            osrt.permit_tracing(self._process.pid)
            log.info("osrt stops the process at every system call, which slows it down while it is recorded.")

    def start(self) -> None:
        """Begin to sample."""
        self._send_command("start")

    def stop(self) -> None:
        """End, without waiting for it."""
        self._send_command("stop")

    def finish(self) -> None:
        """Wait until the samples are written, and say what is not there."""
        process, self._process = self._process, None
        if process is None:
            return
        begin = clock.monotonic_ns()
        reason = ""
        try:
            _, error = process.communicate(timeout=_PATIENCE_S)
            if process.returncode:
                lines = error.decode(errors="replace").strip().splitlines()
                reason = f"the process that samples ended early: {lines[-1] if lines else process.returncode}"
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            reason = f"the process that samples did not end within {_PATIENCE_S:g} s"
        if self._traced:
            osrt.permit_tracing(0)
        self.spent_ns += clock.monotonic_ns() - begin
        problems = dict.fromkeys((item.value for item in self._systems), reason) if reason else self._read_problems()
        for system, problem in problems.items():
            message = f"host_sys {system} was not collected because {problem}."
            log.warning(message)
            self._health.add("not_collected", WARNING if reason else INFO, message, unsafe=_COUNTERS)

    def cancel(self) -> None:
        """End without a result; nothing was recorded."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def _read_problems(self) -> dict[str, str]:
        try:
            problems: Any = json_text.loads((self._folder / rundir.HOST_SAMPLES).read_bytes())["problems"]
            return {str(system): str(problem) for system, problem in problems.items()}
        except (OSError, ValueError, KeyError, AttributeError) as exception:
            return {"data": f"its file cannot be read: {exception}"}

    def _send_command(self, word: str) -> None:
        if self._process is None or self._process.stdin is None:
            return
        # The running time goes along, so that the first and the last sample reach exactly to the edges of the window.
        line = f"{word} {clock.now_ns()} {time.process_time_ns()}\n"
        # It may have ended: finish() says so.
        with contextlib.suppress(OSError, ValueError):
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()
