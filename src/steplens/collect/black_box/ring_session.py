"""Windows that follow one another without a gap, of which the last ones are kept until something happens."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path
from typing import Any

from steplens.collect.common import clock, metadata
from steplens.collect.pytorch.kineto import KinetoSession
from steplens.collect.pytorch.recorder_session import RecorderSession
from steplens.collect.pytorch.window import Window
from steplens.collect.torch_internals import other_profilers
from steplens.common import rundir

#: how the folder ends that holds the windows of a black box while it runs
RING_SUFFIX = "last_steps"


class RingSession(KinetoSession):
    """A session whose last closed window is kept, beside the one that is open.

    Nothing can be recorded after the fact, so short windows follow one another without a gap; the second last is thrown away.
    """

    # most windows are thrown away
    _keeps_spare_files = False
    #: a window is no shorter than this
    least_window_ns = 0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._kept: Window | None = None
        self._saving = False

    def rotate(self) -> None:
        """Close the window that is open, keep it, throw away the one before it, and open the next."""
        self.hold()
        self.init_trace()
        self.start_trace()

    def hold(self) -> None:
        """Close the window that is open and keep it."""
        self._discard_previous_window()
        self.stop_trace()
        window, self.window = self.window, None
        if window is not None and window.started:
            self._kept = window
            self._let_next_begin(window)

    def save(self) -> list[Path]:
        """Write the kept window and the one that is open, which is closed by that.

        Returns:
            their run directories, oldest first; one that could not be saved is left out, and its files are removed.
        """
        self.stop_trace()
        windows = [window for window in (self._kept, self.window) if window is not None and window.started]
        self._kept = self.window = None
        run_directories = []
        for window in windows:
            parent = self._parent()
            if not super()._has_room(parent):
                break
            self._place_window(window, parent)
            self._saving, self.window = True, window
            try:
                self.finalize_trace()
            finally:
                self._saving = False
            run = self.collected_run()
            if run is not None:
                run_directories.append(run)
            else:
                shutil.rmtree(window.run_directory, ignore_errors=True)
            self.closed = None
        for window in windows:
            self._give_up(window, keep=window.run_directory in run_directories)
        return run_directories

    def discard(self) -> None:
        """Throw everything away."""
        with contextlib.suppress(Exception):
            self.stop_trace()
        self._discard_previous_window()
        if self.window is not None:
            self._give_up(self.window)
            self.window = None
        self._remove_ring()

    def _let_next_begin(self, window: Window) -> None:
        """Do what has to be done with a window that is kept before another one can be recorded."""

    def _remove_ring(self) -> None:
        """Remove what windows lay in, when all of them are gone."""

    def _discard_previous_window(self) -> None:
        """Throw away the kept window, at once: it is part of a cycle, and the interpreter would keep it for a while."""
        if self._kept is not None:
            self._give_up(self._kept)
            self._kept = None

    def _place_window(self, window: Window, parent: Path) -> None:
        """Give a window that is to be saved its run directory in a folder."""
        window.run_directory = rundir.create_run_directory(parent, self._worker_name)
        window.recorders.folder = rundir.make_directory(window.run_directory / rundir.RAW_DIRECTORY)

    def _give_up(self, window: Window, *, keep: bool = False) -> None:
        """Let go of a window; ``keep`` its files."""
        other_profilers.give_back_recording(window.kineto)
        window.kineto = None
        window.recorders.cancel()

    def _not_held(self, window: Window) -> None:
        # most windows are thrown away; one that was to be kept is missed when it is saved
        pass

    def may_rotate(self) -> bool:
        """Whether the window that is open is long enough to be followed by another one."""
        return self.window is None or clock.monotonic_ns() - self.window.span.start_monotonic_ns >= self.least_window_ns

    def _has_room(self, parent: Path) -> bool:
        # asked when a window opens, which takes little room or none
        return True


class KinetoRingSession(RingSession):
    """With Kineto: its results are kept as Kineto holds them, in C++, and nothing is on disk before something happens."""

    def _new_directory(self, parent: Path) -> Path:
        # made when it is needed
        return parent / rundir.run_directory_name(self._worker_name)

    def _write_state(self, window: Window, state: str, health: list[dict[str, Any]]) -> None:
        if self._saving:
            super()._write_state(window, state, health)


class RecorderRingSession(RingSession, RecorderSession):
    """With the recorder: windows are on disk while they are recorded, so that they outlive a process that is killed.

    They lie in a folder of the process, ``<time>_<pid>[_rank<rank>]_last_steps``, which goes when the black box stops.
    """

    # a window takes two milliseconds of the training, files and folders most of all: half a percent of this
    least_window_ns = 500_000_000

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._folder: Path | None = None

    def _let_next_begin(self, window: Window) -> None:
        self._finish_recording(window)

    def _remove_ring(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _new_directory(self, parent: Path) -> Path:
        if self._folder is None:
            rank = metadata.process_rank()
            names = [time.strftime("%Y%m%d%H%M%S"), str(os.getpid()), *([f"rank{rank}"] if rank >= 0 else []), RING_SUFFIX]
            self._folder = rundir.make_directory(parent / "_".join(names))
        return super()._new_directory(self._folder)

    def _place_window(self, window: Window, parent: Path) -> None:
        target = parent / window.run_directory.name
        rundir.make_directory(parent)
        window.run_directory = Path(shutil.move(window.run_directory, target))
        window.recorders.folder = window.run_directory / rundir.RAW_DIRECTORY

    def _give_up(self, window: Window, *, keep: bool = False) -> None:
        if not keep:
            if window.started:
                self._finish_recording(window)
            shutil.rmtree(window.run_directory, ignore_errors=True)
        super()._give_up(window, keep=keep)
