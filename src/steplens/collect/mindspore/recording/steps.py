"""Where a step begins and ends, which MindSpore does not tell on a CPU.

Three sources, the first one that speaks counts: calls of ``step()``; the callbacks of ``Model.train``; the data pipeline's
iterator, where a step lasts from asking for its batch to asking for the next one. Eager work is waited for at every border
while a window is open, so that every launch lies in the step that made it.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from steplens.collect.mindspore.recording import framework
from steplens.collect.mindspore.recording.pipeline import pipeline

MANUAL = "step()"
MODEL = "Model.train"
ITERATOR = "the data pipeline's iterator"


class Steps:
    """The steps of the process, and those of the window that is open.

    Attributes:
        number: the step that runs, counted from 1; 0 before the first.
        recorded: rows of number, start and end (Unix ns) of the window's finished steps.
        waits: rows of number, start and end (Unix ns): the loop waited for the data of that step.
        partial: numbers of the window's steps that it holds a part of.
        unended: those of them whose end is not known: their loop was left, or recording ended inside them.
        trainer: which of MindSpore's managers of callbacks began the last step of ``Model.train``.
        loop_begins: called when the script itself asks an iterator for a batch, until it is None.
    """

    def __init__(self) -> None:
        self.number = 0
        self.source = ""
        self.tid = 0
        self.recorded: list[list[int]] = []
        self.waits: list[list[int]] = []
        self.partial: list[int] = []
        self.unended: list[int] = []
        self.trainer = 0
        self.loop_begins: Callable[[], None] | None = None
        self._open = False
        self._running = False
        self._start_ns = 0
        self._window_ns = 0
        self._asked_ns = 0
        self._main: weakref.ref[Any] | None = None
        # of the iterator that makes the steps: whether a ``for`` asked it last, and how many references it had then
        self._by_for = False
        self._held = 0
        # when it died, or, while its step runs, when another iterator was asked first; 0 otherwise
        self._left_ns = 0
        self._training = threading.local()

    # --- the window

    def open_window(self, begin_ns: int) -> None:
        """A window opens; a step that runs is in it from here on."""
        self.recorded, self.waits, self.partial, self.unended = [], [], [], []
        if self.source == ITERATOR and not self._in_loop():
            self._running = False
        self.tid = threading.get_native_id()
        self._open, self._window_ns = True, begin_ns
        if self._running:
            self._start_ns = begin_ns
            if not getattr(self._training, "beginning", False):
                self.partial.append(self.number)

    def close_window(self) -> None:
        """The window closes; a step that runs ends in it. Eager work has been waited for."""
        if self.source == ITERATOR and not self._in_loop():
            self._leave_loop()
        if self._running:
            self._record_step(time.time_ns())
            if not getattr(self._training, "ending", False):
                if self.number not in self.partial:
                    self.partial.append(self.number)
                if self.source == ITERATOR:
                    self.unended.append(self.number)
            # the same step may go on into another window, from there on
            self._start_ns = time.time_ns()
        self._open = False

    def _record_step(self, end_ns: int) -> None:
        if self._open:
            self.recorded.append([self.number, self._start_ns, end_ns])

    def _end_step(self) -> int:
        """End the step that runs, if any; gives the time of the border."""
        if self._open:
            framework.wait_for_eager_work()
        now = time.time_ns()
        if self._running:
            self._record_step(now)
            self._running = False
        return now

    def _leave_loop(self) -> None:
        """The loop of an iterator was left, nobody knows when: by now, and before another iterator was asked."""
        if self._running:
            now = time.time_ns()
            self.unended.append(self.number)
            if self.number not in self.partial:
                self.partial.append(self.number)
            self._record_step(max(min(self._left_ns or now, now), self._start_ns))
            self._running = False

    def _in_loop(self) -> bool:
        """Whether the loop over the iterator that makes the steps may still go on.

        A ``for`` holds its iterator: it was left when the iterator died, or when it has fewer references than at its last turn.
        """
        main = self._main() if self._main is not None else None
        return main is not None and not (self._by_for and count_references(main) < self._held)

    def _iterator_destroyed(self, reference: weakref.ref[Any]) -> None:
        """The iterator that makes the steps was destroyed: without another turn when its loop is left by ``break``."""
        if self._main is reference and not self._left_ns:
            self._left_ns = time.time_ns()

    # --- step()

    def manual(self, number: int) -> None:
        """``step()`` was called: the step before ends, step ``number`` begins."""
        if self.source != MANUAL:
            self.source = MANUAL
            if self._open:
                # what the iterator or Model told so far lies within this first step
                self.recorded.clear()
                self.partial.clear()
                self.unended.clear()
                self._start_ns, self._running = self._window_ns, True
            self.number = number - 1
        now = self._end_step()
        self.number, self._start_ns, self._running = number, now, True

    def begin_manual(self, number: int, begin_ns: int) -> None:
        """A window of an object that steps by ``step()`` opens with step ``number``."""
        self.source, self.number, self._start_ns, self._running = MANUAL, number, begin_ns, True
        self.partial.clear()

    def pause(self) -> None:
        """The window that is about to close ends at the border; the step behind it is in none."""
        self._running = False

    def end_manual(self) -> None:
        """Nobody calls ``step()`` any more; other sources may speak again."""
        if self.source == MANUAL:
            self.source, self._running = "", False

    # --- Model.train

    def model_begins(self, number: int) -> None:
        """``on_train_step_begin``: the step began when its data was asked for."""
        if self.source == MANUAL:
            return
        if self.source == ITERATOR and self._asked_ns:
            # not the iterator that makes the steps was asked for this batch
            self._leave_loop()
            self._start_ns = self._asked_ns
        self.source = MODEL
        if not self._running:
            self._start_ns = self._asked_ns or time.time_ns()
        self.number, self._running, self._asked_ns = number, True, 0
        if self._open and self.waits and self.waits[-1][1] >= self._start_ns:
            self.waits[-1][0] = number

    def model_ends(self) -> None:
        """``on_train_step_end``."""
        if self.source == MODEL:
            self._end_step()

    def model_trained(self) -> None:
        """``on_train_end``: loops of the script's own may follow."""
        if self.source == MODEL:
            self.source, self._running, self._main = "", False, None

    def model_left(self, trainer: int) -> None:
        """A training of ``Model`` is over, also by an exception, after which nothing says ``on_train_end``."""
        if self.source != MODEL or self.trainer != trainer:
            return
        if self._running:
            self.partial.append(self.number)
            self._record_step(time.time_ns())
        self.model_trained()

    # --- the iterator

    def asks(self, iterator: Any) -> int:
        """The loop asks for a batch; gives the time."""
        if self.source == MANUAL:
            return time.time_ns()
        if self.source == MODEL:
            now = time.time_ns()
            if not self._running:
                self._asked_ns = now
            return now
        main = self._main() if self._main is not None else None
        if main is not iterator and main is not None and self._in_loop():
            # within a step, as an evaluation does, unless the loop never goes on
            now = time.time_ns()
            self._left_ns, self._asked_ns = self._left_ns or now, now
            return now
        if main is not iterator:
            self._leave_loop()
            self._main = weakref.ref(iterator, self._iterator_destroyed)
        self._left_ns = self._asked_ns = 0
        return self._end_step()

    def has(self, iterator: Any, asked_ns: int, by_for: bool, held: int) -> None:
        """The loop has its batch; whether a ``for`` asked for it, and the iterator's ``references`` at this moment."""
        now = time.time_ns()
        if self.source != MANUAL and self.source != MODEL:
            main = self._main() if self._main is not None else None
            if main is not iterator:
                return
            self.source, self._by_for, self._held = ITERATOR, by_for, held
            self.number += 1
            self._start_ns, self._running = asked_ns, True
        if self._open:
            self.waits.append([self.number, asked_ns, now])

    def exhausted(self, iterator: Any) -> None:
        """There was no batch left."""
        self._asked_ns = 0
        if self._main is not None and self._main() is iterator:
            self._main = None

    # --- what is being called

    @contextlib.contextmanager
    def in_callbacks(self, name: str) -> Iterator[None]:
        """While the callbacks of the beginning (``beginning``) or the end (``ending``) of a step of Model run."""
        setattr(self._training, name, True)
        try:
            yield
        finally:
            setattr(self._training, name, False)


steps = Steps()
_FOR_ITER = dis.opmap["FOR_ITER"]
_hooked = False


def install_hooks() -> None:
    """Listen to iterators and to ``Model``'s callbacks; once per process."""
    global _hooked
    if _hooked:
        return
    _hooked = True
    _hook_iterators()
    _hook_worker_pools()
    _hook_callbacks()


def _hook_iterators() -> None:
    iterator = framework.iterator_class()
    create, following, stop = iterator.__init__, iterator.__next__, iterator.stop

    @functools.wraps(create)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        pipeline.before_iterator()
        create(self, *args, **kwargs)
        pipeline.after_iterator(self)

    @functools.wraps(following)
    def __next__(self: Any) -> Any:
        if steps.loop_begins is not None and not _is_mindspore(sys._getframe(1)):
            steps.loop_begins()
        asked_ns = steps.asks(self)
        try:
            batch = following(self)
        except StopIteration:
            steps.exhausted(self)
            raise
        # on a line of its own, as where it is compared with: the arguments of a call are references, too
        held = count_references(self)
        steps.has(self, asked_ns, _is_for(sys._getframe(1)), held)
        return batch

    @functools.wraps(stop)
    def stop_(self: Any) -> None:
        pipeline.before_stop(self)
        stop(self)

    iterator.__init__, iterator.__next__, iterator.stop = __init__, __next__, stop_


def count_references(iterator: Any) -> int:
    """References to an iterator; comparable between callers that hold it in one variable and call nothing else meanwhile."""
    return sys.getrefcount(iterator)


def _is_for(frame: Any) -> bool:
    """Whether a frame is at the turn of a ``for``, also over what wraps the iterator, and not at a call of ``next``."""
    code: bytes = frame.f_code.co_code
    at: int = frame.f_lasti
    return 0 <= at < len(code) and code[at] == _FOR_ITER


def _is_mindspore(frame: Any) -> bool:
    """Whether ``Model`` asks, for training or for evaluation, and not the script."""
    return str(frame.f_globals.get("__name__")).partition(".")[0] == "mindspore"


def _hook_worker_pools() -> None:
    """Let the data engine's sampler wait for workers that are still being started.

    It asks a pool for the process ids of its workers, and ends the training when one has none yet; the pool keeps such a list.
    """
    pool = framework.worker_pool_class()
    original = getattr(pool, "get_pids", None)
    if original is None:
        return

    @functools.wraps(original)
    def get_pids(self: Any) -> Any:
        if not self.pids and self.is_mp_enabled():
            workers = list(self.workers or ())
            with contextlib.suppress(ValueError):  # a worker that has ended and was closed
                if len(workers) < self.num_parallel_workers or any(worker.pid is None for worker in workers):
                    return []
        return original(self)

    pool.get_pids = get_pids


def _hook_callbacks() -> None:
    manager = framework.callback_manager_class()
    if manager is None:
        return

    def wrap_callback(name: str, before: Callable[[Any, Any], None], after: Callable[[], None], word: str) -> None:
        original = getattr(manager, name, None)
        if original is None:
            return

        @functools.wraps(original)
        def called(self: Any, run_context: Any) -> Any:
            before(self, run_context)
            try:
                with steps.in_callbacks(word):
                    return original(self, run_context)
            finally:
                after()

        setattr(manager, name, called)

    wrap_callback("on_train_step_begin", _model_begins, lambda: None, "beginning")
    wrap_callback("on_train_step_end", lambda manager, context: framework.wait_for_eager_work(), steps.model_ends, "ending")
    wrap_callback("on_train_end", lambda manager, context: None, steps.model_trained, "leaving")
    leave = getattr(manager, "__exit__", None)
    if leave is None:
        return

    @functools.wraps(leave)
    def __exit__(self: Any, *error: Any) -> Any:
        try:
            return leave(self, *error)
        finally:
            steps.model_left(id(self))

    manager.__exit__ = __exit__


def _model_begins(manager: Any, context: Any) -> None:
    steps.trainer = id(manager)
    number = getattr(context.original_args(), "cur_step_num", None)
    steps.model_begins(number if isinstance(number, int) and number > 0 else steps.number + 1)
