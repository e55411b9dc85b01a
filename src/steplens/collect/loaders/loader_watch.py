"""What the process of the training knows of its data loaders, while a profiler runs.

Iterators are watched through attributes (``loader_attributes``); of the queues between the loop and the workers, ``get`` of those
with results is.
"""

from __future__ import annotations

import functools
import importlib
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from steplens.collect.loaders import loader_attributes, loader_transforms, loader_worker
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
        self._watch_attribute(module._BaseDataLoaderIter, "_profile_name", loader_attributes.ask_property(self))
        self._watch_attribute(module._BaseDataLoaderIter, "_num_yielded", loader_attributes.Delivers(self))
        self._watch_attribute(self._single, "_dataset_fetcher", loader_attributes.fetch_property(self))
        self._watch_attribute(fetchers._BaseDatasetFetcher, "collate_fn", loader_attributes.collate_property())

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
            self._watch_attribute(self._single, "_pin_memory", loader_attributes.collated_property())

    def _loader_number(self, attributes: dict[str, Any]) -> int:
        """The number of the loader that an iterator is of (-1: there are too many): those of one share the batches' sampler."""
        sampler = attributes.get("_index_sampler")
        sampler_and_number = self._keys.get(id(sampler))
        if sampler_and_number is not None and sampler_and_number[0]() is sampler:
            return sampler_and_number[1]
        described = {
            "dataset": type(attributes.get("_dataset")).__name__,
            "workers": int(attributes.get("_num_workers", 0)),
            "batch_size": _integer_or_none(getattr(sampler, "batch_size", None)),
            "collate": _function_name(attributes.get("_collate_fn")),
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


def _integer_or_none(value: Any) -> int | None:
    return value if type(value) is int else None


def _function_name(function: Any) -> str:
    return str(getattr(function, "__qualname__", None) or type(function).__name__)[:200]


def _start_method(workers: list[Any]) -> str:
    method = getattr(workers[0], "_start_method", None) if workers else None
    if not isinstance(method, str):
        module: Any = importlib.import_module("multiprocessing")
        method = module.get_start_method()
    return str(method)
