"""One place behind a URL: what lies there, listed once, and the bytes of its files in ranges."""

from __future__ import annotations

import contextlib
import datetime
import errno
import hashlib
import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from steplens.common import rundir
from steplens.common.errors import InputError
from steplens.common.storage.urls import is_web, shown_url, without_secrets

#: more than a search for runs walks through
_MOST_ENTRIES = 200_000
#: folders inside a run directory that stand for it: what it is a part of has to be seen
_PARTS = (rundir.OUTPUT_DIRECTORY, rundir.RAW_DIRECTORY, "FRAMEWORK")
#: what file systems call the time of a change, and what changes with every content
_TIMES = ("mtime", "LastModified", "last_modified", "updated", "modified", "created")
_MARKS = ("ETag", "etag", "md5Hash", "content_md5", "content_settings", "crc32c", "generation", "checksum", "version_id")
_LONGEST_NAME = 255
#: what no file has, and no stand-in can have
_LARGEST_BYTES = 1 << 50
_MOST_REASON = 300


@dataclass(frozen=True)
class RemoteFile:
    """One file as it was listed.

    Attributes:
        place: what its file system calls it.
        size: its bytes.
        time_ns: when it was changed last, Unix time in ns; 0 where that is not told.
        mark: changes with its content; empty where the file system tells nothing that does.
    """

    place: str
    size: int
    time_ns: int
    mark: str


class RemoteTree:
    """A file or folder behind a URL.

    Args:
        url: as the user gave it.

    Attributes:
        url: the same.
        shown: the URL as it may be printed and kept.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.shown = shown_url(url)
        self._opened: tuple[int, Any, str] | None = None

    def _file_system(self) -> tuple[Any, str]:
        """The file system, and what it calls the place; of a process of its own after a fork.

        Raises:
            InputError: there is no package for it, or it cannot be reached.
        """
        if self._opened is None or self._opened[0] != os.getpid():
            self._opened = (os.getpid(), *self._open_file_system())
        return self._opened[1], self._opened[2]

    def _open_file_system(self) -> tuple[Any, str]:
        try:
            fsspec: Any = importlib.import_module("fsspec")
        except ImportError:
            remedy = "Install it with: pip install 'steplens[remote]'"
            raise InputError(self.shown, "is a URL, and reading those needs fsspec, which is not installed", remedy) from None
        try:
            file_system, place = fsspec.core.url_to_fs(self.url)
        except ImportError as error:
            # fsspec says which package it is: "Install s3fs to access S3"
            raise InputError(self.shown, "needs a package that is not installed", self.reason_of(error)) from None
        except ValueError as error:
            raise InputError(self.shown, f"cannot be opened ({self.reason_of(error)})", "Check the URL") from None
        except Exception as error:  # whatever a foreign file system raises
            raise InputError(
                self.shown, f"cannot be reached ({self.reason_of(error)})", "Check the URL and the network"
            ) from None
        return file_system, place.rstrip("/") if isinstance(place, str) else str(place)

    def reason_of(self, error: BaseException) -> str:
        """What an error says, in one line and without secrets."""
        text = without_secrets(" ".join(str(error).split()) or type(error).__name__, self.url)
        return text if len(text) <= _MOST_REASON else text[: _MOST_REASON - 3] + "..."

    def list_files(self) -> tuple[int, dict[tuple[str, ...], RemoteFile], int]:
        """Everything there; asked of the file system anew, once.

        Returns:
            How many folders above the place the files are seen from, these by their names from there, and how many were left out
            because no file here can have such a name or size.

        Raises:
            InputError: it does not exist, cannot be listed, or holds too much.
        """
        file_system, place = self._file_system()
        try:
            file_system.invalidate_cache()
            levels, top, listed = self._list_from(file_system, place, file_system.info(place))
        except FileNotFoundError:
            raise InputError(self.shown, "does not exist", "Check the URL") from None
        except InputError:
            raise
        except Exception as error:  # whatever a foreign file system raises
            remedy = "Check the URL, and what its file system is told of the account"
            raise InputError(self.shown, f"cannot be listed ({self.reason_of(error)})", remedy) from None
        if len(listed) > _MOST_ENTRIES:
            raise InputError(self.shown, f"holds more than {_MOST_ENTRIES} files and folders", "Give a folder nearer to the runs")
        if is_web(self.url):
            # what stands behind a question mark is no part of its name
            places: dict[tuple[str, ...], str] = {(self.shown.rpartition("/")[2],): place}
        else:
            places = {tuple(name[len(top) + 1 :].split("/")): name for name in listed if name.startswith(f"{top}/")}
        files: dict[tuple[str, ...], RemoteFile] = {}
        left_out = 0
        for names, name in places.items():
            # no caches that somebody made elsewhere, and no objects that stand for folders
            if listed[name].get("type") != "file" or rundir.CACHE_DIRECTORY in names or names[-1] == "":
                continue
            size = listed[name].get("size")
            if type(size) is int and 0 <= size < _LARGEST_BYTES and all(map(is_plain_name, names)):
                files[names] = RemoteFile(name, size, _time_of(listed[name]), _mark_of(listed[name]))
            else:
                left_out += 1
        return levels, files, left_out

    def _list_from(self, file_system: Any, place: str, info: Mapping[str, Any]) -> tuple[int, str, Mapping[str, Any]]:
        """From where it was listed: so many folders above the place, the name of that, and what lies there by its name."""
        around, _, name = place.rpartition("/")
        further, _, folder = around.rpartition("/")
        if info.get("type") == "directory":
            levels, top = (1, around) if name in _PARTS and around.strip("/") else (0, place)
        elif not is_web(self.url) and folder in _PARTS:
            levels, top = 2, further
        else:
            beside: dict[str, Any] = {place: info}
            # what describes a file may lie beside it; who may read the file alone still gets it
            with contextlib.suppress(Exception):
                if not is_web(self.url):
                    beside |= {entry["name"]: entry for entry in file_system.ls(around, detail=True)}
            return 1, around, beside
        listed: Mapping[str, Any] = file_system.find(top, detail=True)
        if not listed:
            raise InputError(self.shown, "is an empty folder, so it holds no run and no trace", "Check the URL")
        return levels, top, listed

    def read_range(self, file: RemoteFile, start: int, end: int) -> bytes:
        """Some bytes of a file.

        Raises:
            OSError: they cannot be had.
        """
        try:
            data: bytes = self._file_system()[0].cat_file(file.place, start=start, end=end)
        except InputError as error:
            raise OSError(errno.EIO, str(error)) from None
        except FileNotFoundError:
            raise OSError(errno.ESTALE, "is not there any more") from None
        except Exception as error:  # whatever a foreign file system raises
            raise OSError(errno.EIO, self.reason_of(error)) from None
        if len(data) > end - start:
            raise OSError(errno.EOPNOTSUPP, "is given whole where a range is asked for: its server knows no ranges")
        if len(data) < end - start:
            raise OSError(errno.EIO, f"gave {len(data)} of {end - start} bytes")
        return data

    def write_whole(self, content: bytes) -> None:
        """Put a file at the place, in place of one that is there.

        Raises:
            InputError: that cannot be done.
        """
        file_system, place = self._file_system()
        try:
            file_system.makedirs(place.rpartition("/")[0], exist_ok=True)
            file_system.pipe_file(place, content)
        except Exception as error:  # whatever a foreign file system raises
            remedy = "Check the URL, and what its file system is told of the account"
            raise InputError(self.shown, f"cannot be written ({self.reason_of(error)})", remedy) from None


def is_plain_name(name: str) -> bool:
    """Whether a name is that of a file or folder in its folder, here as well, and leads nowhere else."""
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name and len(os.fsencode(name)) <= _LONGEST_NAME


def _time_of(info: Mapping[str, Any]) -> int:
    for name in _TIMES:
        value = info.get(name)
        if isinstance(value, str):
            with contextlib.suppress(ValueError):
                value = datetime.datetime.fromisoformat(value.replace("Z", "+00:00"))
        if isinstance(value, datetime.datetime):
            value = value.timestamp()
        if isinstance(value, int | float) and 0 < value < 1 << 33:
            return int(value * 1e9)
    return 0


def _mark_of(info: Mapping[str, Any]) -> str:
    marks = [(name, str(info[name])) for name in (*_MARKS, *_TIMES) if info.get(name) is not None]
    return hashlib.sha256(repr(marks).encode(errors="replace")).hexdigest()[:32] if marks else ""
