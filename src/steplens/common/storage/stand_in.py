"""The folder that stands in for a place behind a URL: names, sizes and times as they were listed, without content."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from steplens.common import json_text, rundir, stand_ins
from steplens.common.errors import InputError
from steplens.common.storage import user_cache
from steplens.common.storage.remote_tree import RemoteFile, RemoteTree, is_plain_name
from steplens.common.storage.urls import is_web

_TREE, _LISTED, _LOCK = "tree", "listed.json", "list.lock"
_LOG = logging.getLogger("steplens")
_FOLDER_MODE, _FILE_MODE = 0o700, 0o600


class StandIn:
    """The stand-in of one place.

    Args:
        url: of the place.
        trusts_listing: another process of this command has listed it just now.

    Attributes:
        url: the same.
        tree: what is asked of the place.
        prefix: of every path in it.
        path: the place itself.
    """

    def __init__(self, url: str, *, trusts_listing: bool) -> None:
        self.url = url
        self.tree = RemoteTree(url)
        self._trusts_listing = trusts_listing
        self._files: dict[str, RemoteFile] | None = None
        protocol, _, location = self.tree.shown.partition("://")
        names = [name for name in location.split("/") if name]
        if not names or not all(map(is_plain_name, names)):
            raise InputError(self.tree.shown, "is no URL of a file or folder", "Give one such as s3://bucket/folder")
        if "::" in location:
            raise InputError(self.tree.shown, "is a URL inside of another one", "Give that of a file or folder alone")
        self._unit = user_cache.use_unit(user_cache.REMOTE, user_cache.digest_of(self.tree.shown))
        top = self._unit / _TREE / protocol
        self.path = top.joinpath(*names)
        self.prefix = f"{top}{os.sep}"
        stand_ins.stand_in(str(top), f"{protocol}://")

    def list_once(self) -> dict[str, RemoteFile]:
        """Make the stand-in what the listing of the place says, unless that was done; what its paths stand for.

        Raises:
            InputError: it cannot be listed.
        """
        if self._files is None:
            listed = self._read_listing() if self._trusts_listing else None
            self._files = self._list_place() if listed is None else listed
        return self._files

    def _list_place(self) -> dict[str, RemoteFile]:
        levels, listed_files, left_out = self.tree.list_files()
        folder = self.path if not levels else self.path.parents[levels - 1]
        files = {os.path.join(folder, *names): file for names, file in listed_files.items()}
        with self._lock_listing():
            files = dict(_made_stand_ins(folder, files))
            if not is_web(self.url):  # names there may hold secrets
                listed = {path: [file.place, file.size, file.time_ns, file.mark] for path, file in files.items()}
                rundir.write_bytes(self._unit / _LISTED, json.dumps(listed).encode())
        user_cache.note_written()
        if left_out := left_out + len(listed_files) - len(files):
            message = f"{left_out} files of {self.tree.shown} have names or sizes that no file here can have, and are left out"
            _LOG.warning("steplens: %s", message)
        return files

    def _read_listing(self) -> dict[str, RemoteFile] | None:
        with contextlib.suppress(OSError, ValueError, TypeError):
            listed = json_text.loads_stored((self._unit / _LISTED).read_bytes())
            return {path: RemoteFile(*values) for path, values in listed.items()}
        return None

    @contextlib.contextmanager
    def _lock_listing(self) -> Iterator[None]:
        """While this lasts no other process changes the stand-in."""
        lock = os.open(self._unit / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, _FILE_MODE)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def _made_stand_ins(folder: Path, files: Mapping[str, RemoteFile]) -> Iterator[tuple[str, RemoteFile]]:
    """Make files without content in place of these, and remove what is none of them any more; those that could be made."""
    _remove_others(str(folder), files)
    folders: set[str] = set()
    for path, file in files.items():
        around = os.path.dirname(path)
        # elsewhere a name may be that of a file and of a folder; here it is that of the first that is listed
        with contextlib.suppress(OSError):
            if around not in folders:
                os.makedirs(around, _FOLDER_MODE, exist_ok=True)
                folders.add(around)
            _make_stand_in(path, file)
            yield path, file
    folder.mkdir(_FOLDER_MODE, parents=True, exist_ok=True)


def _make_stand_in(path: str, file: RemoteFile) -> None:
    with contextlib.suppress(FileNotFoundError):
        status = os.lstat(path)
        if stat.S_ISREG(status.st_mode) and (status.st_size, status.st_mtime_ns) == (file.size, file.time_ns):
            return
        # a new file, not the old one with another size: what is known of a file by its number is not true of the next one
        os.unlink(path)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, _FILE_MODE)
    try:
        os.ftruncate(descriptor, file.size)
        os.utime(descriptor, ns=(file.time_ns, file.time_ns))
    finally:
        os.close(descriptor)


def _remove_others(folder: str, files: Mapping[str, RemoteFile]) -> None:
    """Remove stand-ins of what is not there any more; tables that were made of it go with their folder."""
    with_files = {folder}
    for path in files:
        around = os.path.dirname(path)
        while around not in with_files:
            with_files.add(around)
            around = os.path.dirname(around)
    waiting = [folder]
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.name == rundir.CACHE_DIRECTORY:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if entry.path in with_files:
                        waiting.append(entry.path)
                    else:
                        shutil.rmtree(entry.path, ignore_errors=True)
                elif entry.path not in files:
                    with contextlib.suppress(OSError):
                        os.unlink(entry.path)
