"""Training loops to simulate: named shapes, each of them with lengths drawn by a seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from .program import (
    COMMUNICATION_STREAM,
    COMPUTE_STREAM,
    COPY_STREAM,
    Action,
    Backward,
    Call,
    Forward,
    Launch,
    Load,
    Optimizer,
    Program,
    Python,
    Synchronize,
    Work,
)

US = 1_000
STEPS = 8


class Author:
    """Writes programs with lengths drawn from a seed.

    Attributes:
        busy: how much longer kernels take than the host takes to launch them, in percent.
    """

    def __init__(self, seed: int, *, busy: int, layers: int = 4) -> None:
        self.draw = random.Random(seed)
        self.busy = busy
        self.layers = layers

    def length(self, usual: int) -> int:
        """A length around a usual one, odd to the nanosecond."""
        return self.draw.randrange(usual // 2, usual * 3 // 2)

    def kernel(self, stream: int = COMPUTE_STREAM, after: tuple[int, ...] = ()) -> Launch:
        """A launch of one computing kernel."""
        return Launch((Work("compute", self.length(10 * US * self.busy // 100), stream, after),), self.length(4 * US))

    def compute(self, name: str, *, differentiable: bool = False, after: tuple[int, ...] = ()) -> Call:
        """An operator that launches one to three kernels, at times with a set in front of them."""
        launches = [self.kernel(after=after) for _ in range(self.draw.randrange(1, 4))]
        if self.draw.random() < 0.2:
            launches.insert(0, Launch((Work("set", self.length(2 * US)),), self.length(3 * US)))
        return Call(name, self.length(3 * US), tuple(launches), self.length(US), differentiable)

    def copy(self, stream: int = COPY_STREAM) -> Call:
        """A batch goes to the device, without waiting."""
        return Call(
            "aten::copy_", self.length(2 * US), (Launch((Work("copy", self.length(30 * US), stream),), self.length(4 * US)),)
        )

    def all_reduce(self) -> Call:
        """A bucket of gradients, on the stream of the library, behind what has been computed so far."""
        work = Work("communication", self.length(40 * US), COMMUNICATION_STREAM, (COMPUTE_STREAM,))
        return Call("c10d::allreduce_", self.length(3 * US), (Launch((work,), self.length(5 * US)),))

    def read(self, stream: int = COMPUTE_STREAM) -> Call:
        """``loss.item()``."""
        copy = Launch((Work("copy", self.length(2 * US), stream),), self.length(4 * US))
        return Call("aten::item", self.length(US), (copy,), self.length(US), reads=(stream,))

    def pause(self, usual: int = 10 * US) -> Python:
        """Python between calls."""
        return Python(self.length(usual))

    def forward(self) -> Forward:
        """Layers with gaps of Python between them, then a loss."""
        body: list[Call | Python] = []
        for layer in range(self.layers):
            body += [self.compute(f"aten::layer{layer}", differentiable=True), self.pause(5 * US)]
        return Forward(
            tuple(body[:-1]), (self.pause(3 * US), self.compute("aten::mse_loss", differentiable=True), self.pause(2 * US))
        )

    def backward(self, *, reduces: int = 0) -> Backward:
        """A node per layer; collectives between them."""
        nodes: list[Call | Python] = [self.compute("aten::mse_loss")]
        for layer in reversed(range(self.layers)):
            nodes += [self.pause(2 * US), self.compute(f"aten::layer{layer}")]
            if reduces and layer % max(1, self.layers // reduces) == 0:
                nodes.append(self.all_reduce())
        return Backward(tuple(nodes))

    def optimizer(self, *, after: tuple[int, ...] = ()) -> Optimizer:
        """Updates, the first of them behind the streams of ``after``."""
        return Optimizer(
            (self.compute("aten::_foreach_add_", after=after), self.pause(2 * US), self.compute("aten::_foreach_addcdiv_"))
        )

    def zero(self) -> Call:
        """Gradients are set to zero."""
        return Call("aten::_foreach_zero_", self.length(2 * US), (self.kernel(),))


def plain(author: Author) -> list[Action]:
    """Loader, copy to the device, forward, backward, optimizer: nothing waits for the device."""
    return [
        Load(author.length(20 * US)),
        author.pause(),
        author.copy(COMPUTE_STREAM),
        author.zero(),
        author.forward(),
        author.backward(),
        author.pause(),
        author.optimizer(),
        author.pause(),
    ]


def reading(author: Author) -> list[Action]:
    """The loss is read at the end of every step."""
    return [*plain(author), author.read(), author.pause()]


def synchronizing(author: Author) -> list[Action]:
    """The device is waited for at the end of every step, by a call that no operator holds."""
    return [*plain(author), Synchronize(author.length(3 * US)), author.pause()]


def distributed(author: Author) -> list[Action]:
    """Gradients are averaged between ranks while backward goes on, and the optimizer waits for that."""
    return [
        Load(author.length(10 * US)),
        author.copy(),
        author.forward(),
        author.backward(reduces=2),
        author.compute("aten::_foreach_norm", after=(COMMUNICATION_STREAM,)),
        author.pause(),
        author.optimizer(),
        author.zero(),
    ]


def prefetching(author: Author) -> list[Action]:
    """The batch is copied on a stream of its own, and an augmentation runs on the device before the model."""
    return [
        Load(author.length(10 * US)),
        author.copy(),
        author.compute("aten::flip", after=(COPY_STREAM,)),
        author.forward(),
        author.backward(),
        author.optimizer(),
        author.pause(),
    ]


def accumulating(author: Author) -> list[Action]:
    """Three batches before one update; the last two losses are summed."""
    actions: list[Action] = []
    for _ in range(3):
        actions += [
            Load(author.length(10 * US)),
            author.copy(COMPUTE_STREAM),
            author.forward(),
            author.backward(),
            author.pause(),
        ]
    return [*actions, author.optimizer(), author.zero(), author.pause()]


def closing(author: Author) -> list[Action]:
    """The optimizer calls back for forward and backward."""
    update = author.optimizer()
    return [
        Load(author.length(10 * US)),
        author.copy(COMPUTE_STREAM),
        replace(update, closure=(author.forward(), author.backward())),
        author.pause(),
        author.read(),
    ]


def graphed(author: Author) -> list[Action]:
    """The whole step is one graph, whose tasks share the number of one call, on two streams."""
    kernels = [Work("compute", author.length(30 * US)) for _ in range(6)]
    side = [Work("compute", author.length(40 * US), COMMUNICATION_STREAM, (COMPUTE_STREAM,)) for _ in range(2)]
    reduce = Work("communication", author.length(50 * US), COMMUNICATION_STREAM)
    graph = Launch((*kernels[:4], *side, reduce, *kernels[4:]), author.length(10 * US))
    return [Load(author.length(5 * US)), author.copy(COMPUTE_STREAM), Call("aten::replay", 2 * US, (graph,)), author.pause()]


def inferring(author: Author) -> list[Action]:
    """A model is called and its answer is read; nothing learns."""
    forward = author.forward()
    return [
        Load(author.length(10 * US)),
        author.copy(COMPUTE_STREAM),
        Forward(forward.body),
        author.pause(),
        author.read(),
        author.pause(),
    ]


LOOPS: dict[str, Callable[[Author], list[Action]]] = {
    loop.__name__: loop
    for loop in (plain, reading, synchronizing, distributed, prefetching, accumulating, closing, graphed, inferring)
}


def program(loop: str, seed: int, *, busy: int = 100, layers: int = 4, steps: int = STEPS, **machine: object) -> Program:
    """A program of steps of one loop.

    Args:
        loop: one of ``LOOPS``.
        seed: of all lengths.
        busy: kernels of 10 us times this, in percent, where a launch takes the host some 10 us.
        layers: of the model.
        steps: how many.
        machine: fields of ``Program``.
    """
    author = Author(seed, busy=busy, layers=layers)
    return Program([LOOPS[loop](author) for _ in range(steps)], **machine)  # type: ignore[arg-type]


def forgetful(source: Program, seed: int, percent: int = 10) -> Program:
    """The program with some kernels of the middle of every step whose launch the capture lost."""
    draw = random.Random(seed)

    def call(part: Call) -> Call:
        launches = part.launches
        if len(launches) > 1 and draw.randrange(100) < percent:
            launches = (launches[0], *(replace(launch, recorded=False) for launch in launches[1:-1]), launches[-1])
        return replace(part, launches=launches)

    def action(part: Action) -> Action:
        if isinstance(part, Forward):
            return replace(part, body=tuple(call(item) if isinstance(item, Call) else item for item in part.body))
        if isinstance(part, Backward):
            return replace(part, nodes=tuple(call(item) if isinstance(item, Call) else item for item in part.nodes))
        return part

    return replace(source, steps=[[action(part) for part in step] for step in source.steps])
