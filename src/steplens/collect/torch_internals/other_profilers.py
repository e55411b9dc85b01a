"""Which profiler of PyTorch records. Only one of a process can, and a program's own comes first.

PyTorch refuses to record in a thread that is recorded already, by an exception in the training that asks for it, and to prepare a
recording ends the one that runs. So what the program prepares or starts is noticed just before it does.

Of ours the first one has PyTorch's recording from its warmup to its end. A second one would silently take the recording of the
first, and to end one that is another's ends the program.
"""

from __future__ import annotations

import functools
import importlib
import os
import weakref
from collections.abc import Callable
from typing import Any

from steplens.collect.common import log

_ours: weakref.WeakSet[Any] = weakref.WeakSet()
_theirs: weakref.WeakSet[Any] = weakref.WeakSet()
_sessions: weakref.WeakSet[Any] = weakref.WeakSet()
#: which of ours has PyTorch's recording, by process: what a forked child inherits is not its own
_holder: dict[int, weakref.ref[Any]] = {}

_TAKEN = "another profiler is recording in this process, or warms up for it, and only one can; nothing is recorded in this window"


def register_session(session: Any) -> None:
    """Call ``give_way()`` of a session before another profiler begins, from now on and as long as the session exists."""
    watch_other_profilers()
    _sessions.add(session)


def watch_other_profilers() -> None:
    """Notice other profilers from now on. PyTorch has been imported before; nothing happens a second time."""
    profile: Any = importlib.import_module("torch.autograd.profiler").profile
    for name in ("_prepare_trace", "_start_trace", "__exit__"):
        original = getattr(profile, name)
        if not hasattr(original, "steplens_original"):
            setattr(profile, name, _wrap_profiler_call(original, begins=name != "__exit__"))


def take_recording(kineto: Any) -> None:
    """Let a profiler of ours have the recording until it has ended, is given up or is gone.

    Args:
        kineto: PyTorch's object, which is not prepared yet.

    Raises:
        RuntimeError: another one has it.
    """
    _ours.add(kineto)
    # one call, so that of two threads, or of a thread and its signal handler, one gets it
    if _holder.setdefault(os.getpid(), weakref.ref(kineto, _forget_holder))() is not kineto:
        raise RuntimeError(_TAKEN)


def refuse_a_second() -> None:
    """Raise RuntimeError while another profiler has the recording: PyTorch would silently give up the one that runs."""
    if another_is_recording():
        raise RuntimeError(_TAKEN)


def give_back_recording(kineto: Any) -> None:
    """Let others of ours have the recording, if this one has it; None is passed over."""
    holder = _holder.get(os.getpid())
    if kineto is not None and holder is not None and holder() is kineto:
        _forget_holder(holder)


def another_is_recording(besides: Any = None) -> bool:
    """Whether some profiler of PyTorch is recording in this process, or is prepared to, ``besides`` one of ours."""
    profiler: Any = importlib.import_module("torch.autograd.profiler")
    autograd: Any = importlib.import_module("torch.autograd")
    if getattr(profiler, "_is_profiler_enabled", False) or autograd._profiler_enabled() or _theirs:
        return True
    holder = _holder.get(os.getpid())
    ours = holder() if holder is not None else None
    return ours is not None and ours is not besides


def _forget_holder(holder: weakref.ref[Any]) -> None:
    for process, held in list(_holder.items()):
        if held is holder:
            _holder.pop(process, None)


def _wrap_profiler_call(original: Callable[..., Any], begins: bool) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self not in _ours:
            if begins:
                _theirs.add(self)
                _give_way()
            else:
                _theirs.discard(self)
        try:
            return original(self, *args, **kwargs)
        except Exception:  # handed on to whoever called PyTorch
            if self in _ours:
                note_end()
            raise
        finally:
            if not begins:
                give_back_recording(self)

    call.steplens_original = original  # type: ignore[attr-defined]
    return call


def note_end() -> None:
    """Let PyTorch know that one of ours records no longer: it keeps a note of that, which stays when a call of it fails."""
    profiler: Any = importlib.import_module("torch.autograd.profiler")
    autograd: Any = importlib.import_module("torch.autograd")
    stopped = getattr(profiler, "_run_on_profiler_stop", None)
    if stopped is not None and not autograd._profiler_enabled():
        stopped()


def _give_way() -> None:
    for session in list(_sessions):
        try:
            session.give_way()
        except Exception as exception:  # the boundary to the program that starts its own profiler
            log.report_failure("giving way to another profiler", exception)
