"""A program that takes batches from loaders: ``python loader_job.py JSON``; prints what it saw as JSON, measured by itself.

The keys of the JSON: ``out`` (folder for a recorded window; empty: nothing is recorded), ``workers``, ``method``, ``batches``,
``fetch``, ``transform`` (seconds per sample), ``collate``, ``step`` (seconds per batch), ``kind`` (of ``DATASETS``),
``persistent``, ``before`` (epochs before the profiler starts), ``epochs``, ``windows``, ``fault`` and its ``options``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate, get_worker_info

import steplens

BATCH = 4
PACKAGE = Path(steplens.__file__).parent


def wait(seconds: float) -> None:
    """A sleep, unless it is none."""
    if seconds:
        time.sleep(seconds)


def waited_ns() -> int:
    """For how long this thread was ready to run so far, and had no processor; 0 where the system does not count."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1])
    except (OSError, IndexError):
        return 0


class Log:
    """What a worker did, by its own clock: appended to a file per process.

    Each line is what it was, when it began and ended, and how long its thread had waited for a processor by then. That is read
    inside of what is timed, so that what reading costs counts as what was done.
    """

    handles: ClassVar[dict[int, int]] = {}

    def __init__(self, path: str) -> None:
        self.path = path

    def begin(self) -> tuple[int, int]:
        """Something begins: the time, and what the thread had waited."""
        return time.time_ns(), waited_ns() if self.path else 0

    def end(self, what: str, begun: tuple[int, int]) -> None:
        """It is over."""
        if self.path:
            process = os.getpid()
            if process not in self.handles:
                self.handles[process] = os.open(f"{self.path}.{process}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            waited = waited_ns()
            os.write(self.handles[process], f"{what} {begun[0]} {time.time_ns()} {begun[1]} {waited}\n".encode())


class Samples(Dataset[torch.Tensor]):
    """Reads, transforms, fails and dies as told."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.job = job
        self.log = Log(job.get("log", ""))
        self.transform = Transform(job) if job.get("transform") else None

    def __len__(self) -> int:
        return int(self.job["batches"]) * BATCH

    def __getitem__(self, index: int) -> torch.Tensor:
        begun = self.log.begin()
        wait(self.job.get("fetch", 0.0))
        fault, at = self.job.get("fault"), index == BATCH * 3 + 1
        if fault == "raise" and at:
            raise ValueError(f"sample {index} is broken")
        if fault == "kill" and at:
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "exit" and at:
            os._exit(7)
        if fault == "hang" and at:
            time.sleep(600)
        sample = torch.full((2,), float(index))
        self.log.end("fetch", begun)
        return self.transform(sample) if self.transform is not None else sample


class Transform:
    """A transform as torchvision has them."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.job = job
        self.log = Log(job.get("log", ""))

    def __call__(self, sample: torch.Tensor) -> torch.Tensor:
        begun = self.log.begin()
        wait(self.job["transform"])
        if self.job.get("fault") == "transform" and float(sample[0]) == BATCH * 3 + 1:
            raise KeyError("no such colour")
        self.log.end("transform", begun)
        return sample


class Batched(Samples):
    """Reads all samples of a batch at once."""

    def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
        return [self[index] for index in indices]


class Stream(IterableDataset[torch.Tensor]):
    """Samples in order, dealt to the workers."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.samples = Samples(job)

    def __iter__(self) -> Any:
        info = get_worker_info()
        number, count = (info.id, info.num_workers) if info is not None else (0, 1)
        return (self.samples[index] for index in range(number, len(self.samples), count))


class Nested(Samples):
    """Reads each sample from a loader of its own."""

    def __getitem__(self, index: int) -> torch.Tensor:
        inner = DataLoader(Samples({"batches": 1}), batch_size=2)
        return super().__getitem__(index) + sum(batch.sum() for batch in inner) * 0


class Many(Samples):
    """Samples of many tensors, which make a batch of as many."""

    def __getitem__(self, index: int) -> Any:
        return [super(Many, self).__getitem__(index) for _ in range(int(self.job["tensors"]))]


DATASETS = {"samples": Samples, "batched": Batched, "stream": Stream, "nested": Nested, "many": Many}


class Collate:
    """Stacks samples after a while."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.job = job
        self.log = Log(job.get("log", ""))

    def __call__(self, samples: Any) -> Any:
        begun = self.log.begin()
        wait(self.job.get("collate", 0.0))
        if self.job.get("fault") == "collate" and float(samples[0][0]) == BATCH * 3:
            raise RuntimeError("shapes differ")
        if self.job.get("kind") == "many":
            return default_collate(samples)
        batch = torch.stack(samples) if isinstance(samples, list) else samples
        self.log.end("collate", begun)
        return batch


class Started:
    """A function of the user for new workers."""

    def __call__(self, number: int) -> None:
        torch.manual_seed(number)


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Run the job."""
    workers = job.get("workers", 0)
    more = dict(job.get("options", {}))
    if workers:
        more |= {"multiprocessing_context": job.get("method", "fork"), "persistent_workers": bool(job.get("persistent"))}
    loader = DataLoader(
        DATASETS[job.get("kind", "samples")](job),
        num_workers=workers,
        collate_fn=Collate(job),
        worker_init_fn=Started() if workers else None,
        **{"batch_size": BATCH, **more},
    )
    found: dict[str, Any] = {"batches": [], "waits": [], "waited": []}
    torch.set_num_threads(1)

    def epoch(step: Any = None) -> None:
        iterator = iter(loader)
        while True:
            begin, waited = time.time_ns(), waited_ns()
            try:
                batch = next(iterator)
            except StopIteration:
                return
            except Exception:
                found["seconds"] = (time.time_ns() - begin) / 1e9
                raise
            waited = waited_ns() - waited
            found["waits"].append([begin, time.time_ns()])
            found["waited"].append(waited)
            found["batches"].append(float(sum(part.sum() for part in batch) if isinstance(batch, list) else batch.sum()))
            wait(job.get("step", 0.0))
            if step is not None:
                step()

    for _ in range(job.get("before", 0)):
        epoch()
    try:
        if not job.get("out"):
            for _ in range(job.get("epochs", 1) * job.get("windows", 1)):
                epoch()
        for _ in range(job.get("windows", 1) if job.get("out") else 0):
            handler = steplens.tensorboard_trace_handler(job["out"], analyse_flag=False)
            steps = int(job["batches"]) * job.get("epochs", 1)
            schedule = steplens.schedule(wait=0, warmup=0, active=steps, repeat=1) if job.get("steps") else None
            with steplens.profile(on_trace_ready=handler, schedule=schedule) as profiler:
                for _ in range(job.get("epochs", 1)):
                    epoch(profiler.step if job.get("steps") else None)
    except Exception as error:
        found["error"] = [type(error).__name__, str(error)]
        frames = traceback.extract_tb(error.__traceback__)
        found["ours"] = sum(Path(frame.filename).is_relative_to(PACKAGE) for frame in frames)
    base = vars(torch.utils.data.dataloader._BaseDataLoaderIter)
    single = vars(torch.utils.data.dataloader._SingleProcessDataLoaderIter)
    fetcher = vars(torch.utils.data._utils.fetch._BaseDatasetFetcher)
    names = {"_profile_name", "_num_yielded", "_dataset_fetcher", "_pin_memory", "collate_fn", "_steplens"}
    found["left"] = sorted(names & {*base, *single, *fetcher})
    return found


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
