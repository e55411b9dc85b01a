"""Records the data pipeline, in the only order of calls that does not end in a crash of MindSpore's data engine.

``init``, then the iterator is made, then ``start`` once and ``stop`` once while that iterator lives, then ``save``. Several
windows share one recording, which the reader cuts by time. Another pipeline can be recorded only after the iterator of the last
one is gone. What would lead to one of the sequences that crash (a second ``start`` on one iterator, ``start`` after its pipeline
was destroyed, ``init`` while it lives) is not done, and the result says that it was not recorded.
"""

from __future__ import annotations

import atexit
import gc
import os
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from steplens.collect.common import clock, log
from steplens.collect.mindspore.recording import framework
from steplens.common import rundir
from steplens.formats.mindspore import PIPELINE_FILE

#: ms between samples of queues and processors; MindSpore's own 1000 ms take one sample in a short run
SAMPLING_MS = 50
_DEFAULT_SAMPLING_MS = 1000

IDLE = "idle"
#: ``init`` was called, no iterator was made since
READY = "ready"
#: the iterator was made, ``start`` was not called
ARMED = "armed"
RUNNING = "running"
#: saved; its iterator may live on
SAVED = "saved"


class Pipeline:
    """The recording of the process's data pipeline; there is one per process, as in the data engine."""

    def __init__(self) -> None:
        self._state = IDLE
        self._wanted = 0
        self._pid = os.getpid()
        self._target: Path | None = None
        self._count = 0
        self._iterator: weakref.ref[Any] | None = None
        #: keeps the recorded pipeline from being destroyed while it is recorded
        self._kept: Any = None
        self._started_ns = 0
        self._lock = threading.RLock()
        self._problems: list[str] = []

    def want(self) -> None:
        """Somebody wants the next pipeline to be recorded."""
        self._wanted += 1

    def leave(self) -> None:
        """Somebody does not want it any more."""
        self._wanted = max(self._wanted - 1, 0)

    def problems(self) -> list[str]:
        """What was not recorded, one sentence each; asking clears it."""
        found, self._problems = self._problems, []
        return found

    # --- called by the hooks of the iterator, inside somebody's training

    def before_iterator(self) -> None:
        """An iterator is about to be made: ``init`` has to come before."""
        if self._wanted:
            self._call_guarded(self._prepare_pipeline)

    def after_iterator(self, iterator: Any) -> None:
        """The iterator was made."""
        self._call_guarded(self._note_iterator, iterator)

    def before_stop(self, iterator: Any) -> None:
        """An iterator is about to be destroyed."""
        self._call_guarded(self._release_iterator, iterator)

    def _call_guarded(self, call: Callable[..., None], *arguments: Any) -> None:
        if os.getpid() != self._pid:
            return
        try:
            call(*arguments)
        except Exception as error:  # the boundary to somebody's training
            self._state, self._kept, self._wanted = SAVED, None, 0
            self._add_problem(f"recording the data pipeline failed: {' '.join(str(error).split())[:300]}")
            log.report_failure("recording the data pipeline", error)

    def _prepare_pipeline(self) -> None:
        with self._lock:
            if self._state == RUNNING:
                self.finish()
            if self._state in (ARMED, SAVED):
                gc.collect()
                if self._iterator is not None and self._iterator() is not None:
                    self._add_problem(
                        "another data pipeline was started while the first one was there; the data engine records one only"
                    )
                    return
                self._state = IDLE
            if self._state == IDLE:
                config = framework.dataset_config()
                if config.get_monitor_sampling_interval() == _DEFAULT_SAMPLING_MS:
                    config.set_monitor_sampling_interval(SAMPLING_MS)
                framework.pipeline_profiler().init()
                self._state = READY

    def _note_iterator(self, iterator: Any) -> None:
        with self._lock:
            if self._state == READY:
                self._iterator, self._state = weakref.ref(iterator), ARMED
                if self._target is not None:
                    self._start_recording(iterator)

    def _release_iterator(self, iterator: Any) -> None:
        with self._lock:
            if self._state == RUNNING and self._kept is iterator:
                self.finish()
            elif self._state == ARMED and self._is_registered(iterator):
                # never started: the data engine wants to see an end before it accepts another pipeline
                manager = framework.pipeline_profiler()
                manager.start()
                manager.stop()
                self._state = SAVED

    # --- called by the windows

    def window_opens(self, raw: Path) -> None:
        """A window that wants the pipeline opens; the recording goes below ``raw``."""
        with self._lock:
            self._target = raw
            iterator = self._iterator() if self._iterator is not None else None
            if self._state == ARMED and iterator is not None:
                self._start_recording(iterator)
            elif self._state == SAVED and iterator is not None:
                self._add_problem(
                    "this data pipeline has been recorded and saved; the data engine cannot record it a second time"
                )
            elif self._state == IDLE:
                self._look_for_others()

    def window_closes(self) -> None:
        """The window closes. A recording goes on until :meth:`finish`, since it cannot be started again."""
        with self._lock:
            if self._state != RUNNING:
                self._target = None

    def finish(self) -> None:
        """Stop and save a recording that runs."""
        if os.getpid() != self._pid:
            # a forked worker of the pipeline itself: the recording is its parent's
            return
        with self._lock:
            if self._state != RUNNING:
                self._target = None
                return
            manager = framework.pipeline_profiler()
            manager.stop()
            ended_ns = time.time_ns()
            self._state = SAVED
            target, self._target = self._target, None
            try:
                assert target is not None
                rank = framework.mindspore_rank()
                while (folder := target / f"pipeline_{rank}_{self._count}").exists():
                    self._count += 1
                rundir.make_directory(folder)
                manager.save(str(folder))
                # the data engine's times are of the steady clock
                unix_ns, steady_ns = clock.both_ns(time.monotonic_ns)
                value = {"rank": rank, "pid": os.getpid(), "clock_offset_ns": unix_ns - steady_ns,
                         "begin_ns": self._started_ns, "end_ns": ended_ns}  # fmt: skip
                rundir.write_json(folder / PIPELINE_FILE, value)
                for file in folder.iterdir():
                    file.chmod(rundir.FILE_MODE)
            finally:
                self._kept = None

    def _is_registered(self, iterator: Any) -> bool:
        # a reference is dead already while its object is being destroyed
        return self._iterator is not None and self._iterator() in (None, iterator)

    def _start_recording(self, iterator: Any) -> None:
        framework.pipeline_profiler().start()
        self._kept, self._state, self._started_ns = iterator, RUNNING, time.time_ns()

    def _look_for_others(self) -> None:
        from mindspore.dataset.engine.iterators import ITERATORS_LIST

        if any(reference() is not None for reference in ITERATORS_LIST):
            self._add_problem("the data pipeline was made before the profiler, so it is not recorded; make the profiler first")

    def _add_problem(self, problem: str) -> None:
        if problem not in self._problems:
            self._problems.append(problem)


pipeline = Pipeline()


@atexit.register
def _at_exit() -> None:
    try:
        pipeline.finish()
    except Exception as error:  # the boundary to the end of the interpreter
        log.report_failure("saving the data pipeline's recording", error)
