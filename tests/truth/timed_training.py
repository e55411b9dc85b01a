"""Trainings on the CPU whose phases are made of known sleeps, which they time themselves, by their own clock.

python timed_training.py CASE DIRECTORY [with_modules]

Each case trains a few recorded steps and writes DIRECTORY/measured_RANK.json: for every recorded step the ns of each phase, from
readings of ``time.perf_counter_ns`` right around it. What is measured and what a profiler saw differ by microseconds, and by what
the process waited for a processor between their readings: the system counts that, ``waited`` is its sum over the step. Phases
that a case has take 30 ms or more.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

import steplens

#: of the schedule: steps that are left out at the beginning, and recorded ones
BEFORE, RECORDED = 2, 5
WIDTH = 8


def waited_ns() -> int:
    """For how long all threads of this process were ready to run so far, and had no processor."""
    waited = 0
    for thread in Path("/proc/self/task").iterdir():
        # a thread may have ended meanwhile, and not every system counts
        with suppress(OSError, IndexError):
            waited += int((thread / "schedstat").read_text().split()[1])
    return waited


class Stopwatch:
    """Adds up the time of named regions, step by step."""

    def __init__(self) -> None:
        self.steps: list[dict[str, int]] = []
        self.parts: dict[str, int] = {}
        self._step: dict[str, int] = {}
        self._begin = self._waited = 0

    @contextmanager
    def region(self, phase: str) -> Iterator[None]:
        """Time of a region; that of a region inside of it is the inner one's alone."""
        begin = time.perf_counter_ns()
        nested = sum(self._step.values())
        try:
            yield
        finally:
            taken = time.perf_counter_ns() - begin
            taken -= sum(self._step.values()) - nested
            self._step[phase] = self._step.get(phase, 0) + taken

    def add(self, phase: str, nanoseconds: int) -> None:
        """A part of a region that is timed as a whole: it is written down apart and counted for nothing."""
        self.parts[phase] = self.parts.get(phase, 0) + nanoseconds

    def begin(self) -> None:
        """A step begins."""
        self._waited = waited_ns()
        self._begin = time.perf_counter_ns()
        self._step, self.parts = {}, {}

    def end(self) -> None:
        """A step is over; what of it lies in no region is Python."""
        rest = time.perf_counter_ns() - self._begin - sum(self._step.values())
        python = self._step.get("python", 0) + rest
        self.steps.append({**self._step, "python": python, **self.parts, "waited": waited_ns() - self._waited})


WATCH = Stopwatch()


@torch.library.custom_op("truth::work", mutates_args=())
def work(x: torch.Tensor, seconds: float) -> torch.Tensor:
    """An operator that takes as long as it is told to."""
    time.sleep(seconds)
    return x.clone()


class Slow(nn.Module):
    """A module that thinks for a while, in Python."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(self.seconds)
        return x


class _SlowBackward(torch.autograd.Function):
    """Does nothing in forward and sleeps in backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, seconds: float) -> torch.Tensor:
        ctx.seconds = seconds
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        time.sleep(ctx.seconds)
        return gradient.clone(), None


class SlowBackward(nn.Module):
    """A module whose gradient takes a while."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _SlowBackward.apply(x, self.seconds)


class SlowUpdate(torch.optim.SGD):
    """An optimizer that takes a while, in Python and in an operator, in front of its closure and behind it."""

    def step(self, closure: Callable[[], torch.Tensor] | None = None) -> Any:  # type: ignore[override]
        work(torch.zeros(2), 0.015)
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        time.sleep(0.020)
        super().step()
        return loss


class Samples(Dataset[torch.Tensor]):
    """Every sample takes 10 ms to read."""

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.010)
        return torch.full((WIDTH,), index % 7 / 7)


def network(forward: float = 0.020, backward: float = 0.030) -> nn.Sequential:
    """A model that thinks in Python in the middle of it, and whose backward does twice."""
    return nn.Sequential(
        nn.Linear(WIDTH, WIDTH),
        SlowBackward(backward),
        Slow(forward),
        nn.Linear(WIDTH, WIDTH),
        SlowBackward(backward / 2),
        Slow(forward),
        nn.Linear(WIDTH, 1),
    )


def batches() -> Iterator[torch.Tensor]:
    """Batches of a loader without workers, timed."""
    iterator = iter(DataLoader(Samples(), batch_size=4))
    while True:
        with WATCH.region("data"):
            batch = next(iterator)
        yield batch


def pause(seconds: float = 0.035) -> None:
    """Python between operators."""
    with WATCH.region("python"):
        time.sleep(seconds)


def between(seconds: float = 0.035) -> None:
    """An operator that belongs to no phase."""
    with WATCH.region("between"):
        work(torch.zeros(2), seconds)


def backward(loss: torch.Tensor, **options: Any) -> None:
    """``loss.backward()``, timed."""
    with WATCH.region("backward"):
        loss.backward(**options)


Step = Callable[[], None]


def plain() -> Step:
    """Loader, augmentation, forward, loss, backward, clipping, update, reading the loss, logging."""
    model = network()
    optimizer = SlowUpdate(model.parameters(), lr=0.01)
    loader = batches()

    def step() -> None:
        batch = next(loader)
        with WATCH.region("between"):
            batch = work(batch, 0.020) * 1.5
        with WATCH.region("forward"):
            loss = model(batch).square().mean()
            time.sleep(0.010)
        backward(loss)
        # nearly all of clipping is Python around operators of microseconds: Python is what it counts as
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with WATCH.region("between"):
            work(torch.zeros(2), 0.030)
        pause()
        with WATCH.region("optimizer"):
            optimizer.step()
        loss.item()
        optimizer.zero_grad()

    return step


def accumulation() -> Step:
    """Three batches of forward and backward before one update, with Python between them."""
    model = network(0.010, 0.020)
    optimizer = SlowUpdate(model.parameters(), lr=0.01)
    loader = batches()

    def step() -> None:
        for _ in range(3):
            batch = next(loader)
            with WATCH.region("forward"):
                loss = model(batch).square().mean() / 3
            backward(loss)
            pause(0.012)
        with WATCH.region("optimizer"):
            optimizer.step()
        between()
        optimizer.zero_grad()

    return step


def several_losses() -> Step:
    """Two losses of one trunk: the second head is called when the first loss has been through backward."""
    trunk, first, second = network(0.010, 0.020)[:-1], nn.Linear(WIDTH, 1), nn.Sequential(nn.Linear(WIDTH, 1), Slow(0.020))
    optimizer = SlowUpdate([*trunk.parameters(), *first.parameters(), *second.parameters()], lr=0.01)
    loader = batches()

    def step() -> None:
        batch = next(loader)
        with WATCH.region("forward"):
            features = trunk(batch)
            loss = first(features).square().mean()
        backward(loss, retain_graph=True)
        with WATCH.region("forward"):
            loss = second(features).square().mean()
        backward(loss)
        pause()
        with WATCH.region("optimizer"):
            optimizer.step()
        between()
        optimizer.zero_grad()

    return step


class Checkpointed(nn.Module):
    """A model that computes its middle again in backward."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.middle = nn.Sequential(nn.Linear(WIDTH, WIDTH), Slow(0.040), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
        self.last = nn.Linear(WIDTH, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(checkpoint(self.middle, self.first(x), use_reentrant=False))


def checkpointing() -> Step:
    """The middle of the model sleeps twice: once in forward, once more in backward."""
    model = Checkpointed()
    optimizer = SlowUpdate(model.parameters(), lr=0.01)
    loader = batches()

    def step() -> None:
        batch = next(loader)
        between()
        with WATCH.region("forward"):
            loss = model(batch).square().mean()
        backward(loss)
        pause()
        with WATCH.region("optimizer"):
            optimizer.step()
        optimizer.zero_grad()

    return step


def closure() -> Step:
    """The optimizer calls back for forward and backward."""
    model = network()
    optimizer = SlowUpdate(model.parameters(), lr=0.01)
    loader = batches()

    def step() -> None:
        batch = next(loader)
        between()

        def evaluate() -> torch.Tensor:
            with WATCH.region("forward"):
                loss = model(batch).square().mean()
            backward(loss)
            return loss

        with WATCH.region("optimizer"):
            optimizer.step(evaluate)
        pause()
        optimizer.zero_grad()

    return step


def validation() -> Step:
    """Every step is followed by a look at another batch, without gradients."""
    model = network()
    optimizer = SlowUpdate(model.parameters(), lr=0.01)
    loader = batches()

    def step() -> None:
        batch = next(loader)
        with WATCH.region("forward"):
            loss = model(batch).square().mean()
        backward(loss)
        with WATCH.region("optimizer"):
            optimizer.step()
        optimizer.zero_grad()
        pause()
        with torch.no_grad():
            with WATCH.region("forward"):
                answer = model(batch)
            with WATCH.region("between"):
                work(answer, 0.035)
        pause()

    return step


def inference() -> Step:
    """A model is called, an operator makes something of its answer."""
    model = network().eval()
    loader = batches()

    def step() -> None:
        with torch.no_grad():
            batch = next(loader)
            between()
            pause()
            with WATCH.region("forward"):
                answer = model(batch)
            with WATCH.region("between"):
                work(answer, 0.035)

    return step


def distributed() -> Step:
    """Gradients are averaged over ranks, and the last rank comes 60 ms late to every step."""
    late = dist.get_rank() == dist.get_world_size() - 1
    model = DistributedDataParallel(network(0.020, 0.040))
    ready_ns = [0]

    def gradient_is_ready(_: torch.Tensor) -> None:
        ready_ns[0] = time.perf_counter_ns()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(gradient_is_ready)
    optimizer = SlowUpdate(model.parameters(), lr=0.01)
    loader = batches()

    def step() -> None:
        pause(0.100 if late else 0.040)
        batch = next(loader)
        between()
        with WATCH.region("forward"):
            loss = model(batch).square().mean()
        backward(loss)
        # from the last gradient on the one bucket is averaged
        WATCH.add("gradient_sync", time.perf_counter_ns() - ready_ns[0])
        with WATCH.region("optimizer"):
            optimizer.step()
        optimizer.zero_grad()

    return step


CASES = {
    case.__name__: case
    for case in (plain, accumulation, several_losses, checkpointing, closure, validation, inference, distributed)
}


def main(case: str, directory: str, with_modules: bool) -> None:
    """Trains, records and writes down what was measured."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    step = CASES[case]()
    with steplens.profile(
        activities=[steplens.ProfilerActivity.CPU],
        schedule=steplens.schedule(wait=1, warmup=BEFORE - 1, active=RECORDED, repeat=1),
        on_trace_ready=steplens.tensorboard_trace_handler(directory),
        with_modules=with_modules,
    ) as prof:
        WATCH.begin()
        for _ in range(BEFORE + RECORDED - 1):
            step()
            # on a busy machine its milliseconds are the step's own Python
            prof.step()
            WATCH.end()
            WATCH.begin()
        step()
        # behind the last step everything is saved, and that is no part of it
        WATCH.end()
        prof.step()
    rank = os.environ.get("RANK", "0")
    Path(directory, f"measured_{rank}.json").write_text(json.dumps(WATCH.steps[BEFORE:]))
    if "RANK" in os.environ:
        dist.barrier()
        # torch aborts a process that finalises while a thread of gloo still lets go of its last tensor
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], "with_modules" in sys.argv[3:])
