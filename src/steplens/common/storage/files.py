"""The way to every file that is read: of this machine as it is, of other places in ranges. No reader knows which.

A place behind a URL has a stand-in on this machine, in the user's cache folder: folders and files with the names, sizes and times
that were listed there, once, and without content. What looks at names, kinds and sizes looks at those as at all files; whoever
wants content opens the file here, which for a local file is ``Path.open`` and for a stand-in fetches what is read. A library that
needs a file of its own is given one by ``local_file``.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import IO, BinaryIO, cast

from steplens.common import partial, rundir, stand_ins
from steplens.common.errors import InputError
from steplens.common.storage import user_cache
from steplens.common.storage.ranges import HEAD_BYTES, RangeFile
from steplens.common.storage.remote_tree import RemoteFile, RemoteTree
from steplens.common.storage.stand_in import StandIn
from steplens.common.storage.urls import as_url, is_url, local_path_of, shown_url

_PIECE_BYTES = 8 << 20

#: those of this process, by the beginning of the paths in them
_STAND_INS: dict[str, StandIn] = {}


def locate_path(path: str | os.PathLike[str], *, listed_before: bool = False) -> Path:
    """The path of what a user named: a local path as it is, for a URL that of its stand-in. Nothing is asked of its place yet.

    Args:
        path: a path, or the URL of anything that fsspec knows.
        listed_before: another process of this command has just listed the place, so that this one need not.

    Raises:
        InputError: the URL is none of a file or folder.
    """
    text = os.fspath(path)
    url = text if is_url(text) else as_url(text)
    if not is_url(url) or (url != text and os.path.lexists(text)):
        if _is_strange(text):
            raise InputError(text, "holds names and no content: it stands for what lies behind a URL", "Give the URL")
        return Path(text)
    if (local := local_path_of(url)) is not None:
        return Path(local)
    stand_in = StandIn(url, trusts_listing=listed_before)
    _STAND_INS[stand_in.prefix] = stand_in
    return stand_in.path


def list_remote(path: Path) -> None:
    """Have the place listed that a path stands for, if it stands for one and that was not done since it was located.

    Raises:
        InputError: there is no package for it, it does not exist, or it cannot be listed.
    """
    if (stand_in := _stand_in_of(path)) is not None:
        stand_in.list_once()


def private_address(path: Path) -> str:
    """What another process of this machine and command ``locate``s: it may hold secrets, so it goes through pipes alone."""
    stand_in = _stand_in_of(path)
    return os.fsdecode(path) if stand_in is None else _url_of(path, stand_in)


def public_address(path: Path) -> str:
    """What processes of an executor ``locate``: without secrets, which they get from their environment."""
    return os.fsdecode(path.absolute()) if _stand_in_of(path) is None else stand_ins.told_path(path)


def is_remote(path: Path) -> bool:
    """Whether a path stands for a place elsewhere."""
    return _stand_in_of(path) is not None


def open_file(path: Path) -> BinaryIO:
    """A file, to be read from its beginning.

    Raises:
        OSError: it cannot be read.
    """
    remote = _remote_file(path)
    if remote is None:
        return cast(BinaryIO, path.open("rb"))
    return cast(BinaryIO, io.BufferedReader(_range_file(*remote)))


def read_bytes(path: Path) -> bytes:
    """All bytes of a file.

    Raises:
        OSError: it cannot be read.
    """
    if _remote_file(path) is None:
        return path.read_bytes()
    with open_file(path) as handle:
        return b"".join(iter(lambda: handle.read(_PIECE_BYTES), b""))


def read_into(handle: IO[bytes], room: memoryview) -> int:
    """Fill some room from a file as far as that goes; how many bytes there were."""
    done = 0
    while part := handle.read(min(len(room) - done, _PIECE_BYTES)):
        room[done : done + len(part)] = part
        done += len(part)
    return done


def size_of(handle: IO[bytes]) -> int:
    """Bytes of the file that was opened, which stays where it is."""
    with contextlib.suppress(OSError):
        return os.fstat(handle.fileno()).st_size
    place = handle.tell()
    size = handle.seek(0, os.SEEK_END)
    handle.seek(place)
    return size


def local_file(path: Path) -> Path:
    """A file of this machine with the content of a file, for libraries that open files themselves; one of elsewhere is fetched.

    Raises:
        OSError: it cannot be fetched, or is larger than what may be kept.
    """
    remote = _remote_file(path)
    if remote is None:
        return path
    stand_in, file = remote
    digest = _content_digest(stand_in, file, "all")
    content = user_cache.content_file(digest)
    if content is None or content.stat().st_size != file.size:
        with user_cache.new_content(digest, file.size) as target, target.open("wb") as handle:
            for start in range(0, file.size, _PIECE_BYTES):
                handle.write(stand_in.tree.read_range(file, start, min(start + _PIECE_BYTES, file.size)))
        content = user_cache.content_file(digest)
    if content is None:
        raise FileNotFoundError(errno.ENOENT, "was fetched, and is not there any more", str(path))
    return content


def content_mark(path: Path) -> str | None:
    """What changes with the content of a file that lies elsewhere; None where nothing tells that, and for a local file."""
    remote = _remote_file(path)
    return None if remote is None else remote[1].mark or None


def cache_place(folder: Path, name: str) -> Path:
    """Where something that is worked out of a folder is kept, there or not: in the cache folder of it, or, where nothing can be
    written there, of the user.

    Args:
        folder: of what was read; one of elsewhere has its stand-in in the user's cache folder anyway.
        name: of the folder for what is kept.
    """
    own_cache = folder / rundir.CACHE_DIRECTORY
    if _is_ours(own_cache / name) or _can_write(own_cache if own_cache.is_dir() else folder):
        return own_cache / name
    with contextlib.suppress(OSError):
        unit = user_cache.use_unit(user_cache.BESIDE, user_cache.digest_of(os.path.realpath(folder)))
        return unit / rundir.CACHE_DIRECTORY / name
    return own_cache / name


def shown_cache(folder: Path) -> Path:
    """What a user is told of a folder with what is kept: below the user's cache folder its own name says nothing."""
    root = user_cache.cache_root()
    return root if root in folder.parents else folder


def write_file(path: Path, content: bytes) -> None:
    """Write a file, here or, where the path stands for a URL, there; the folders around it are made.

    Args:
        path: as ``locate_path`` gives it.
        content: of the file; it is in place as a whole, or what was there is.

    Raises:
        InputError: it cannot be written.
    """
    if (stand_in := _stand_in_of(path)) is not None:
        RemoteTree(_url_of(path, stand_in)).write_whole(content)
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        rundir.write_bytes(path, content)
    except OSError as error:
        raise InputError(path, f"cannot be written ({error.strerror or error})", "Check the folder and its permissions") from None


def fetch_whole(paths: Iterable[Path]) -> None:
    """Put their content into stand-ins, for code of others, which opens files itself.

    Raises:
        OSError: one cannot be fetched.
    """
    for path in paths:
        if (remote := _remote_file(path)) is not None:
            content, file = local_file(path), remote[1]
            temporary = partial.partial_path(path)
            shutil.copyfile(content, temporary)
            os.utime(temporary, ns=(file.time_ns, file.time_ns))
            temporary.replace(path)


def _is_ours(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        return folder.lstat().st_uid == os.geteuid()
    return False


def _can_write(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        is_closed = not folder.stat().st_mode & rundir.ANYBODY_WRITES
        return not is_closed and os.access(folder, os.W_OK | os.X_OK)
    return False


def _is_strange(path: str) -> bool:
    """Whether a path leads into a stand-in that another process made."""
    if f"{os.sep}{user_cache.REMOTE}{os.sep}" not in path or _stand_in_of(Path(path)) is not None:
        return False
    return user_cache.cache_root() / user_cache.REMOTE in Path(os.path.realpath(path)).parents


def _stand_in_of(path: Path) -> StandIn | None:
    if not _STAND_INS:
        return None
    text = os.fspath(path)
    return next((stand_in for prefix, stand_in in _STAND_INS.items() if text.startswith(prefix)), None)


def _remote_file(path: Path) -> tuple[StandIn, RemoteFile] | None:
    """What a path stands for; None for a local file, and for what steplens keeps in a stand-in.

    Raises:
        InputError: the place cannot be listed.
    """
    stand_in = _stand_in_of(path)
    file = None if stand_in is None else stand_in.list_once().get(os.fspath(path))
    return None if stand_in is None or file is None else (stand_in, file)


def _range_file(stand_in: StandIn, file: RemoteFile) -> RangeFile:
    def fetch_range(start: int, end: int) -> bytes:
        return stand_in.tree.read_range(file, start, end)

    return RangeFile(file.size, fetch_range, _read_head(stand_in, file))


def _read_head(stand_in: StandIn, file: RemoteFile) -> bytes:
    """The first bytes of a file: they are looked at by every command, to tell what the file is, and so they are kept."""
    size = min(file.size, HEAD_BYTES)
    digest = _content_digest(stand_in, file, "head")
    content = user_cache.content_file(digest)
    if content is not None:
        with contextlib.suppress(OSError):
            head = content.read_bytes()
            if len(head) == size:
                return head
    head = stand_in.tree.read_range(file, 0, size) if size else b""
    with contextlib.suppress(OSError), user_cache.new_content(digest, size) as target:
        target.write_bytes(head)
    return head


def _content_digest(stand_in: StandIn, file: RemoteFile, part: str) -> str:
    # a file of which nothing tells a change is one of this process alone
    mark = file.mark or f"process {os.getpid()} {id(stand_in)}"
    return user_cache.digest_of(part, shown_url(stand_in.url), file.place, str(file.size), str(file.time_ns), mark)


def _url_of(path: Path, stand_in: StandIn) -> str:
    from_there = os.path.relpath(path, stand_in.path)
    return stand_in.url if from_there == os.curdir else f"{stand_in.url.rstrip('/')}/{from_there}"
