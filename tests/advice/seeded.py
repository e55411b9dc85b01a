"""A small training in which one fault at a time is switched on; "none" is the healthy one.

A server, since importing PyTorch takes longer than the training: it reads requests from its standard input, a line of JSON each,
``{"fault": ..., "out": ..., "ranks": ...}``, and forks one process per rank (they train with gloo). The answer is a line of JSON,
``{"times": [{"median": ..., "mean": ..., "delayed": ...}, ...], "error": ""}``: for every rank how long the recorded steps took,
in ns, measured by the loop itself, and for what share of them the loop was ready to run and had no processor; or what went wrong.

``python seeded.py FAULT OUT`` trains once, in one process.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch._dynamo
import torch.distributed

import steplens

STEPS = 12
#: more than any of the trainings asks for, in bytes
_HEAP = 1 << 28

#: what differs from the healthy training; values are looked up with ``get``
FAULTS: dict[str, dict[str, Any]] = {
    "none": {"memory": True},
    "in_memory": {"workers": 0, "fetch": 0.0},
    "workers": {"workers": 0, "fetch": 0.004},
    "source": {"fetch": 0.02},
    "transform": {"transform": 0.02},
    "collections": {"objects": 100_000},
    "optimizer": {"small_parameters": 120, "fused": False},
    "fused": {"small_parameters": 120},
    "loop": {"loop": True},
    "items": {"reads": 3000},
    "python": {"python": 0.012},
    "leak": {"leak": True, "memory": True},
    "shapes": {"model": "convolutions", "lengths": [8, 9, 10, 11, 12, 13, 14, 15, 10, 12, 14, 11, 13, 15], "shapes": True},
    "padded": {"model": "convolutions", "lengths": [12], "shapes": True},
    "recompilation": {"compiled": True, "lengths": list(range(30, 44))},
    "compiled": {"compiled": True, "lengths": [36]},
    "zeros": {"model": "wide", "momentum": 0.0, "work": 0.0, "workers": 0, "fetch": 0.0, "set_to_none": False},
    "nones": {"model": "wide", "momentum": 0.0, "work": 0.0, "workers": 0, "fetch": 0.0},
    "float32": {"model": "wide", "rows": 448, "shapes": True},
    "bfloat16": {"model": "wide", "rows": 448, "shapes": True, "bfloat16": True},
    "blocks": {"large": 48 << 20, "memory": True},
    "kept_blocks": {"large": 48 << 20, "memory": True},
    "checkpoints": {"checkpoint_every": 4, "marks": True},
    "background": {"checkpoint_every": 4, "marks": True, "background": True},
    "outliers": {"evaluate_every": 5},
    "cold": {"cold": True},
    "straggler": {"late": 0.02},
    "after_backward": {"model": "shifts", "exchange": "after", "work": 0.04, "shapes": True},
    "beside_backward": {"model": "shifts", "work": 0.04, "shapes": True},
}


class Work(torch.autograd.Function):
    """What a larger model would compute, forward and backward, without taking a processor from the workers."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, forward: float, backward: float) -> torch.Tensor:
        context.seconds = backward
        time.sleep(forward)
        return x.clone()

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        time.sleep(context.seconds)
        return gradient, None, None


class Worker(torch.nn.Module):
    """``Work`` as a layer."""

    def __init__(self, seconds: float, late: float = 0.0) -> None:
        super().__init__()
        self.seconds, self.late = seconds, late

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Work.apply(x, self.seconds, self.seconds + self.late)


class Shift(torch.nn.Module):
    """A layer of many parameters and little arithmetic."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.weight.mean()


class Samples(torch.utils.data.Dataset):
    """Samples that take a while: a sleep, so that workers are of use on any number of processors."""

    def __init__(self, seconds: float, transform_seconds: float) -> None:
        self.seconds = seconds
        self.transform = (lambda sample: (time.sleep(transform_seconds), sample)[1]) if transform_seconds else None

    def __len__(self) -> int:
        return 8 * 64

    def __getitem__(self, index: int) -> np.ndarray:
        if self.seconds:
            time.sleep(self.seconds)
        # no tensor: handing its memory over takes both processes' time, of which a busy machine has little
        sample = np.full(64, index, dtype=np.float32)
        return self.transform(sample) if self.transform else sample


def network(kind: str, work: float, late: float) -> torch.nn.Module:
    """The model; ``work`` seconds of sleep forward and as much backward."""
    pause = [Worker(work / 4) for _ in range(3)] + [Worker(work / 4, late)]
    if kind == "convolutions":
        sizes = [1, *range(8, 40, 2)]
        layers = [torch.nn.Conv2d(a, b, 3, padding=1) for a, b in pairwise(sizes)]
        return torch.nn.Sequential(*layers, *pause)
    if kind == "wide":
        layers = [torch.nn.Linear(1024, 1024) for _ in range(4)]
        return torch.nn.Sequential(torch.nn.Linear(64, 1024), *[one for pair in zip(layers, pause, strict=True) for one in pair])
    if kind == "shifts":
        return torch.nn.Sequential(*[one for _ in range(8) for one in (Shift(1 << 18), Worker(work / 8))])
    layers = [layer for _ in range(8) for layer in (torch.nn.Linear(64, 64), torch.nn.ReLU())]
    return torch.nn.Sequential(*layers[:4], *pause, *layers[4:], torch.nn.Linear(64, 4))


def main(fault: str, out: str, rank: int, ranks: int) -> dict[str, float]:
    """Train, record twelve steps after two that warm up; how long a step took, ns."""
    how = FAULTS[fault]
    torch.manual_seed(0)
    torch.set_num_threads(1)
    # touches the memory that the heap keeps; else some runs of a program meet new pages in every step, and others in none
    torch.ones(_HEAP // 4)
    distributed = torch.distributed if ranks > 1 else None
    if distributed:
        distributed.init_process_group("gloo", init_method=f"file://{meeting_file(out)}", rank=rank, world_size=ranks)
    late = how.get("late", 0.0) if rank == ranks - 1 else 0.0
    model: Any = network(how.get("model", "small"), how.get("work", 0.01), late)
    many = [torch.nn.Parameter(torch.zeros(16)) for _ in range(how.get("small_parameters", 0))]
    optimizer: torch.optim.Optimizer
    if "momentum" in how:
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=how["momentum"], fused=True)
    else:
        optimizer = torch.optim.Adam([*model.parameters(), *many], lr=1e-4, fused=how.get("fused", True))
    trained = model
    if distributed and how.get("exchange") != "after":
        trained = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1, gradient_as_bucket_view=True)
    workers = how.get("workers", 2 if ranks == 1 else 0)
    samples = Samples(how.get("fetch", 0.0005 if ranks == 1 else 0.0), how.get("transform", 0.0))
    loading = {"num_workers": workers, "prefetch_factor": 2 if workers else None}
    batches = iter(torch.utils.data.DataLoader(samples, batch_size=8, collate_fn=np.stack, **loading))
    scale = torch.compile(lambda x: (x * 2).relu().sum(), backend="eager", dynamic=False) if how.get("compiled") else None
    if scale is not None:
        torch._dynamo.config.recompile_limit = 64
    state = [torch.zeros(1 << 18) for _ in range(4 if "checkpoint_every" in how else 0)]
    checkpoint = checkpoints(state, Path(out).with_suffix(".pt"), how.get("background", False))
    large = torch.zeros(how.get("large", 0) // 4)
    delayed = 0
    kept: list[torch.Tensor] = []
    lengths: list[int] = []
    gc.collect()
    gc.freeze()
    # objects that the program made after its start, such as an index of its data
    index = [[number] for number in range(how.get("objects", 0))]
    cold = how.get("cold", False)
    before = 0 if cold else 2
    schedule = {"wait": 0, "warmup": 0} if cold else {"wait": 1, "warmup": 1}
    with steplens.profile(
        schedule=steplens.schedule(**schedule, active=STEPS, repeat=1),
        profile_memory=how.get("memory", False),
        record_shapes=how.get("shapes", False),
        experimental_config=steplens._ExperimentalConfig(gc_detect_threshold=0.0, mstx=how.get("marks", False)),
        on_trace_ready=steplens.tensorboard_trace_handler(out, analyse_flag=False),
    ) as prof:
        for step in range(STEPS + before):
            begin, delay = time.perf_counter_ns(), without_processor_ns()
            batch = torch.from_numpy(next(batches))
            if lengths_of_data := how.get("lengths"):
                length = lengths_of_data[step % len(lengths_of_data)]
                batch = batch[:2, :1, None, None].expand(2, 1, 8, length) if "model" in how else batch[:, :length]
            if scale is not None:
                scale(batch)
                batch = torch.zeros(8, 64)
            if "rows" in how:
                batch = batch.repeat(how["rows"] // 8, 1)
            if cold and step == 0:
                # what a first step prepares
                Work.apply(batch, 0.5, 0.0)
            with torch.autocast("cpu", dtype=torch.bfloat16) if how.get("bfloat16") else nullcontext():
                loss = trained(batch).square().mean()
            if many:
                loss = loss + 0.0 * torch.cat(many).sum()
            if how.get("loop"):
                loss = loss + sum_by_elements(batch)
            for _ in range(how.get("reads", 0)):
                float(loss)
            loss.backward()
            if how.get("exchange") == "after" and distributed:
                for parameter in model.parameters():
                    distributed.all_reduce(parameter.grad)
            optimizer.step()
            optimizer.zero_grad(set_to_none=how.get("set_to_none", True))
            if "objects" in how:
                gc.collect()
            if how.get("leak"):
                with torch.no_grad():
                    kept.append(torch.relu(torch.ones(1 << 13, 64)))
            if "large" in how:
                large.add(1.0)
            if "python" in how:
                time.sleep(how["python"])
            if "checkpoint_every" in how and step % how["checkpoint_every"] == 0:
                checkpoint()
            if "evaluate_every" in how and step % how["evaluate_every"] == 0:
                evaluate(model)
            if step >= before:
                lengths.append(time.perf_counter_ns() - begin)
                delayed += without_processor_ns() - delay
            prof.step()
    if distributed:
        distributed.barrier()
        distributed.destroy_process_group()
    assert len(index) == how.get("objects", 0)
    return {"median": statistics.median(lengths), "mean": statistics.fmean(lengths), "delayed": delayed / sum(lengths)}


class Distant:
    """Makes saving wait, as for a store on another machine: what a disk takes differs from machine to machine."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __reduce__(self) -> tuple[type, tuple[float]]:
        time.sleep(self.seconds)
        return Distant, (self.seconds,)


def checkpoints(state: list[torch.Tensor], path: Path, background: bool) -> Callable[[], None]:
    """Writes the state: at once, or a copy of it in a thread, which has ended before the next one starts."""
    distant = Distant(0.04)
    if not background:
        return lambda: torch.save((state, distant), path)
    copies = [torch.zeros_like(tensor) for tensor in state]
    writers: list[threading.Thread] = []

    def write() -> None:
        if writers:
            writers.pop().join()
        for copy, tensor in zip(copies, state, strict=True):
            copy.copy_(tensor)
        writers.append(threading.Thread(target=torch.save, args=((copies, distant), path)))
        writers[0].start()

    return write


def without_processor_ns() -> int:
    """For how long this thread was ready to run so far, and waited for a processor."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1])
    except (OSError, IndexError):
        return 0


def sum_by_elements(batch: torch.Tensor) -> torch.Tensor:
    """What batch.sum() does."""
    total = torch.zeros(())
    for row in batch.detach():
        for column in range(64):
            total = total + row[column]
    return total * 0


def evaluate(model: torch.nn.Module) -> None:
    """Some forward passes beside the training."""
    with torch.no_grad():
        for _ in range(10):
            model(torch.zeros(8, 64))


def meeting_file(out: str) -> Path:
    """Where the ranks find each other: a port that was free a moment ago may be taken."""
    return Path(out).absolute().with_suffix(".meeting")


def answer(fault: str, out: str, ranks: int) -> dict[str, Any]:
    """Train in processes of their own."""
    meeting_file(out).unlink(missing_ok=True)
    pipes = []
    for rank in range(ranks):
        readable, writable = os.pipe()
        if not os.fork():
            said: dict[str, Any] = {"error": ""}
            try:
                if ranks > 1:
                    os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks))
                said["times"] = main(fault, out, rank, ranks)
            except BaseException:
                said["error"] = traceback.format_exc()
            os.write(writable, json.dumps(said).encode())
            os._exit(0)
        os.close(writable)
        pipes.append(readable)
    answers = []
    for readable in pipes:
        with open(readable, "rb") as pipe:
            answers.append(json.loads(pipe.read() or b'{"error": "the process died"}'))
    for _ in pipes:
        os.wait()
    return {"times": [one.get("times") for one in answers], "error": "".join(one["error"] for one in answers)}


def serve() -> None:
    """Answer requests until the input ends."""
    # what libraries print must not get between the answers
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        print(json.dumps(answer(**json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(main(*sys.argv[1:3], rank=0, ranks=1)))
    else:
        serve()
