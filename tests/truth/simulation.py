"""Runs a ``Program`` on a small model of a host and a device, and keeps what happened when.

The host is one training thread and one engine thread that never run at once. The device has streams that work in order. A task
starts when its launch has arrived, its stream is free and the work that it waits for is done; since all of these are known when
it is launched, the model needs no queue of events.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from .program import (
    Action,
    Backward,
    Call,
    Forward,
    Kind,
    Launch,
    Load,
    Optimizer,
    Program,
    Python,
    Synchronize,
)

DATA, FORWARD, BACKWARD, OPTIMIZER, DEVICE_WAIT, BETWEEN, PYTHON = (
    "data",
    "forward",
    "backward",
    "optimizer",
    "device_wait",
    "between",
    "python",
)
PHASES = (DATA, FORWARD, BACKWARD, OPTIMIZER, DEVICE_WAIT, BETWEEN, PYTHON)

TRAINING_THREAD, ENGINE_THREAD = 100, 101


@dataclass(frozen=True)
class HostEvent:
    """A row of the capture's host side; category is Kineto's."""

    category: str
    name: str
    start: int
    end: int
    thread: int = TRAINING_THREAD
    correlation: int | None = None
    sequence: int | None = None
    recorded: bool = True


@dataclass(frozen=True)
class Task:
    """Work of the device; launched: when its launching call began."""

    kind: Kind
    start: int
    end: int
    stream: int
    launched: int
    correlation: int
    launch_recorded: bool


@dataclass(frozen=True)
class Mark:
    """A step on the host."""

    number: int
    start: int
    end: int


@dataclass
class History:
    """All that happened, whether recorded or not; times are ns since the loop began."""

    host: list[HostEvent] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    #: what the training thread did: (phase, start, end), neither overlapping nor leaving time out
    phases: list[tuple[str, int, int]] = field(default_factory=list)
    #: node of backward -> operator of forward: sequence number, start of the operator, start of the node
    answers: list[tuple[int, int, int]] = field(default_factory=list)


class Simulation:
    """One run of a program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.now = 0
        self.history = History()
        self._free: dict[int, int] = {}
        self._running: list[int] = []
        self._correlations = itertools.count(1)
        self._sequence = 0
        self._unanswered: list[tuple[int, int]] = []

    def run(self) -> History:
        """All steps, one behind the other."""
        for number, actions in enumerate(self.program.steps):
            start = self.now
            for place, action in enumerate(actions):
                self._act(action, _next_backward(actions[place + 1 :]))
            self.history.marks.append(Mark(number, start, self.now))
        return self.history

    def _act(self, action: Action, backward_follows: bool) -> None:
        if isinstance(action, Python):
            self._pass(action.length, PYTHON)
        elif isinstance(action, Load):
            self._in_range(
                DATA, "user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", action.length
            )
        elif isinstance(action, Synchronize):
            start = self.now
            self.now = max([self.now + action.cost, *self._free.values()])
            self._host("cuda_runtime", "cudaDeviceSynchronize", start, correlation=next(self._correlations))
            self._phase(DEVICE_WAIT, start)
        elif isinstance(action, Call):
            start = self.now
            self._call(action)
            self._phase(DEVICE_WAIT if action.reads else BETWEEN, start)
        elif isinstance(action, Forward):
            self._forward(action, backward_follows)
        elif isinstance(action, Backward):
            self._backward(action)
        else:
            self._optimizer(action)

    def _pass(self, length: int, phase: str) -> None:
        start = self.now
        self.now += length
        self._phase(phase, start)

    def _in_range(self, phase: str, category: str, name: str, length: int) -> None:
        start = self.now
        self.now += length
        self._host(category, name, start)
        self._phase(phase, start)

    def _phase(self, phase: str, start: int) -> None:
        if self.now > start:
            self.history.phases.append((phase, start, self.now))

    def _host(
        self,
        category: str,
        name: str,
        start: int,
        *,
        thread: int = TRAINING_THREAD,
        correlation: int | None = None,
        sequence: int | None = None,
        recorded: bool = True,
    ) -> None:
        self.history.host.append(HostEvent(category, name, start, self.now, thread, correlation, sequence, recorded))

    def _call(self, call: Call, thread: int = TRAINING_THREAD) -> int:
        """An operator with its launches; returns the number of sequence that PyTorch writes into it.

        That is the number which the *next* node will get: an operator that makes no node has the one of the next that does.
        """
        start = self.now
        sequence = self._sequence
        self.now += call.before
        for launch in call.launches:
            self._launch(launch, thread)
        if call.reads:
            begin = self.now
            self.now = max([self.now + 1_000, *(self._free.get(stream, 0) for stream in call.reads)])
            self._host("cuda_runtime", "cudaStreamSynchronize", begin, thread=thread, correlation=next(self._correlations))
            if call.name == "aten::item":
                self._host("cpu_op", "aten::_local_scalar_dense", start + 1, thread=thread, sequence=sequence)
        self.now += call.behind
        self._host("cpu_op", call.name, start, thread=thread, sequence=sequence)
        if call.differentiable:
            self._unanswered.append((sequence, start))
            self._sequence += 1
        return sequence

    def _launch(self, launch: Launch, thread: int) -> None:
        correlation = next(self._correlations)
        start = self.now
        while self._running and self._running[0] <= self.now:
            heapq.heappop(self._running)
        while len(self._running) >= self.program.depth:
            self.now = max(self.now, heapq.heappop(self._running))
        self.now += launch.cost
        for work in launch.work:
            free = [self._free.get(stream, 0) for stream in (work.stream, *work.after)]
            begin = max([self.now + self.program.latency, *free])
            self._free[work.stream] = begin + work.length
            heapq.heappush(self._running, begin + work.length)
            self.history.tasks.append(
                Task(work.kind, begin, begin + work.length, work.stream, start, correlation, launch.recorded)
            )
        name = "cudaGraphLaunch" if len(launch.work) > 1 else _RUNTIME_CALLS[launch.work[0].kind]
        self._host("cuda_runtime", name, start, thread=thread, correlation=correlation, recorded=launch.recorded)

    def _parts(self, parts: tuple[Call | Python, ...], thread: int = TRAINING_THREAD) -> None:
        for part in parts:
            if isinstance(part, Python):
                self.now += part.length
            else:
                self._call(part, thread)

    def _forward(self, forward: Forward, backward_follows: bool) -> None:
        start = self.now
        self._parts(forward.body)
        match self.program.forward_mark:
            case "module":
                self._host("python_function", "nn.Module: Net_0", start)
            case "ddp":
                self._host("user_annotation", "DistributedDataParallel.forward", start)
            case "range":
                self._host("user_annotation", "## forward ##", start)
            case "none":
                pass
        if backward_follows:
            self._parts(forward.loss)
            self._phase(FORWARD, start)
            return
        # nothing of backward comes behind it: inference, whose forward is the call of the model alone
        self._phase(FORWARD, start)
        for part in forward.loss:
            self._act(part, False)

    def _backward(self, backward: Backward) -> None:
        start = self.now
        if self.program.backward_frame:
            self.now += 2_000
            self._call(Call("aten::ones_like"))
            self.now += 1_000
        for node in backward.nodes:
            if isinstance(node, Python):
                self.now += node.length
                continue
            begin = self.now
            sequence = None
            if self._unanswered and not node.name.startswith(("c10d::", "nccl:")):
                sequence, forward_start = self._unanswered.pop()
                self.history.answers.append((sequence, forward_start, begin))
            self.now += 500
            self._parts((node,), ENGINE_THREAD)
            self.now += 500
            name = f"autograd::engine::evaluate_function: {_node_name(node.name)}"
            self._host("cpu_op", name, begin, thread=ENGINE_THREAD, sequence=sequence)
        self._unanswered.clear()
        if self.program.backward_frame:
            self.now += 2_000
            self._host("python_function", "torch/_tensor.py(570): backward", start)
        self._phase(BACKWARD, start)

    def _optimizer(self, optimizer: Optimizer) -> None:
        start = self.now
        inside = self.now
        if optimizer.closure:
            self.now += 3_000
            self._phase(OPTIMIZER, inside)
            for place, action in enumerate(optimizer.closure):
                self._act(action, _next_backward(optimizer.closure[place + 1 :]))
            inside = self.now
        self._parts(optimizer.body)
        self._phase(OPTIMIZER, inside)
        self._host("user_annotation", "Optimizer.step#AdamW.step", start)


_RUNTIME_CALLS: dict[str, str] = {
    "compute": "cudaLaunchKernel",
    "communication": "cudaLaunchKernelExC",
    "copy": "cudaMemcpyAsync",
    "set": "cudaMemsetAsync",
}


def _node_name(operator: str) -> str:
    return operator.split("::")[-1].title().replace("_", "") + "Backward0"


def _next_backward(rest: Sequence[Action]) -> bool:
    """Whether the next call of model, backward or optimizer is a backward."""
    for action in rest:
        if isinstance(action, Backward):
            return True
        if isinstance(action, (Forward, Optimizer)):
            return False
    return False
