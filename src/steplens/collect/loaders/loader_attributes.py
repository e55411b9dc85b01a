"""What iterators of data loaders do, told by the attributes that PyTorch reads and writes at the borders of it.

``_profile_name`` is read when the loop asks for a batch, ``_num_yielded`` is written when it gets one and when an epoch begins,
and without workers ``_dataset_fetcher``, ``collate_fn`` and ``_pin_memory`` are read in between. So no method is replaced, no
frame of ours is on the stack while a data set runs, and an error reads as it always does.

Each of these runs once per batch, so one function does all there is to do, and looks up nothing that it can keep.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from steplens.collect.common import clock
from steplens.collect.loaders import loader_transforms
from steplens.collect.loaders.loader_queues import STATE, Iteration


class LoaderObserver(Protocol):
    """Who is told of what iterators do."""

    #: what loops got, oldest first: running number, row of BATCH_COLUMNS, and the stages that the loop went through itself
    delivered: deque[tuple[int, ...]]

    def prepare(self, iterator: Any) -> Iteration:
        """An iterator is asked for a batch for the first time since it was connected, or since the profiler started."""

    def epoch_begins(self, iterator: Any, now: int) -> None:
        """An iterator is made, its workers are there, or it begins again."""

    def give_up(self, exception: Exception) -> None:
        """Something of ours failed."""


_UNTIMED = (0, loader_transforms.UNTIMED)

#: of a batch that the loop did not receive from a worker: begin and end of receiving, end of pinning
_NOT_RECEIVED = (0, 0, 0)


def ask_property(watch: LoaderObserver) -> property:
    """For ``_profile_name``: the loop asks for the next batch."""
    name, now = "_profile_name", clock.now_ns

    def read_profile_name(iterator: Any) -> Any:
        attributes = iterator.__dict__
        try:
            state: Iteration | None = attributes.get(STATE)
            if state is None or not state.prepared:
                state = watch.prepare(iterator)
            if state.workers:
                received = state.received
                if state.next_start and state.in_order:
                    # what it asked for before was an error, or nothing
                    _forget_received(received, attributes["_rcvd_idx"])
                state.next_start = now()
                state.waited, state.last = 0, -1
                state.ready = state.queued() + len(received)
            else:
                state.next_start = now()
        except Exception as exception:  # the boundary to the training's data loading
            watch.give_up(exception)
        try:
            return attributes[name]
        except KeyError:
            raise _missing_attribute(iterator, name) from None

    return _watched_attribute(name, read_profile_name)


def fetch_property(watch: LoaderObserver) -> property:
    """For ``_dataset_fetcher`` of an iterator without workers: the indices are known, the samples are read now."""
    name, now = "_dataset_fetcher", clock.now_ns

    def read_fetcher(iterator: Any) -> Any:
        attributes = iterator.__dict__
        try:
            state: Iteration | None = attributes.get(STATE)
            if state is not None and state.next_start:
                if state.transforms:
                    state.timed = loader_transforms.batch_begins()
                state.fetch_start = now()
        except Exception as exception:  # the boundary to the training's data loading
            watch.give_up(exception)
        try:
            return attributes[name]
        except KeyError:
            raise _missing_attribute(iterator, name) from None

    return _watched_attribute(name, read_fetcher)


def collate_property() -> property:
    """For ``collate_fn`` of a fetcher: the samples are there."""
    name, now = "collate_fn", clock.now_ns

    def read_collate_fn(fetcher: Any) -> Any:
        attributes = fetcher.__dict__
        attributes[STATE] = now()
        try:
            return attributes[name]
        except KeyError:
            raise _missing_attribute(fetcher, name) from None

    return _watched_attribute(name, read_collate_fn)


def collated_property() -> property:
    """For ``_pin_memory`` of an iterator without workers: the batch is there, and is pinned next."""
    name, now = "_pin_memory", clock.now_ns

    def read_pin_memory(iterator: Any) -> Any:
        attributes = iterator.__dict__
        state: Iteration | None = attributes.get(STATE)
        if state is not None:
            state.collate_end = now()
        try:
            return attributes[name]
        except KeyError:
            raise _missing_attribute(iterator, name) from None

    return _watched_attribute(name, read_pin_memory)


def _forget_received(received: dict[int, tuple[int, int, int]], before: int) -> None:
    # another thread may be adding to it, and copying it is one step of the interpreter
    for number in list(received):
        if number < before:
            received.pop(number, None)


class Delivers:
    """For ``_num_yielded``: the loop got a batch, or, at 0, an epoch begins.

    It has no ``__get__``, so reading goes to the iterator itself, as it does without us.

    Args:
        watch: is told.
    """

    def __init__(self, watch: LoaderObserver) -> None:
        self._watch = watch
        self._add = watch.delivered.append
        # next() of a counter is one step of the interpreter: threads never get the same number
        self._next = itertools.count().__next__
        self._now = clock.now_ns

    def __set__(self, iterator: Any, number: int) -> None:
        now = self._now()
        attributes = iterator.__dict__
        attributes["_num_yielded"] = number
        try:
            if not number:
                self._watch.epoch_begins(iterator, now)
                return
            state: Iteration | None = attributes.get(STATE)
            if state is None or not state.next_start or state.loader < 0:
                return
            epoch = state.epoch
            if not epoch[4] and epoch[2]:
                epoch[4] = now
            start, state.next_start = state.next_start, 0
            if state.workers:
                batch = attributes["_rcvd_idx"] - 1 if state.in_order else state.last
                begin, end, pinned = state.received.pop(batch, _NOT_RECEIVED)
                waited, ready = state.waited, state.ready
                self._add((self._next(), state.loader, epoch[1], batch, start, now, waited, ready, begin, end, pinned))
                return
            transform_ns, transforms = 0, 0
            if state.transforms:
                transform_ns, transforms = loader_transforms.batch_ends(state.timed) if state.timed else _UNTIMED
            collate = attributes["_dataset_fetcher"].__dict__.get(STATE, 0)
            # pinning is what is left between collating and the end
            end, pinned = (state.collate_end, now) if state.pins else (now, 0)
            # fmt: off
            self._add((
                self._next(), state.loader, epoch[1], number - 1, start, now, 0, -1, 0, 0, pinned,
                state.fetch_start, collate, end, transform_ns, transforms,
            ))
            # fmt: on
        except Exception as exception:  # the boundary to the training's data loading
            self._watch.give_up(exception)


def _watched_attribute(name: str, get: Callable[[Any], Any]) -> property:
    def set_attribute(owner: Any, value: Any) -> None:
        owner.__dict__[name] = value

    return property(get, set_attribute)


def _missing_attribute(owner: Any, name: str) -> AttributeError:
    return AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}")
