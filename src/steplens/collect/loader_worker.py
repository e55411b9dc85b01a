"""What runs in the worker processes of a ``DataLoader`` while they are observed. Nothing here raises or waits.

A worker is reached through the first task that it gets while a profiler runs: :class:`Introduction` travels in place of the
task and, unpickled, lets :func:`attach` look up the loop that is waiting for it. So it makes no difference how the worker was
started, and whether that was before the profiler. Where steplens cannot be imported, the task arrives and nothing else happens.

While the loop makes a batch no frame of ours is on its stack: the borders of its stages are told by what it does anyway, which
is to get a task, to read ``collate_fn`` off the fetcher, and to put the batch. An error therefore reads as it always does.
"""

from __future__ import annotations

import functools
import importlib
import mmap
import multiprocessing.queues
import os
import sys
import time
from typing import Any

from steplens.collect import clock, loader_transforms
from steplens.collect.loader_ring import ATTACHED, ATTACHED_NS, PID, STAGE_COLUMNS, STOP, TOKEN, Ring

_PICKLE_START, _PICKLE_END = STAGE_COLUMNS.index("pickle_start_ns"), STAGE_COLUMNS.index("pickle_end_ns")

#: unpickled in the worker, before anything of ours can be imported there
_ARRIVAL = (
    "__import__('steplens.collect.loader_worker', fromlist=['attach']).attach(task, terms)"
    " if __import__('importlib.util', fromlist=['find_spec']).find_spec('steplens') else task"
)

_LOOP = "_worker_loop"
#: frames between the loop and an unpickled task, at most
_DEPTH = 16


class Introduction:
    """A task that attaches the worker which gets it; there it is the task itself.

    Args:
        task: number of the batch and its indices.
        terms: arguments of :class:`Observed`.
    """

    def __init__(self, task: tuple[Any, ...], terms: dict[str, Any]) -> None:
        self._task = task
        self._terms = terms

    def __reduce__(self) -> Any:
        return eval, (_ARRIVAL, {"task": self._task, "terms": self._terms})


class Observed:
    """A worker that writes what it does into a ring.

    Args:
        path: file that holds the ring.
        offset: where it begins.
        length: its bytes.
        capacity: its rows.
        loader: number of the loader.
        epoch: number of the epoch that runs.
        token: what the ring's head must hold.

    Raises:
        OSError: the file is not there any more.
        ValueError: it is another one.
    """

    def __init__(self, path: str, offset: int, length: int, capacity: int, loader: int, epoch: int, token: int) -> None:
        handle = os.open(path, os.O_RDWR | getattr(os, "O_CLOEXEC", 0))
        try:
            memory = mmap.mmap(handle, length, offset=offset)
        finally:
            os.close(handle)
        self._ring = Ring(memory, STAGE_COLUMNS, capacity)
        # the profiler may have ended meanwhile, and its file's number belong to a file of the program
        if self._ring.get(TOKEN) != token:
            raise ValueError("not a ring")
        self._loader = loader
        self._epoch = epoch
        self._worker = -1
        self._dataset: Any = None
        self._transforms = False
        self._started = self._collate = 0
        #: messages that wait to be pickled, by identity, and where their rows lie
        self._pending: dict[int, int] = {}
        self._resume: Any = None
        self._failed_type: Any = None
        self._restore: list[tuple[Any, str, Any]] = []

    def install(self, local: dict[str, Any]) -> None:
        """Begin; ``local`` are the variables of the worker's loop."""
        workers: Any = importlib.import_module("torch.utils.data._utils.worker")
        fetchers: Any = importlib.import_module("torch.utils.data._utils.fetch")
        self._worker = int(local["worker_id"])
        self._dataset = local["dataset"]
        self._resume = workers._ResumeIteration
        self._failed_type = workers.ExceptionWrapper
        self._transforms = loader_transforms.install(self._dataset)
        if self._transforms:
            self._replace(workers, "ExceptionWrapper", functools.partial(_wrapped, workers.ExceptionWrapper))
        index_queue, data_queue = local["index_queue"], local["data_queue"]
        self._replace(index_queue, "get", functools.partial(self._get, index_queue.get))
        self._replace(data_queue, "put", functools.partial(self._put, data_queue.put))
        self._replace(multiprocessing.queues, "_ForkingPickler", _Pickler(multiprocessing.queues, self._pending, self._ring))
        self._replace(fetchers._BaseDatasetFetcher, "collate_fn", property(self._collates, _keep_collate))
        self._ring.set(PID, os.getpid())
        self._ring.set(ATTACHED_NS, clock.now_ns())
        self._ring.set(ATTACHED, 1)
        self._begins()

    def _replace(self, owner: Any, name: str, new: Any) -> None:
        self._restore.append((owner, name, vars(owner).get(name)))
        setattr(owner, name, new)

    def remove(self) -> None:
        """End: the worker is as it was."""
        for owner, name, old in reversed(self._restore):
            if old is None:
                delattr(owner, name)
            else:
                setattr(owner, name, old)
        self._restore = []
        loader_transforms.remove()

    # --- what the loop calls

    def _get(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        task = original(*args, **kwargs)
        if isinstance(task, self._resume):
            self._epoch += 1
        self._begins()
        return task

    def _begins(self) -> None:
        if self._transforms:
            loader_transforms.batch_begins()
        self._collate = 0
        self._started = clock.now_ns()

    def _collates(self, fetcher: Any) -> Any:
        # a loader inside the data set has a fetcher too
        if fetcher.dataset is self._dataset:
            self._collate = clock.now_ns()
        return fetcher.__dict__["collate_fn"]

    def _put(self, original: Any, message: Any, *args: Any, **kwargs: Any) -> Any:
        ended = clock.now_ns()
        try:
            self._made(message, ended)
        except Exception:
            self._give_up()
        return original(message, *args, **kwargs)

    def _made(self, message: Any, ended: int) -> None:
        number, data = message
        if self._ring.get(STOP):
            self.remove()
        elif type(number) is int:
            transform_ns, transforms = loader_transforms.batch_ends() if self._transforms else (0, 0)
            failed = isinstance(data, self._failed_type)
            # the end of an iterable data set is no batch
            if not failed and not self._collate:
                return
            self._pending[id(message)] = self._ring.add(
                self._loader,
                self._epoch,
                number,
                self._worker,
                self._started,
                self._collate,
                ended,
                transform_ns,
                transforms,
                failed,
                time.process_time_ns(),
                0,
                0,
            )

    def _give_up(self) -> None:
        try:
            self.remove()
        except Exception:
            self._restore = []


def _keep_collate(fetcher: Any, value: Any) -> None:
    fetcher.__dict__["collate_fn"] = value


class _Pickler:
    """In place of the pickler of queues: times the messages of the loop."""

    def __init__(self, module: Any, pending: dict[int, int], ring: Ring) -> None:
        self._real = module._ForkingPickler
        self._pending = pending
        self._ring = ring
        self.loads = self._real.loads

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def dumps(self, message: Any, protocol: Any = None) -> Any:
        """Pickle; called by the thread that feeds a queue."""
        place = self._pending.pop(id(message), None)
        if place is None:
            return self._real.dumps(message, protocol)
        self._ring.amend(place, _PICKLE_START, clock.now_ns())
        data = self._real.dumps(message, protocol)
        self._ring.amend(place, _PICKLE_END, clock.now_ns())
        return data


def _wrapped(original: Any, exc_info: Any = None, where: str = "in background") -> Any:
    """PyTorch's message about an error in a worker, without the frames that time transforms."""
    kind, error, traceback = exc_info if exc_info is not None else sys.exc_info()
    return original((kind, error, loader_transforms.without_our_frames(error, traceback)), where)


_current: Observed | None = None


def attach(task: tuple[Any, ...], terms: dict[str, Any]) -> tuple[Any, ...]:
    """Observe the loop that unpickles this; returns its task. Called by nobody else."""
    global _current
    try:
        frame: Any = sys._getframe()
        for _ in range(_DEPTH):
            frame = frame.f_back
            if frame is None:
                return task
            if frame.f_code.co_name == _LOOP:
                break
        else:
            return task
        if _current is not None:
            _current.remove()
        _current = Observed(**terms)
        _current.install(frame.f_locals)
    except Exception:
        if _current is not None:
            _current._give_up()
            _current = None
    return task
