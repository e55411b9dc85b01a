"""One iterator of a ``DataLoader`` and its queues: what is noted when a batch arrives, is pinned and is taken."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from typing import Any

from steplens.collect.common import clock
from steplens.collect.loaders.loader_arena import Slot

#: under which an iterator keeps what is known of it
STATE = "_steplens"
#: in place of an attribute that was not there
ABSENT: Any = object()


class Iteration:
    """One iterator of a loader, as far as it is watched.

    Args:
        loader: its loader's number; -1 when it is not watched.
        workers: how many it has.
    """

    def __init__(self, loader: int, workers: int) -> None:
        self.loader = loader
        self.workers = workers
        self.epoch: list[int] = []
        self.connected = self.prepared = False
        #: whether transforms are timed and batches are pinned in the loop
        self.transforms = self.pins = False
        #: what the transforms of the batch that is made now are counted in; None where they are not timed
        self.timed: dict[str, Any] | None = None
        self.slots: list[Slot] = []
        self.next_start = self.waited = 0
        self.ready = -1
        #: when a message could be received
        self.available = 0
        self.last = -1
        #: batches that were received and not given to the loop: begin and end of receiving, end of pinning
        self.received: dict[int, tuple[int, int, int]] = {}
        self.in_order = True
        self.fetch_start = self.collate_end = 0
        #: how many batches lie in the queue with results; far below 0 where the system does not tell
        self.queued: Callable[[], int] = _unknown_length
        #: attributes of queues to put back: the queue, the name, what was there
        self.hooks: list[tuple[Any, str, Any]] = []

    def hook(self, queue: Any, name: str, new: Any) -> None:
        """Replace an attribute of a queue until the iterator is gone or not watched any more."""
        self.hooks.append((queue, name, vars(queue).get(name, ABSENT)))
        setattr(queue, name, new)


def _unknown_length() -> int:
    return -1 << 20


def put_back(queue: Any, name: str, old: Any) -> None:
    """Give a queue its attribute back, or take ours away."""
    if old is ABSENT:
        vars(queue).pop(name, None)
    else:
        setattr(queue, name, old)


def watch_results(state: Iteration, iterator: Any) -> None:
    """Note what an iterator with workers receives, and with which waits."""
    results = iterator._worker_result_queue
    workers: Any = importlib.import_module("torch.utils.data._utils.worker")
    with contextlib.suppress(NotImplementedError):  # macOS
        results.qsize()
        state.queued = results.qsize
    pins = bool(iterator.__dict__.get("_pin_memory"))
    state.hook(results, "get", _timed_receive(state, results.get, pins, workers._IterableDatasetStopIteration))
    state.hook(results, "_recv_bytes", _is_there(state, results._recv_bytes))
    if pins:
        pinned = iterator._data_queue
        state.hook(pinned, "put", _is_pinned(state, pinned.put))
        state.hook(pinned, "get", _takes_pinned(state, pinned.get))


def _timed_receive(state: Iteration, original: Any, pins: bool, end: type) -> Any:
    """For ``get`` of the queue with results; with ``pins`` the thread that pins calls it.

    ``end`` is the type of what a worker sends in place of a batch when an iterable data set has ended.
    """
    now, received = clock.now_ns, state.received

    def get(block: bool = True, timeout: float | None = None) -> Any:
        state.available = 0
        begin = now()
        try:
            message = original(block, timeout)
        except BaseException:  # goes on: the time of the wait is counted first
            if not pins:
                state.waited += now() - begin
            raise
        available = state.available or begin
        if type(message) is tuple:
            number = message[0]
            if type(number) is not int:
                # a worker begins an epoch: what was received is of one that the program did not finish
                received.clear()
            elif type(message[1]) is not end:
                received[number] = (available, now(), 0)
                if not pins:
                    state.last = number
        if not pins:
            state.waited += available - begin
        return message

    return get


def _is_there(state: Iteration, original: Any) -> Any:
    """For ``_recv_bytes`` of that queue: something lies in it."""
    now = clock.now_ns

    def receive(most: int | None = None) -> Any:
        state.available = now()
        return original(most)

    return receive


def _is_pinned(state: Iteration, original: Any) -> Any:
    """For ``put`` of the queue with pinned batches, called by the thread that pins."""

    def put(message: Any, *args: Any, **kwargs: Any) -> None:
        times = state.received.get(message[0]) if type(message) is tuple else None
        if times is not None:
            state.received[message[0]] = (*times[:2], clock.now_ns())
        original(message, *args, **kwargs)

    return put


def _takes_pinned(state: Iteration, original: Any) -> Any:
    """For ``get`` of that queue."""

    def get(*args: Any, **kwargs: Any) -> Any:
        begin = clock.now_ns()
        try:
            message = original(*args, **kwargs)
            if type(message) is tuple:
                state.last = message[0]
            return message
        finally:
            state.waited += clock.now_ns() - begin

    return get


def retire_iterator(state: Iteration) -> None:
    """An iterator is gone; its queues must go too, at once and not when somebody collects garbage: they hold files."""
    for slot in state.slots:
        slot.retired_ns = clock.now_ns()
    unhook_queues(state)


def unhook_queues(state: Iteration) -> None:
    """Leave the queues as they were."""
    hooks, state.hooks = state.hooks, []
    state.queued = _unknown_length
    for queue, name, old in hooks:
        put_back(queue, name, old)
