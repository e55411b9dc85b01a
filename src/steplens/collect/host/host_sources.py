"""What can be sampled of a process and its host, for the process that samples (``host_sampling``)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

#: group, name and unit of a counter, as the readers of CANN's databases call them
Series = tuple[str, str, str]
Sample = tuple[Series, int, float]

_CPU, _MEMORY, _DISK, _NETWORK, _NUMA = "CPU Usage", "Memory Usage", "Disk Usage", "Network Usage", "NUMA"
_PERCENT, _KILOBYTES, _RATE = "%", "KB", "KB/s"
_KIB = 1024.0
_LOOPBACK = "lo"

#: kind of the clock of a process's running time, in the number of the clock
_RUNNING_TIME = 2
#: the time and a running time are of one moment when they are read within so long; else they are read again, so many times
_AT_ONCE_NS = 20_000
_TRIES = 5

#: a look at every thread may take this part of the time until the next one
_SHARE_OF_TIME = 0.02

#: of /proc/<pid>/task/<tid>/stat, counted behind the name of the thread
_PROCESSOR_FIELD = 36

_NODES = Path("/sys/devices/system/node")
_NUMA_MAPS_LIMIT = 16 << 20


class Source:
    """One thing to sample. A constructor raises OSError or ValueError when it is not to be had, with the reason."""

    def __init__(self, process: Any) -> None:
        self.process = process

    def start(self, now: int) -> None:
        """Begin: rates count from here."""

    def sample(self, now: int) -> Iterator[Sample]:
        """What is new since the last time, at ``now`` (Unix ns)."""
        raise NotImplementedError

    def finish(self, now: int) -> Iterator[Sample]:
        """What is only looked at in the end."""
        return iter(())


class _Rates:
    """Turns counters that only grow into rates per second."""

    def __init__(self) -> None:
        self._last: dict[Any, tuple[int, float]] = {}

    def __call__(self, key: Any, now: int, value: float) -> float | None:
        """The rate since the last call with this key; None at the first, and when no time has passed."""
        before = self._last.get(key)
        if before is not None and now <= before[0]:
            return None
        self._last[key] = now, value
        return None if before is None else (value - before[1]) / (now - before[0]) * 1e9


class _Counters(Source):
    """Counters that only grow, and count from the first look at them."""

    def __init__(self, process: Any) -> None:
        super().__init__(process)
        self._rate = _Rates()

    def start(self, now: int) -> None:
        """See ``Source``."""
        for _ in self.sample(now):
            pass


class ProcessorTime(Source):
    """Running time of the process in percent of one processor, to the ns."""

    def __init__(self, process: Any) -> None:
        super().__init__(process)
        self._clock = (~process.pid << 3) | _RUNNING_TIME
        self._rate = _Rates()
        time.clock_gettime_ns(self._clock)

    def start(self, now: int) -> None:
        """See ``Source``."""
        self.put(*self._read_both_times())

    def restart(self, now: int, running: int) -> None:
        """Begin at a time, and from a running time then, that were read elsewhere."""
        self._rate = _Rates()
        self.put(now, running)

    def put(self, now: int, running: int) -> float | None:
        """The share since the last running time, by one that was read elsewhere."""
        rate = self._rate("process", now, running)
        return None if rate is None else rate / 1e7

    def sample(self, now: int) -> Iterator[Sample]:
        """See ``Source``; at a moment of its own, since a busy machine may leave any time after ``now``."""
        return self.last(*self._read_both_times())

    def _read_both_times(self) -> tuple[int, int]:
        """The time and the running time of one moment."""
        readings = []
        for _ in range(_TRIES):
            before = time.time_ns()
            running = time.clock_gettime_ns(self._clock)
            apart = time.time_ns() - before
            readings.append((apart, before, running))
            if 0 <= apart < _AT_ONCE_NS:
                break
        _, now, running = min(readings, key=lambda reading: abs(reading[0]))
        return now, running

    def last(self, now: int, running: int) -> Iterator[Sample]:
        """A sample by a running time that was read elsewhere."""
        share = self.put(now, running)
        if share is not None:
            # what the process ran while the sample before was taken counts there already
            yield (_CPU, _CPU, _PERCENT), now, max(share, 0.0)


class Processors(Source):
    """Which processors the threads ran on: their running times, each counted where the thread was seen last."""

    def __init__(self, process: Any) -> None:
        super().__init__(process)
        self._tasks = f"/proc/{process.pid}/task"
        self._running: dict[str, int] = {}
        self._last = 0
        self._pause = 0
        self._seen: set[str] = set()
        if int(_read_file(f"{self._tasks}/{process.pid}/schedstat").split()[0]) == 0:
            raise OSError("the system does not count the running time of threads")

    def start(self, now: int) -> None:
        """See ``Source``."""
        self._running = {tid: running for tid, running, _ in self._thread_times()}
        self._last = now

    def sample(self, now: int) -> Iterator[Sample]:
        """See ``Source``."""
        if now - self._last < self._pause:
            return
        begin = time.monotonic_ns()
        shares: dict[str, int] = dict.fromkeys(self._seen, 0)
        running_now = {}
        for tid, running, processor in self._thread_times():
            delta = running - self._running.get(tid, 0)
            running_now[tid] = running
            if delta > 0:
                shares[processor] = shares.get(processor, 0) + delta
        elapsed, self._last, self._running = now - self._last, now, running_now
        self._seen |= set(shares)
        self._pause = int((time.monotonic_ns() - begin) / _SHARE_OF_TIME)
        if elapsed > 0:
            for processor, delta in shares.items():
                yield (_CPU, f"CPU {processor}", _PERCENT), now, delta / elapsed * 100

    def finish(self, now: int) -> Iterator[Sample]:
        """See ``Source``."""
        self._pause = 0
        return self.sample(now)

    def _thread_times(self) -> Iterator[tuple[str, int, str]]:
        for tid in os.listdir(self._tasks):
            try:
                running = int(_read_file(f"{self._tasks}/{tid}/schedstat").split()[0])
                fields = _read_file(f"{self._tasks}/{tid}/stat").rpartition(b")")[2].split()
                yield tid, running, fields[_PROCESSOR_FIELD].decode()
            except (OSError, ValueError, IndexError):
                continue  # it has just ended


class Memory(Source):
    """Resident memory of the process, and its share of the host's."""

    def __init__(self, process: Any, virtual_memory: Callable[[], Any]) -> None:
        super().__init__(process)
        self._total = virtual_memory().total

    def sample(self, now: int) -> Iterator[Sample]:
        """See ``Source``."""
        resident = self.process.memory_info().rss
        yield (_MEMORY, _MEMORY, _PERCENT), now, resident / self._total * 100
        yield (_MEMORY, "Memory/Resident", _KILOBYTES), now, resident / _KIB


class Disk(_Counters):
    """What the process has storage read and write, which is not what it reads from and writes to the system's cache."""

    def __init__(self, process: Any) -> None:
        super().__init__(process)
        process.io_counters()
        try:
            self._waits = _read_file("/proc/sys/kernel/task_delayacct").strip() == b"1"
        except OSError:
            self._waits = False

    def sample(self, now: int) -> Iterator[Sample]:
        """See ``Source``."""
        counters = self.process.io_counters()
        for name, value in (("Disk/Read", counters.read_bytes), ("Disk/Write", counters.write_bytes)):
            rate = self._rate(name, now, value)
            if rate is not None:
                yield (_DISK, name, _RATE), now, rate / _KIB
        if self._waits:
            rate = self._rate(_DISK, now, self.process.cpu_times().iowait)
            if rate is not None:
                yield (_DISK, _DISK, _PERCENT), now, rate * 100


class Network(_Counters):
    """Traffic of the host's network cards; that of the host with itself apart."""

    def __init__(self, process: Any, counters: Callable[..., Any], cards: Callable[[], Any]) -> None:
        super().__init__(process)
        self._counters = counters
        # Mbit/s; virtual cards say 0
        speeds = {name: card.speed for name, card in cards().items() if card.isup and name != _LOOPBACK}
        self._capacity = sum(speeds.values()) * 1e6 / 8 if all(0 < speed < 65535 * 100 for speed in speeds.values()) else 0

    def sample(self, now: int) -> Iterator[Sample]:
        """See ``Source``."""
        cards = self._counters(pernic=True, nowrap=False)
        outside = [card for name, card in cards.items() if name != _LOOPBACK]
        received = self._rate("received", now, sum(card.bytes_recv for card in outside))
        sent = self._rate("sent", now, sum(card.bytes_sent for card in outside))
        if received is not None and sent is not None:
            yield (_NETWORK, "Network/Speed", _RATE), now, (received + sent) / _KIB
            yield (_NETWORK, "Network/Receive", _RATE), now, received / _KIB
            yield (_NETWORK, "Network/Send", _RATE), now, sent / _KIB
            if self._capacity:
                yield (_NETWORK, _NETWORK, _PERCENT), now, (received + sent) / self._capacity * 100
        if _LOOPBACK in cards:
            within = self._rate(_LOOPBACK, now, cards[_LOOPBACK].bytes_sent)
            if within is not None:
                yield (_NETWORK, "Network/Loopback", _RATE), now, within / _KIB


class Numa(_Counters):
    """Where the host's memory was taken from while sampling, and in the end where the process's memory lies."""

    def __init__(self, process: Any) -> None:
        super().__init__(process)
        self._nodes = sorted(_NODES.glob("node[0-9]*/numastat"))
        if not self._nodes:
            raise OSError("the system knows no NUMA nodes")

    def sample(self, now: int) -> Iterator[Sample]:
        """See ``Source``."""
        for path in self._nodes:
            node = path.parent.name.removeprefix("node")
            counters = dict(line.split() for line in path.read_text().splitlines())
            for name, key in (("Local", "local_node"), ("Remote", "other_node")):
                rate = self._rate((node, name), now, int(counters.get(key, 0)))
                if rate is not None:
                    yield (_NUMA, f"Node {node}/{name}", "pages/s"), now, rate

    def finish(self, now: int) -> Iterator[Sample]:
        """See ``Source``."""
        pages: dict[str, float] = {}
        with open(f"/proc/{self.process.pid}/numa_maps", "rb") as maps:
            for line in maps.read(_NUMA_MAPS_LIMIT).splitlines():
                words = line.split()
                size: float = next((int(word[18:]) for word in words if word.startswith(b"kernelpagesize_kB=")), 4)
                for word in words:
                    name, _, count = word.partition(b"=")
                    if name[:1] == b"N" and name[1:].isdigit() and count.isdigit():
                        node = name[1:].decode()
                        pages[node] = pages.get(node, 0.0) + int(count) * size
        for node, kilobytes in pages.items():
            yield (_NUMA, f"Node {node}/Process Memory", _KILOBYTES), now, kilobytes


def _read_file(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read(4096)
