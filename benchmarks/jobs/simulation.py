"""Runs the programs of all stages on one true clock, all ranks of a stage at once.

A host calls one thing after the other and launches work into streams of its device, each of which works in order. A stage is a
coroutine: it goes on until something needs the end of a message whose other side has not come so far, and is taken up again then.
Nobody leaves a collective before its last member has arrived, and a message ends on both sides when it has been moved.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from benchmarks.jobs import faults as fault_effects
from benchmarks.jobs import noise as noise_of
from benchmarks.jobs.faults import Fault
from benchmarks.jobs.layout import Layout
from benchmarks.jobs.network import Network
from benchmarks.jobs.noise import Noise
from benchmarks.jobs.program import COMPUTE, DATA, TENSOR, WORLD, Kernel, Program, Transfer

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

#: work that was launched and has not ended, at most: the host waits then
_QUEUE = 1024
#: ns from the beginning of a launch to that of the work, and between two pieces of work of a stream, at least
_LATENCY_NS, _BETWEEN_NS = 5_500, 700
#: deviation of what the host takes for a call (logarithm), and of kernels one by one; no published job tells of these
_HOST_DEVIATION, _KERNEL_DEVIATION = 0.12, 0.01
#: ns between the first and the last rank that leaves a collective, at most
_LEAVE_NS = 2_000


@dataclass
class StageTimes:
    """When a step happened on the ranks of a stage: rows are calls of its program, columns ranks; true ns.

    Attributes:
        begin: of the call.
        pace: by what its usual times on the host are multiplied.
        blocked: how long its launch waits.
        work_begin, work_end: of what it launches; of a message its arrival and its leave. 0 where it launches nothing.
    """

    program: Program
    ranks: Ints
    begin: Ints
    pace: Floats
    blocked: Ints
    work_begin: Ints
    work_end: Ints


class _Meeting:
    """A message, or the collectives of one kind of group: complete when all its parts have arrived."""

    def __init__(self, parts: int) -> None:
        self.parts = parts
        self.arrived: dict[int, Ints] = {}
        self.left: dict[int, Ints] = {}

    @property
    def complete(self) -> bool:
        return len(self.arrived) == self.parts


class Job:
    """All ranks of a job; ``steps`` runs it."""

    def __init__(self, layout: Layout, programs: list[Program], faults: list[Fault], noise: Noise, seed: int) -> None:
        self.layout, self.programs, self.faults, self.noise, self.seed = layout, programs, faults, noise, seed
        self.network = Network(layout, faults)
        ranks = layout.ranks_per_stage
        random = np.random.default_rng([seed, 1])
        #: processes do not start in the same instant
        self.now = [random.integers(0, 2_000_000, ranks) + 50_000_000 for _ in programs]
        self.free: list[dict[int, Ints | tuple[_Meeting, int]]] = [{} for _ in programs]
        self.queues: list[deque[Ints | tuple[_Meeting, int]]] = [deque() for _ in programs]
        self._usual: dict[tuple[int, str, int, int], Floats] = {}
        self._slow: dict[tuple[int, str, str], Floats] = {}

    def steps(self, count: int) -> Iterator[list[StageTimes]]:
        """The times of one step after the other, of every stage."""
        for step in range(count):
            yield self._step(step)

    def _step(self, step: int) -> list[StageTimes]:
        batches = max((call.batch for program in self.programs for call in program.calls), default=0) + 1
        # a micro-batch is as long on all stages
        long = (
            np.random.default_rng([self.seed, 2, step])
            .random((max(batches, 1), self.layout.data))
            .repeat(self.layout.tensor, axis=1)
        )
        factors = {
            fault_effects.FORWARD: self.noise.draw(noise_of.BATCH_FORWARD, long),
            fault_effects.BACKWARD: self.noise.draw(noise_of.BATCH_BACKWARD, long),
        }
        meetings: dict[tuple[object, ...], _Meeting] = {}
        times = [self._empty(program, step) for program in self.programs]
        running = {stage: self._stage(stage, step, times[stage], factors, meetings) for stage in range(len(self.programs))}
        while running:
            before = sum(len(meeting.arrived) for meeting in meetings.values())
            for stage in list(running):
                if next(running[stage], None) is None:
                    del running[stage]
            if running and sum(len(meeting.arrived) for meeting in meetings.values()) == before:
                raise RuntimeError(f"stages {sorted(running)} wait for each other in step {step}")
        return times

    def _empty(self, program: Program, step: int) -> StageTimes:
        shape = (len(program.calls), self.layout.ranks_per_stage)
        random = np.random.default_rng([self.seed, 3, step, program.stage])
        pace = np.exp(_HOST_DEVIATION * random.standard_normal(shape, dtype=np.float32))
        whole = [np.zeros(shape, dtype=np.int64) for _ in range(4)]
        return StageTimes(program, self.layout.ranks_of_stage(program.stage), whole[0], pace, whole[1], whole[2], whole[3])

    def _stage(
        self, stage: int, step: int, times: StageTimes, batch_factors: dict[str, Floats],
        meetings: dict[tuple[object, ...], _Meeting],
    ) -> Generator[bool, None, None]:  # fmt: skip
        free, queue, now = self.free[stage], self.queues[stage], self.now[stage]
        ranks = times.ranks
        random = np.random.default_rng([self.seed, 4, step, stage])
        own = {
            direction: self.noise.draw(name, random.random(batch_factors[direction].shape)) * batch_factors[direction]
            for direction, name in (
                (fault_effects.FORWARD, noise_of.OWN_FORWARD),
                (fault_effects.BACKWARD, noise_of.OWN_BACKWARD),
            )
        }
        optimizer = self.noise.draw(noise_of.OPTIMIZER, random.random(len(ranks)))
        jitter = 1 + _KERNEL_DEVIATION * random.standard_normal(times.begin.shape, dtype=np.float32)
        asleep = fault_effects.host_sleep_ns(self.faults, ranks)
        counts: dict[object, int] = {}
        pending: list[tuple[int, _Meeting, int]] = []
        nothing = np.zeros(len(ranks), dtype=np.int64)
        for row, call in enumerate(times.program.calls):
            pace = times.pace[row]
            now = now + (call.gap_ns * pace).astype(np.int64)
            if call.sleeps:
                now = now + asleep
            times.begin[row] = now
            now = now + (call.before_ns * pace).astype(np.int64)
            for stream in call.after:
                ended = yield from _ended(free.get(stream, nothing))
                reached = yield from _ended(free.get(COMPUTE, nothing))
                free[COMPUTE] = np.maximum(reached, ended)
            blocked = nothing
            work = call.work
            if work is not None:
                if len(queue) >= _QUEUE:
                    ended = yield from _ended(queue.popleft())
                    blocked = np.maximum(ended - now, 0)
                    now = now + blocked
                previous = yield from _ended(free.get(call.stream, nothing))
                begin = np.maximum(now + (_LATENCY_NS * pace).astype(np.int64), previous + _BETWEEN_NS)
                if isinstance(work, Kernel):
                    factor = self._factor(stage, ranks, work) * jitter[row]
                    if call.batch >= 0 and work.direction in own:
                        factor = factor * own[work.direction][call.batch]
                    elif work.direction == "optimizer":
                        factor = factor * optimizer
                    times.work_begin[row] = begin
                    times.work_end[row] = free[call.stream] = begin + np.rint(work.usual_ns * factor).astype(np.int64)
                    queue.append(times.work_end[row])
                else:
                    # a message is of what was computed so far
                    begin = np.maximum(begin, (yield from _ended(free.get(COMPUTE, nothing))) + _BETWEEN_NS)
                    times.work_begin[row] = begin
                    meeting, part = self._meet(stage, step, work, counts, meetings, begin)
                    pending.append((row, meeting, part))
                    free[call.stream] = (meeting, part)
                    queue.append((meeting, part))
                    if call.holds:
                        reached = yield from _ended(free.get(COMPUTE, nothing))
                        free[COMPUTE] = np.maximum(reached, (yield from _ended((meeting, part))))
            if call.waits:
                blocked = np.maximum((yield from _ended(free.get(call.stream, nothing))) + 1_500 - now, 0)
                now = now + blocked
            times.blocked[row] = blocked
            now = now + ((call.whole_ns - call.before_ns) * pace).astype(np.int64)
        for row, meeting, part in pending:
            times.work_end[row] = yield from _ended((meeting, part))
        self.now[stage] = now

    def _factor(self, stage: int, ranks: Ints, work: Kernel) -> Floats:
        key = (stage, work.direction, work.operator)
        if key not in self._slow:
            self._slow[key] = fault_effects.compute_factor(self.faults, ranks, work.direction, work.operator)
        return self._slow[key]

    def _meet(
        self, stage: int, step: int, work: Transfer, counts: dict[object, int], meetings: dict[tuple[object, ...], _Meeting],
        arrival: Ints,
    ) -> tuple[_Meeting, int]:  # fmt: skip
        """Arrive at the next message of its kind; the last one to come works out when all leave."""
        own = (work.operation, work.stream)
        number = counts[own] = counts.get(own, -1) + 1
        if work.peer:
            # sent forward or backward, between two stages
            lower = min(stage, stage + work.peer)
            forward = (work.operation == "send") == (work.peer > 0)
            key: tuple[object, ...] = ("message", lower, forward, number)
        elif work.stream == WORLD:
            key = ("world", number)
        else:
            key = ("stage", stage, work.stream, work.operation, number)
        parts = 2 if work.peer else len(self.programs) if work.stream == WORLD else 1
        meeting = meetings.setdefault(key, _Meeting(parts))
        meeting.arrived[stage] = arrival
        if meeting.complete:
            self._leave(meeting, work, np.random.default_rng([self.seed, 5, step, *_seeds(key)]))
        return meeting, stage

    def _leave(self, meeting: _Meeting, work: Transfer, random: np.random.Generator) -> None:
        layout, stages = self.layout, sorted(meeting.arrived)
        arrivals = np.stack([meeting.arrived[stage] for stage in stages])
        what = noise_of.POINT_TO_POINT if work.peer else noise_of.COLLECTIVE
        by_place = arrivals.reshape(len(stages), layout.data, layout.tensor)
        axes: tuple[int, ...] = {TENSOR: (2,), DATA: (1,), WORLD: (0, 1, 2)}.get(work.stream, (0,))
        last = by_place.max(axis=axes, keepdims=True)
        noise = self.noise.draw(what, random.random(last.shape))
        usual = self._transfers(stages, work).reshape(last.shape)
        ends = last + np.rint(usual * noise).astype(np.int64)
        leave = (ends + random.integers(0, _LEAVE_NS, by_place.shape)).reshape(len(stages), -1)
        for stage, times in zip(stages, leave, strict=True):
            meeting.left[stage] = times

    def _transfers(self, stages: list[int], work: Transfer) -> Floats:
        """How long the message takes in each of its groups, in their order."""
        key = (stages[0], work.operation, work.stream, work.size)
        if key not in self._usual:
            layout = self.layout
            first = layout.ranks_of_stage(stages[0])
            members: list[tuple[int, ...]]
            if work.peer:
                members = [(int(rank), int(rank) + layout.ranks_per_stage) for rank in first]
            elif work.stream == WORLD:
                members = [layout.everybody.ranks]
            elif work.stream == DATA:
                members = [layout.data_group(int(rank)).ranks for rank in first[: layout.tensor]]
            else:
                members = [layout.tensor_group(int(rank)).ranks for rank in first[:: layout.tensor]]
            operation = "send" if work.peer else work.operation
            self._usual[key] = np.array([self.network.transfer_ns(operation, group, work.size) for group in members])
        return self._usual[key]


def _ended(end: Ints | tuple[_Meeting, int]) -> Generator[bool, None, Ints]:
    """When something ends; goes on once that is known."""
    if isinstance(end, tuple):
        meeting, part = end
        while not meeting.complete:
            yield True
        return meeting.left[part]
    return end


def _seeds(key: tuple[object, ...]) -> list[int]:
    """Numbers of a key, for a seed."""
    return [part if isinstance(part, int) else int.from_bytes(str(part).encode()[:8], "big") for part in key]
