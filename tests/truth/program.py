"""What a simulated training loop does, in the words of its author: the vocabulary of ``simulation``.

A program is a list of steps, a step a list of actions of the training thread. Lengths are whole nanoseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["compute", "communication", "copy", "set"]
ForwardMark = Literal["module", "ddp", "range", "none"]

COMPUTE_STREAM, COMMUNICATION_STREAM, COPY_STREAM = 7, 20, 24


@dataclass(frozen=True)
class Work:
    """One task of the device.

    Attributes:
        length: how long it takes once it runs.
        after: streams whose work launched so far has to be done before it starts (an event that its stream waits for).
    """

    kind: Kind
    length: int
    stream: int = COMPUTE_STREAM
    after: tuple[int, ...] = ()


@dataclass(frozen=True)
class Launch:
    """One runtime call that hands work to the device: several tasks are a graph, whose tasks share their call's number.

    Attributes:
        cost: time of the call on the host, if the queue is not full.
        recorded: whether the capture has the call.
    """

    work: tuple[Work, ...]
    cost: int = 3_000
    recorded: bool = True


@dataclass(frozen=True)
class Call:
    """An operator: some time on the host, its launches, some more time on the host.

    Attributes:
        differentiable: a node of backward will answer to it.
        reads: streams that it waits for before it returns (``aten::item``, a blocking copy).
    """

    name: str
    before: int = 2_000
    launches: tuple[Launch, ...] = ()
    behind: int = 1_000
    differentiable: bool = False
    reads: tuple[int, ...] = ()


@dataclass(frozen=True)
class Python:
    """No operator runs."""

    length: int


@dataclass(frozen=True)
class Load:
    """The loop waits for its loader."""

    length: int


@dataclass(frozen=True)
class Synchronize:
    """``torch.cuda.synchronize()``: a runtime call without an operator around it."""

    cost: int = 4_000


@dataclass(frozen=True)
class Forward:
    """A call of the model, and then its loss outside of it."""

    body: tuple[Call | Python, ...]
    loss: tuple[Call | Python, ...] = ()


@dataclass(frozen=True)
class Backward:
    """A call of ``backward``: the nodes run on a thread of the engine, while the training thread waits.

    Attributes:
        nodes: one for each, the last differentiable operator's first; launches of collectives are nodes of their own.
    """

    nodes: tuple[Call | Python, ...]


@dataclass(frozen=True)
class Optimizer:
    """``Optimizer.step``; ``closure`` is what it calls back for: forward and backward inside of the step."""

    body: tuple[Call | Python, ...]
    closure: tuple[Forward | Backward, ...] = ()


Action = Call | Python | Load | Synchronize | Forward | Backward | Optimizer


@dataclass(frozen=True)
class Program:
    """A training loop and the machine that it runs on.

    Attributes:
        steps: what each step does, those before and behind the recording too.
        depth: launches that the device's queue takes before a launching call blocks.
        latency: from the end of a launching call to the earliest start of its work.
        forward_mark: what of the capture says where forward is: the model's call, DistributedDataParallel's range, a range
            ``## forward ##`` of the user, or nothing but numbers of sequences.
        backward_frame: the capture has the Python frame of ``backward``.
        record_from: the step (and its share, in percent) that recording begins in; ``record_until`` likewise ends.
        drained: recording waits for the device when it stops; else work that runs then is lost.
        unmarked: places of steps whose marks are missing.
    """

    steps: Sequence[Sequence[Action]]
    depth: int = 1024
    latency: int = 5_000
    forward_mark: ForwardMark = "module"
    backward_frame: bool = True
    record_from: tuple[int, int] = (0, 0)
    record_until: tuple[int, int] | None = None
    drained: bool = True
    unmarked: tuple[int, ...] = ()
