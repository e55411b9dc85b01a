"""How long a data set's transforms take, as far as they can be told apart from the rest of reading a sample.

A transform is what a data set, or one that it wraps, keeps under the names that torchvision has made usual. An object with a
``__call__`` of its own is timed through its class, a plain function through a stand-in that pickles and copies as the function
itself, so that a worker that is started with the data set gets what it would get without us.
"""

from __future__ import annotations

import functools
import operator
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from steplens.collect.common import clock

_NAMES = ("transforms", "transform", "target_transform")
#: where data sets keep those that they wrap
_INNER, _INNER_LIST = "dataset", "datasets"
#: how many data sets are looked at
_MOST = 64

#: transforms that take less than this are timed in one batch of so many: timing one takes about a microsecond
_SHORT_NS = 50_000
_ONE_OF = 16

#: in place of the number of transforms of a batch whose transforms were not timed
UNTIMED = -1

_THIS_FILE = __file__


class _Spent(threading.local):
    """What transforms of this thread have taken in the batch that it makes."""

    def __init__(self) -> None:
        self.ns = 0
        self.calls = 0
        #: a transform runs
        self.inside = False
        #: how many batches more are not timed
        self.skip = 0
        #: how often timing had been switched when the batch began
        self.switched = 0


spent = _Spent()

#: objects that are timed through their classes, by identity; they are held so that no other takes their identity
_objects: dict[int, Any] = {}
#: class -> its own __call__ (None where it inherits one), and ours
_classes: dict[type, tuple[Any, Any]] = {}
#: data sets whose functions have stand-ins: the data set and the name
_replaced: list[tuple[Any, str, _Timed]] = []


class _Timed:
    """Stands in for a function."""

    def __init__(self, function: Any) -> None:
        functools.update_wrapper(self, function)
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        attributes, function, now = spent.__dict__, self._function, clock.now_ns
        if attributes["inside"]:
            return function(*args, **kwargs)
        attributes["inside"] = True
        begin = now()
        try:
            # passing on any arguments takes longer than looking whether there is just one, as nearly always
            return function(*args, **kwargs) if kwargs or len(args) != 1 else function(args[0])
        finally:
            attributes["ns"] += now() - begin
            attributes["calls"] += 1
            attributes["inside"] = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_function"], name)

    def __reduce__(self) -> Any:
        # unpickled, it is the function
        return operator.getitem, ((self._function,), 0)


def batch_begins() -> dict[str, Any] | None:
    """This thread begins a batch; what :func:`batch_ends` takes, or None where the transforms of this batch are not timed."""
    attributes = spent.__dict__
    skip = attributes["skip"]
    if skip:
        attributes["skip"] = skip - 1
        if _timing.on:
            _timing.switch(False)
        return None
    if not _timing.on:
        _timing.switch(True)
    attributes["ns"] = attributes["calls"] = 0
    attributes["switched"] = _timing.switched
    return attributes


def batch_ends(attributes: dict[str, Any]) -> tuple[int, int]:
    """Time of the batch's transforms, ns, and their number; -1 where they were not timed from :func:`batch_begins` on."""
    # a loader inside the data set may have made batches meanwhile
    if attributes["skip"] or attributes["switched"] != _timing.switched:
        return 0, UNTIMED
    ns, calls = attributes["ns"], attributes["calls"]
    if calls and ns < calls * _SHORT_NS:
        attributes["skip"] = _ONE_OF - 1
    return ns, calls


def install_timing(dataset: Any) -> bool:
    """Time the transforms of a data set; whether it has any that can be timed."""
    if not _timing.on:
        _timing.switch(True)
    has_transforms = False
    for owner in _data_sets(dataset):
        for name in _NAMES:
            transform = getattr(owner, "__dict__", {}).get(name)
            if transform is None or not callable(transform):
                continue
            if isinstance(transform, _Timed) or id(transform) in _objects:
                has_transforms = True
            elif _has_own_call(transform):
                has_transforms |= _time_class(transform)
            elif type(transform).__name__ in ("function", "builtin_function_or_method", "method", "partial"):
                stand_in = _Timed(transform)
                owner.__dict__[name] = stand_in
                _replaced.append((owner, name, stand_in))
                has_transforms = True
    return has_transforms


class _Timing:
    """Whether transforms are timed now; between batches that are timed, everything is as it was."""

    def __init__(self) -> None:
        self.on = True
        self.switched = 0

    def switch(self, on: bool) -> None:
        """Put our parts in, or the original ones back."""
        self.on = on
        self.switched += 1
        for owner, name, stand_in in _replaced:
            ours, other = (stand_in, stand_in._function) if on else (stand_in._function, stand_in)
            if owner.__dict__.get(name) is other:
                owner.__dict__[name] = ours
        for kind, (own, ours) in _classes.items():
            if on:
                kind.__call__ = ours  # type: ignore[method-assign]
            elif own is not None:
                kind.__call__ = own  # type: ignore[method-assign]
            elif "__call__" in vars(kind):
                del kind.__call__


_timing = _Timing()


def remove_timing() -> None:
    """Put everything back."""
    _timing.switch(False)
    _replaced.clear()
    _classes.clear()
    _objects.clear()
    _timing.switch(True)
    spent.skip = 0


def without_our_frames(error: BaseException | None, traceback: TracebackType | None) -> TracebackType | None:
    """A traceback as it would be without the timing of transforms; those of the error's causes are changed in place."""
    pending, visited = [error.__cause__, error.__context__] if error is not None else [], set[int]()
    while pending and len(visited) < _MOST:
        cause = pending.pop()
        if cause is not None and id(cause) not in visited:
            visited.add(id(cause))
            cause.__traceback__ = _strip_our_frames(cause.__traceback__)
            pending += [cause.__cause__, cause.__context__]
    return _strip_our_frames(traceback)


def _strip_our_frames(traceback: TracebackType | None) -> TracebackType | None:
    def is_our_frame(entry: TracebackType | None) -> bool:
        return entry is not None and entry.tb_frame.f_code.co_filename == _THIS_FILE

    while is_our_frame(traceback):
        traceback = traceback.tb_next  # type: ignore[union-attr]
    entry = traceback
    while entry is not None:
        following = entry.tb_next
        while is_our_frame(following):
            following = following.tb_next  # type: ignore[union-attr]
        entry.tb_next = following
        entry = following
    return traceback


def _data_sets(dataset: Any) -> Iterator[Any]:
    """A data set and those that it wraps."""
    pending, visited = [dataset], set[int]()
    while pending and len(visited) < _MOST:
        data_set = pending.pop()
        if data_set is None or id(data_set) in visited:
            continue
        visited.add(id(data_set))
        yield data_set
        attributes = getattr(data_set, "__dict__", {})
        pending.append(attributes.get(_INNER))
        inner = attributes.get(_INNER_LIST)
        if isinstance(inner, list | tuple):
            pending.extend(inner[:_MOST])


def _has_own_call(transform: Any) -> bool:
    call = getattr(type(transform), "__call__", None)  # noqa: B004 - not whether it is there, but what it is
    return type(call).__name__ == "function"


def _time_class(transform: Any) -> bool:
    kind = type(transform)
    if kind not in _classes:
        original = kind.__call__
        in_class = vars(kind).get("__call__")
        now, objects, of_threads = clock.now_ns, _objects, spent

        @functools.wraps(original)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            attributes = of_threads.__dict__
            if attributes["inside"] or id(self) not in objects:
                return original(self, *args, **kwargs)
            # once more what _Timed does: a call of its own would cost a third of it, at every sample
            attributes["inside"] = True
            begin = now()
            try:
                return original(self, *args, **kwargs) if kwargs or len(args) != 1 else original(self, args[0])
            finally:
                attributes["ns"] += now() - begin
                attributes["calls"] += 1
                attributes["inside"] = False

        try:
            kind.__call__ = call
        except TypeError:
            return False
        _classes[kind] = (in_class, call)
    _objects[id(transform)] = transform
    return True
