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

from steplens.collect.common import clock
from steplens.collect.loaders import loader_transforms
from steplens.collect.loaders.loader_ring import ATTACHED, ATTACHED_NS, COUNT, HEAD_BYTES, PID, STAGE_COLUMNS, STOP, TOKEN, Ring

_PICKLE_START, _PICKLE_END = STAGE_COLUMNS.index("pickle_start_ns"), STAGE_COLUMNS.index("pickle_end_ns")

#: unpickled in the worker, before anything of ours can be imported there
_ARRIVAL = (
    "__import__('steplens.collect.loaders.loader_worker', fromlist=['attach']).attach(task, terms)"
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
        self._restore: list[tuple[Any, str, Any]] = []

    def install(self, local: dict[str, Any]) -> None:
        """Begin; ``local`` are the variables of the worker's loop."""
        workers: Any = importlib.import_module("torch.utils.data._utils.worker")
        fetchers: Any = importlib.import_module("torch.utils.data._utils.fetch")
        index_queue, data_queue, dataset = local["index_queue"], local["data_queue"], local["dataset"]
        pickler, failed = multiprocessing.queues._ForkingPickler, workers.ExceptionWrapper  # type: ignore[attr-defined]
        transforms = loader_transforms.install_timing(dataset)
        begins, get, collates, put, dumps = self._loop_functions(
            (index_queue.get, data_queue.put, pickler.dumps),
            (workers._ResumeIteration, failed),
            int(local["worker_id"]),
            dataset,
            transforms,
        )
        if transforms:
            self._replace_attribute(workers, "ExceptionWrapper", functools.partial(_wrap_error, failed))
        self._replace_attribute(index_queue, "get", get)
        self._replace_attribute(fetchers._BaseDatasetFetcher, "collate_fn", property(collates, _keep_collate))
        self._replace_attribute(data_queue, "put", put)
        self._replace_attribute(multiprocessing.queues, "_ForkingPickler", _Pickler(pickler, dumps))
        self._ring.set(PID, os.getpid())
        self._ring.set(ATTACHED_NS, clock.now_ns())
        self._ring.set(ATTACHED, 1)
        begins()

    def _replace_attribute(self, owner: Any, name: str, new: Any) -> None:
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
        loader_transforms.remove_timing()

    def _loop_functions(
        self, originals: tuple[Any, Any, Any], kinds: tuple[type, type], worker: int, dataset: Any, transforms: bool
    ) -> tuple[Any, Any, Any, Any, Any]:
        """What is called when a batch begins, and in place of ``get``, reading ``collate_fn``, ``put`` and ``dumps``.

        Each runs once per batch, so they share variables and not attributes, and do themselves what is done in a line.
        ``originals`` are those of ``get``, ``put`` and ``dumps``; ``kinds`` those of a task that begins an epoch, and of a batch
        that could not be made.
        """
        (original_get, original_put, original_dumps), (resume, failed_kind) = originals, kinds
        now, processor_time = clock.now_ns, time.process_time_ns
        buffer, cells, pack_into = self._ring.buffer, self._ring.cells, self._ring.pack_into
        capacity, row_bytes, count = self._ring.capacity, self._ring.row_bytes, self._ring.get(COUNT)
        batch_begins, batch_ends = loader_transforms.batch_begins, loader_transforms.batch_ends
        untimed = loader_transforms.UNTIMED if transforms else 0
        loader, epoch = self._loader, self._epoch
        #: messages that wait to be pickled, by identity, and the first cells of their rows
        pending: dict[int, int] = {}
        take = pending.pop
        timed: dict[str, Any] | None = None
        started = collate = 0

        def begin_batch() -> None:
            nonlocal timed, started
            timed = batch_begins() if transforms else None
            started = now()

        def get(block: bool = True, timeout: float | None = None) -> Any:
            nonlocal epoch, collate, timed, started
            task = original_get(block, timeout)
            if type(task) is resume:
                epoch += 1
            elif transforms:
                timed = batch_begins()
            collate = 0
            started = now()
            return task

        def collates(fetcher: Any) -> Any:
            nonlocal collate
            attributes = fetcher.__dict__
            # a loader inside the data set has a fetcher too
            if attributes["dataset"] is dataset:
                collate = now()
            return attributes["collate_fn"]

        def put(message: Any, block: bool = True, timeout: float | None = None) -> Any:
            nonlocal count
            ended = now()
            try:
                number, data = message
                if cells[STOP]:
                    self.remove()
                elif type(number) is int:
                    transform_ns, transformed = batch_ends(timed) if timed else (0, untimed)
                    failed = type(data) is failed_kind
                    # the end of an iterable data set is no batch
                    if failed or collate:
                        place = HEAD_BYTES + count % capacity * row_bytes
                        count += 1
                        # fmt: off
                        pack_into(
                            buffer, place,
                            loader, epoch, number, worker, started, collate, ended, transform_ns, transformed, failed,
                            processor_time(), 0, 0,
                        )
                        # fmt: on
                        cells[COUNT] = count
                        pending[id(message)] = place // 8
            except Exception:  # the boundary to the worker's data loading
                self._give_up()
            return original_put(message, block, timeout)

        def dumps(message: Any, protocol: Any = None) -> Any:
            cell = take(id(message), 0)
            if not cell:
                return original_dumps(message, protocol)
            cells[cell + _PICKLE_START] = now()
            data = original_dumps(message, protocol)
            cells[cell + _PICKLE_END] = now()
            return data

        return begin_batch, get, collates, put, dumps

    def _give_up(self) -> None:
        try:
            self.remove()
        except Exception:  # the boundary to the worker's data loading
            self._restore = []


def _keep_collate(fetcher: Any, value: Any) -> None:
    fetcher.__dict__["collate_fn"] = value


class _Pickler:
    """In place of the pickler of queues: times the messages of the loop by ``dumps``."""

    def __init__(self, real: Any, dumps: Any) -> None:
        self._real = real
        self.dumps = dumps
        self.loads = real.loads

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def _wrap_error(original: Any, exc_info: Any = None, where: str = "in background") -> Any:
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
    except Exception:  # the boundary to the worker's data loading
        if _current is not None:
            _current._give_up()
            _current = None
    return task
