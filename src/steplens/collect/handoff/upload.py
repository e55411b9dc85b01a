"""Where recorded data ends up: it is written to a local folder first and moved to its target afterwards, beside the training.

A target is a folder, perhaps on slow or shared storage, or the URL of anything that fsspec knows (``s3://``, ``gs://``, ``memory://``).
What cannot be moved stays where it is.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import queue
import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from steplens.collect.common import exception_text, log
from steplens.collect.common.health import ERROR
from steplens.common import json_text, partial, rundir
from steplens.common.storage.urls import is_url, without_credentials

#: written last, because they say that the rest is complete
_MARKERS = (rundir.STATE_FILE, rundir.COMPLETION_MARKER)


def split_target(dir_name: str | None, local_dir: str | None) -> tuple[str | None, str | None]:
    """Where to write, and where to move what was written.

    Args:
        dir_name: what the user wants: a folder or a URL; None leaves it to the profiler.
        local_dir: the folder to write to first; None for none, or for one that is made for a URL.

    Returns:
        the folder to write to, absolute, and the target; None for a target that is the same folder.
    """
    if dir_name is not None and urlsplit(dir_name).scheme == "file":
        dir_name = unquote(urlsplit(dir_name).path)
    local = str(rundir.absolute_path(local_dir)) if local_dir is not None else None
    if dir_name is None:
        return local, None
    if is_url(dir_name):
        return local or _temporary_folder(), dir_name
    target = str(rundir.absolute_path(dir_name))
    return (target, None) if local in (None, target) else (local, target)


def _temporary_folder() -> str:
    """A local folder for data that goes to a URL; it is removed at the end unless something had to stay in it."""
    folder = tempfile.mkdtemp(prefix="steplens_landing_")

    def remove_if_empty(process: int) -> None:
        if os.getpid() == process:
            with contextlib.suppress(OSError):
                os.rmdir(folder)

    atexit.register(remove_if_empty, os.getpid())
    return folder


def move_run(run: Path, target: str) -> str:
    """Move a run directory to a target.

    Args:
        run: the run directory.
        target: a folder, or a URL.

    Returns:
        the new path or URL.

    Raises:
        Exception: anything that the target's file system raises; the run directory is as it was.
    """
    if not is_url(target):
        return str(_move_to_folder(run, Path(target)))
    destination = _upload_run(run, target)
    shutil.rmtree(run, ignore_errors=True)
    return destination


def _move_to_folder(run: Path, folder: Path) -> Path:
    rundir.make_directory(folder)
    destination = folder / run.name
    if destination.exists():
        raise FileExistsError(f"{destination} exists")
    try:
        run.rename(destination)
    except OSError:  # another file system
        temporary = partial.partial_path(destination)
        try:
            shutil.copytree(run, temporary, symlinks=True)
            temporary.rename(destination)
        except BaseException:  # goes on: the copy that is not complete is removed first
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        shutil.rmtree(run, ignore_errors=True)
    return destination


def _upload_run(run: Path, url: str) -> str:
    try:
        fsspec: Any = importlib.import_module("fsspec")
    except ImportError:
        raise RuntimeError("a URL needs fsspec: pip install fsspec") from None
    filesystem, root = fsspec.core.url_to_fs(url)
    destination = f"{root.rstrip('/')}/{run.name}"
    if filesystem.exists(destination):
        raise FileExistsError(f"{without_credentials(destination)} exists")
    # the cache is told by the times of the files it is of, which a URL does not keep
    there = [path for path in run.rglob("*") if path.is_file() and rundir.CACHE_DIRECTORY not in path.relative_to(run).parts]
    files = sorted(there, key=lambda path: (path.name in _MARKERS, path))
    try:
        for path in files:
            remote = f"{destination}/{path.relative_to(run).as_posix()}"
            filesystem.makedirs(remote.rpartition("/")[0], exist_ok=True)
            filesystem.put_file(str(path), remote)
            arrived = filesystem.info(remote).get("size")
            if arrived is not None and arrived != path.stat().st_size:
                raise OSError(f"{path.name} arrived with {arrived} of {path.stat().st_size} bytes")
    except BaseException:  # goes on: what arrived in part is removed first
        with contextlib.suppress(Exception):
            filesystem.rm(destination, recursive=True)
        raise
    return f"{url.rstrip('/')}/{run.name}"


def note_failure(run: Path, target: str, error: BaseException) -> str:
    """Say in the run directory that it could not be moved; returns the sentence."""
    reason = " ".join(exception_text.describe_exception(error).split())[:500]
    message = f"{run} could not be moved to {without_credentials(target)} and stays where it is: {without_credentials(reason)}"
    path = run / rundir.RAW_DIRECTORY / rundir.STATE_FILE
    with contextlib.suppress(OSError, ValueError, KeyError):
        state = json_text.loads(path.read_bytes())
        state["health"].append({"check": "landing", "severity": ERROR, "count": 1, "message": message, "unsafe": ""})
        rundir.write_json(path, state)
    return message


class _Uploads:
    """Moves run directories one after the other, in a thread that lives while there are any."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[tuple[Path, str, Callable[[str], None]]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._process = os.getpid()

    def add(self, run: Path, target: str, moved: Callable[[str], None]) -> None:
        if os.getpid() != self._process:
            # a forked child has the queue of its parent, but not the thread
            _Uploads.__init__(self)
        with self._lock:
            self._waiting.put((run, target, moved))
            if self._thread is None:
                self._thread = threading.Thread(target=self._upload_waiting_runs, name="steplens upload", daemon=True)
                self._thread.start()

    def _upload_waiting_runs(self) -> None:
        while True:
            with self._lock:
                if self._waiting.empty():
                    self._thread = None
                    return
                run, target, moved = self._waiting.get()
            try:
                destination = move_run(run, target)
                moved(destination)
                log.info(f"{run.name} is in {without_credentials(target)}.")
            except Exception as error:  # whatever a foreign file system raises, the training goes on
                log.error(note_failure(run, target, error))

    def wait(self) -> None:
        thread = self._thread
        if thread is not None and os.getpid() == self._process:
            log.info("Waiting until recorded data is moved to its target; Ctrl-C leaves the rest where it is.")
            thread.join()


_uploads = _Uploads()


def move_later(run: Path, target: str, moved: Callable[[str], None] = lambda destination: None) -> None:
    """Move a run directory to a target, beside the training.

    Args:
        run: the run directory.
        target: a folder, or a URL.
        moved: called with the new path or URL, in another thread.
    """
    _uploads.add(run, target, moved)


def wait_for_moves() -> None:
    """Wait until everything is moved; for the end of the program."""
    _uploads.wait()
