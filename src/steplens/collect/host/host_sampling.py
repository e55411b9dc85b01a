"""The process that samples the host beside a training: ``python -m steplens.collect.host.host_sampling``.

A process of its own needs neither the training's threads nor its interpreter's lock. It is told by lines on its standard
input when to begin and to end, writes its samples then, and ends at once when the training does.
"""

from __future__ import annotations

import importlib
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from steplens.collect.host import host_sources
from steplens.collect.host.host_sources import ProcessorTime, Sample, Series, Source
from steplens.collect.host.osrt import SystemCalls
from steplens.common import rundir

#: CANN's own rate, and the slowest
INTERVAL_NS = 20_000_000
SLOWEST_NS = 1_000_000_000

#: the samples may take this part of a processor; the interval grows until they do
SHARE = 0.03

#: the most samples of a window
LIMIT = 1 << 20


class Sampler:
    """Samples from :meth:`start` to :meth:`stop`.

    Args:
        pid: the process.
        folder: for the files.
        systems: what to sample, values of ``HostSystem``.
    """

    def __init__(self, pid: int, folder: Path, systems: list[str]) -> None:
        self._pid = pid
        self._folder = folder
        self._systems = systems
        self._sources: list[tuple[str, Source]] = []
        self._running_time: ProcessorTime | None = None
        self._calls: SystemCalls | None = None
        self._series: dict[Series, tuple[list[int], list[float]]] = {}
        self._count = 0
        self._dropped = 0
        self._rounds = 0
        self._spent_ns = 0
        self._started = self._late_ns = 0
        self.interval_ns = INTERVAL_NS
        self.problems: dict[str, str] = {}
        self._open_sources()

    def _open_sources(self) -> None:
        try:
            psutil: Any = importlib.import_module("psutil")
            process = psutil.Process(self._pid)
        except ImportError:
            self.problems = dict.fromkeys(self._systems, "psutil is not installed (pip install 'steplens[host]')")
            if "osrt" in self._systems:
                del self.problems["osrt"]
            return
        makers: dict[str, list[Callable[[], Source]]] = {
            "cpu": [lambda: ProcessorTime(process), lambda: host_sources.Processors(process)],
            "mem": [lambda: host_sources.Memory(process, psutil.virtual_memory)],
            "disk": [lambda: host_sources.Disk(process)],
            "network": [lambda: host_sources.Network(process, psutil.net_io_counters, psutil.net_if_stats)],
            "numa": [lambda: host_sources.Numa(process)],
        }
        for system in self._systems:
            for make in makers.get(system, []):
                try:
                    source = make()
                except Exception as exception:  # the boundary to psutil
                    self.problems[system] = _exception_reason(exception)
                    continue
                self._sources.append((system, source))
                if isinstance(source, ProcessorTime):
                    self._running_time = source

    def start(self, asked_ns: int, running_ns: int) -> None:
        """Begin.

        Args:
            asked_ns: when the window began, Unix ns.
            running_ns: the running time of the process then, so that the first sample reaches back to it.
        """
        if "osrt" in self._systems:
            try:
                self._calls = SystemCalls(self._pid, self._folder)
            except OSError as exception:
                self.problems["osrt"] = _exception_reason(exception)
        self._started = time.time_ns()
        self._late_ns = max(0, self._started - asked_ns)
        self._call_sources(lambda source: source.start(self._started))
        if self._running_time is not None:
            self._running_time.restart(asked_ns, running_ns)

    def sample(self) -> None:
        """Look at everything once."""
        begin = time.thread_time_ns()
        now = time.time_ns()
        self._call_sources(lambda source: self._add_samples(source.sample(now)))
        if self._calls is not None and (problem := self._calls.check()):
            self.problems["osrt"] = problem
            self._calls = None
        self._rounds += 1
        self._spent_ns += time.thread_time_ns() - begin
        if self._spent_ns > SHARE * self.interval_ns * self._rounds and self._rounds > 5:
            self.interval_ns = min(SLOWEST_NS, int(self.interval_ns * 1.25))

    def stop(self, ended_ns: int, running_ns: int) -> None:
        """End, and write the file.

        Args:
            ended_ns: when the window ended, Unix ns.
            running_ns: the running time of the process then.
        """
        if self._calls is not None and (problem := self._calls.stop()):
            self.problems["osrt"] = problem
        if self._running_time is not None:
            self._add_samples(self._running_time.last(ended_ns, running_ns))
            self._sources = [entry for entry in self._sources if entry[1] is not self._running_time]
        now = time.time_ns()
        self._call_sources(lambda source: self._add_samples(source.sample(now)))
        self._call_sources(lambda source: self._add_samples(source.finish(now)))
        used = resource.getrusage(resource.RUSAGE_SELF)
        memory = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
        value = {
            "series": [
                {"group": group, "name": name, "unit": unit, "time_ns": times, "value": values}
                for (group, name, unit), (times, values) in self._series.items()
            ],
            "problems": self.problems,
            "dropped": self._dropped,
            "late_ns": self._late_ns,
            "cost": {
                "samples": self._rounds,
                "interval_ns": self.interval_ns,
                "sampling_ns": self._spent_ns,
                "process_ns": int((used.ru_utime + used.ru_stime) * 1e9),
                # not ru_maxrss, which a new process takes over from the one that starts it
                "peak_bytes": int(memory.get("VmHWM", "0").split()[0]) << 10,
            },
        }
        rundir.write_json(self._folder / rundir.HOST_SAMPLES, value)

    def _add_samples(self, samples: Iterable[Sample]) -> None:
        for series, now, value in samples:
            if self._count >= LIMIT:
                self._dropped += 1
                continue
            times, values = self._series.setdefault(series, ([], []))
            times.append(now)
            values.append(round(value, 3))
            self._count += 1

    def _call_sources(self, call: Callable[[Source], None]) -> None:
        """Do something with every source; one that fails is not asked again."""
        for entry in list(self._sources):
            system, source = entry
            try:
                call(source)
            except Exception as exception:  # the boundary to psutil
                self._sources.remove(entry)
                self.problems[system] = _exception_reason(exception)


def _exception_reason(exception: BaseException) -> str:
    return f"{exception}" or type(exception).__name__


def main(arguments: list[str]) -> int:
    """Sample until told otherwise, by the process, the folder for the files, and what to sample (separated by commas)."""
    pid, folder, systems = int(arguments[0]), Path(arguments[1]), arguments[2].split(",")
    # Ctrl-C is meant for the training, which tells us when to end
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    sampler = Sampler(pid, folder, systems)
    os.write(1, b"ready\n")
    pending = b""
    due = 0
    started = False
    while True:
        wait = max(0, due - time.monotonic_ns()) if started else INTERVAL_NS * 10
        ready, _, _ = select.select([0], [], [], wait / 1e9)
        if os.getppid() != pid:
            return 1
        if ready:
            received = os.read(0, 4096)
            if not received:
                return 1
            pending += received
            *lines, pending = pending.split(b"\n")
            for line in lines:
                word, *numbers = line.split()
                if word == b"start":
                    sampler.start(int(numbers[0]), int(numbers[1]))
                    started = True
                    due = time.monotonic_ns() + sampler.interval_ns
                elif word == b"stop":
                    sampler.stop(int(numbers[0]), int(numbers[1]))
                    return 0
        elif started:
            sampler.sample()
            due = max(due + sampler.interval_ns, time.monotonic_ns())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
