"""Windows that are kept in memory and reach the disk only when something happens."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Any

from steplens.collect.pytorch.kineto import KinetoSession
from steplens.collect.pytorch.window import Window
from steplens.collect.torch_internals import other_profilers
from steplens.common import rundir


class RingSession(KinetoSession):
    """A session whose last closed window stays in memory, beside the one that is open.

    Kineto cannot give back what it has not recorded, so short windows follow one another without a gap; the second last is
    thrown away. Its results are kept as Kineto holds them, in C++, which takes no part of the training's time.
    """

    # most windows are thrown away
    _keeps_spare_files = False

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
        """Close the window that is open and keep it in memory."""
        self._discard_previous_window()
        self.stop_trace()
        window, self.window = self.window, None
        if window is not None and window.started:
            self._kept = window

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
            window.run_directory = rundir.create_run_directory(parent, self._worker_name)
            raw = rundir.make_directory(window.run_directory / rundir.RAW_DIRECTORY)
            window.recorders.folder = raw
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
            _give_up(window)
        return run_directories

    def discard(self) -> None:
        """Throw everything away."""
        with contextlib.suppress(Exception):
            self.stop_trace()
        self._discard_previous_window()
        if self.window is not None:
            _give_up(self.window)
            self.window = None

    def _discard_previous_window(self) -> None:
        """Throw away the kept window, at once: it is part of a cycle, and the interpreter would keep it for a while."""
        if self._kept is not None:
            _give_up(self._kept)
            self._kept = None

    def _new_directory(self, parent: Path) -> Path:
        # made when it is needed
        return parent / rundir.run_directory_name(self._worker_name)

    def _not_held(self, window: Window) -> None:
        # most windows are thrown away; one that was to be kept is missed when it is saved
        pass

    def _has_room(self, parent: Path) -> bool:
        # asked when a window opens, which takes no room yet
        return True

    def _write_state(self, window: Window, state: str, health: list[dict[str, Any]]) -> None:
        if self._saving:
            super()._write_state(window, state, health)


def _give_up(window: Window) -> None:
    other_profilers.give_back_recording(window.kineto)
    window.kineto = None
    window.recorders.cancel()
