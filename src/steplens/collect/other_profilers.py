"""Other profilers of PyTorch in the program. Only one can record, and a program's own comes first.

PyTorch refuses to record in a thread that is recorded already, by an exception in the training that asks for it, and to prepare a
recording ends the one that runs. So what the program prepares or starts is noticed just before it does.
"""

from __future__ import annotations

import functools
import importlib
import weakref
from collections.abc import Callable
from typing import Any

from steplens.collect import log

_ours: weakref.WeakSet[Any] = weakref.WeakSet()
_theirs: weakref.WeakSet[Any] = weakref.WeakSet()
_sessions: weakref.WeakSet[Any] = weakref.WeakSet()


def add(session: Any) -> None:
    """Let a session give way from now on, as long as it exists.

    Args:
        session: its ``give_way()`` is called before another profiler begins.
    """
    watch()
    _sessions.add(session)


def watch() -> None:
    """Notice other profilers from now on. PyTorch has been imported before; nothing happens a second time."""
    profile: Any = importlib.import_module("torch.autograd.profiler").profile
    for name in ("_prepare_trace", "_start_trace", "__exit__"):
        original = getattr(profile, name)
        if not hasattr(original, "steplens_original"):
            setattr(profile, name, _noticed(original, begins=name != "__exit__"))


def is_ours(kineto: Any) -> None:
    """Take a profiler of PyTorch for one that steplens has made."""
    _ours.add(kineto)


def one_is_open() -> bool:
    """Whether one that is not ours was prepared or started, and has not ended."""
    return bool(_theirs)


def _noticed(original: Callable[..., Any], begins: bool) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self not in _ours:
            if begins:
                _theirs.add(self)
                _give_way()
            else:
                _theirs.discard(self)
        return original(self, *args, **kwargs)

    call.steplens_original = original  # type: ignore[attr-defined]
    return call


def _give_way() -> None:
    for session in list(_sessions):
        try:
            session.give_way()
        except Exception as exception:  # the boundary to the program that starts its own profiler
            log.failed("giving way to another profiler", exception)
