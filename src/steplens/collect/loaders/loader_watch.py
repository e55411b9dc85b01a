"""What the process of the training knows of its data loaders, while a profiler runs.

Iterators are watched through the attributes that PyTorch reads and writes at the borders of what they do: ``_profile_name`` is
read when the loop asks for a batch, ``_num_yielded`` is written when it gets one and when an epoch begins, and without workers
``_dataset_fetcher``, ``collate_fn`` and ``_pin_memory`` are read in between. So no method is replaced, no frame of ours is on the
stack while a data set runs, and an error reads as it always does. Of the queues between the loop and the workers, ``get`` of
those with results is watched.

Each of these runs once per batch, so one function does all there is to do, and looks up nothing that it can keep.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from steplens.collect.common import clock
from steplens.collect.loaders import loader_transforms, loader_worker
from steplens.collect.loaders.loader_arena import Arena, Slot
from steplens.collect.loaders.loader_queues import (
    ABSENT,
    STATE,
    Iteration,
    put_back,
    retire_iterator,
    unhook_queues,
    watch_results,
)

#: batches that are kept of all loaders together
CAPACITY = 1 << 14
#: of a batch, in one tuple because there are so many: running number, row of BATCH_COLUMNS, and, where no worker made it, which
#: tells itself, start_ns to transforms of STAGE_COLUMNS without the worker
Delivery = tuple[int, ...]
_MOST_EPOCHS = 10_000
_MOST_LOADERS = 256

_UNTIMED = (0, loader_transforms.UNTIMED)

#: of a batch that the loop did not receive from a worker: begin and end of receiving, end of pinning
_NOT_RECEIVED = (0, 0, 0)


class LoaderWatch:
    """Watches all loaders of the process between :meth:`install` and :meth:`remove`.

    Args:
        needed_since_ns: returns from when on records are still needed, Unix ns; None when they are not.
        failed: called when watching fails; it has then ended.
    """

    def __init__(self, needed_since_ns: Callable[[], int | None], failed: Callable[[Exception], None]) -> None:
        self._needed_since_ns = needed_since_ns
        self._failed = failed
        self._iterators: weakref.WeakSet[Any] = weakref.WeakSet()
        self._classes: list[tuple[Any, str, Any]] = []
        self._single: Any = None
        self._keys: dict[int, tuple[Any, int]] = {}
        self._last_epoch: dict[int, int] = {}
        self.arena: Arena | None = None
        #: whether there were more loaders than are watched
        self.ignored = False
        #: what is known of each loader, by its number
        self.loaders: list[dict[str, Any]] = []
        #: loader, number, begin, workers started (0: they were there), first batch (0: none yet), Unix ns
        self.epochs: list[list[int]] = []
        #: what loops got, oldest first
        self.delivered: deque[Delivery] = deque(maxlen=CAPACITY)

    def install(self) -> None:
        """Begin."""
        module: Any = importlib.import_module("torch.utils.data.dataloader")
        fetchers: Any = importlib.import_module("torch.utils.data._utils.fetch")
        self._single = module._SingleProcessDataLoaderIter
        self._watch_attribute(module._BaseDataLoaderIter, "_profile_name", ask_property(self))
        self._watch_attribute(module._BaseDataLoaderIter, "_num_yielded", Delivers(self))
        self._watch_attribute(self._single, "_dataset_fetcher", fetch_property(self))
        self._watch_attribute(fetchers._BaseDatasetFetcher, "collate_fn", collate_property())

    def _watch_attribute(self, owner: Any, name: str, watching: Any) -> None:
        setattr(owner, name, watching)
        self._classes.append((owner, name, watching))

    def remove(self) -> None:
        """End, and leave everything as it was."""
        self.unwatch()
        for iterator in list(self._iterators):
            state = iterator.__dict__.pop(STATE, None)
            if state is not None:
                unhook_queues(state)
        loader_transforms.remove_timing()
        if self.arena is not None:
            for slot in self.arena.slots:
                self.arena.stop(slot)
            self.arena.close()
            self.arena = None

    def leave(self) -> None:
        """End in a forked process, whose parent goes on."""
        self.unwatch()
        loader_transforms.remove_timing()
        if self.arena is not None:
            self.arena.close_copy()

    def unwatch(self) -> None:
        """Watch no more."""
        for owner, name, watching in self._classes:
            if vars(owner).get(name) is watching:
                delattr(owner, name)
        self._classes = []

    def give_up(self, exception: Exception) -> None:
        """Something of ours failed: watch no more, and say so."""
        self.unwatch()
        self._failed(exception)

    # --- what iterators do

    def prepare(self, iterator: Any) -> Iteration:
        """An iterator is asked for a batch for the first time since it was connected, or since the profiler started."""
        state = self._iteration_state(iterator)
        if state.workers and not state.connected:
            self._connect_queues(iterator, state)
        if not state.epoch:
            # the iterator is older than the profiler
            self._begin_epoch(state, 0)
        state.prepared = True
        return state

    def epoch_begins(self, iterator: Any, now: int) -> None:
        """An iterator is made, its workers are there, or it begins again."""
        state = self._iteration_state(iterator)
        if state.workers and "_index_queues" not in iterator.__dict__:
            # workers are about to be started
            self._begin_epoch(state, now)
        elif state.workers and not state.connected:
            self._connect_queues(iterator, state)
            if state.epoch:
                state.epoch[3] = now
        else:
            self._begin_epoch(state, now)

    # --- what is known of them

    def _iteration_state(self, iterator: Any) -> Iteration:
        attributes = iterator.__dict__
        state: Iteration | None = attributes.get(STATE)
        if state is None:
            state = Iteration(self._loader_number(attributes), int(attributes.get("_num_workers", 0)))
            attributes[STATE] = state
            self._iterators.add(iterator)
            if state.loader >= 0 and not state.workers:
                self._in_the_loop(attributes, state)
        return state

    def _in_the_loop(self, attributes: dict[str, Any], state: Iteration) -> None:
        state.transforms = loader_transforms.install_timing(attributes.get("_dataset"))
        if state.transforms:
            self.loaders[state.loader]["transform"] = True
        state.pins = bool(attributes.get("_pin_memory"))
        if state.pins and not any(name == "_pin_memory" for _, name, _ in self._classes):
            self._watch_attribute(self._single, "_pin_memory", collated_property())

    def _loader_number(self, attributes: dict[str, Any]) -> int:
        """The number of the loader that an iterator is of (-1: there are too many): those of one share the batches' sampler."""
        sampler = attributes.get("_index_sampler")
        sampler_and_number = self._keys.get(id(sampler))
        if sampler_and_number is not None and sampler_and_number[0]() is sampler:
            return sampler_and_number[1]
        batch_size, collate = getattr(sampler, "batch_size", None), attributes.get("_collate_fn")
        described = {
            "dataset": type(attributes.get("_dataset")).__name__,
            "workers": int(attributes.get("_num_workers", 0)),
            "batch_size": batch_size if type(batch_size) is int else None,
            "collate": str(getattr(collate, "__qualname__", None) or type(collate).__name__)[:200],
            "iterable": attributes.get("_dataset_kind") == 1,
            "persistent_workers": bool(attributes.get("_persistent_workers")),
            "pin_memory": bool(attributes.get("_pin_memory")),
        }
        number = self._made_again(described)
        if number < 0 and len(self.loaders) < _MOST_LOADERS:
            number = len(self.loaders)
            self.loaders.append({**described, "transform": False})
        if number < 0:
            self.ignored = True
        else:
            self._keys[id(sampler)] = (_reference_to(sampler), number)
        return number

    def _made_again(self, described: dict[str, Any]) -> int:
        """The number of a loader like this that is gone: the program makes it anew, as for every evaluation; -1 for none."""
        for key, (sampler, number) in list(self._keys.items()):
            if sampler() is None and described.items() <= self.loaders[number].items():
                del self._keys[key]
                return number
        return -1

    def _begin_epoch(self, state: Iteration, begin: int) -> None:
        number = self._last_epoch.get(state.loader, -1) + 1
        self._last_epoch[state.loader] = number
        state.epoch = [state.loader, number, begin, 0, 0]
        state.received.clear()
        if state.loader < 0:
            return
        if len(self.epochs) >= _MOST_EPOCHS:
            del self.epochs[0]
        self.epochs.append(state.epoch)

    # --- workers

    def _connect_queues(self, iterator: Any, state: Iteration) -> None:
        """Watch the queues of an iterator with workers."""
        state.connected = True
        if state.loader < 0:
            return
        described = self.loaders[state.loader]
        factor = int(iterator._prefetch_factor)
        state.in_order = bool(getattr(iterator, "_in_order", True))
        described.update(prefetch_factor=factor, capacity=factor * state.workers, in_order=state.in_order)
        described["start_method"] = _start_method(iterator._workers)
        watch_results(state, iterator)
        if self.arena is None:
            self.arena = Arena()
        for number, queue in enumerate(iterator._index_queues):
            process = iterator._workers[number]
            slot = self.arena.new(state.loader, number, int(process.pid or 0), self._needed_since_ns())
            if slot is None:
                continue
            state.slots.append(slot)
            state.hook(queue, "put", functools.partial(self._introduce_ring, state, slot, queue, queue.put))
        weakref.finalize(iterator, retire_iterator, state).atexit = False

    def _introduce_ring(
        self, state: Iteration, slot: Slot, queue: Any, original: Any, task: Any, *args: Any, **kwargs: Any
    ) -> None:
        """Tell a worker, with its first task, to write into its ring."""
        arena = self.arena
        if type(task) is tuple and arena is not None:
            put_back(queue, "put", ABSENT)
            slot.introduced = True
            terms = {**arena.terms(slot), "loader": state.loader, "epoch": state.epoch[1] if state.epoch else 0}
            task = loader_worker.Introduction(task, terms)
        original(task, *args, **kwargs)


def _reference_to(value: Any) -> Any:
    try:
        return weakref.ref(value)
    except TypeError:
        return lambda: value


def _start_method(workers: list[Any]) -> str:
    method = getattr(workers[0], "_start_method", None) if workers else None
    if not isinstance(method, str):
        method = importlib.import_module("multiprocessing").get_start_method()
    return str(method)


# --- attributes of iterators


def ask_property(watch: LoaderWatch) -> property:
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


def fetch_property(watch: LoaderWatch) -> property:
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
    """

    def __init__(self, watch: LoaderWatch) -> None:
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
                state.fetch_start, collate, end, transform_ns, transforms, time.process_time_ns(),
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
