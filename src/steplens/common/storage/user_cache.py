"""The user's cache folder: what is kept of data that lies elsewhere, or where nothing may be written; bounded in size.

``$XDG_CACHE_HOME/steplens`` (``~/.cache/steplens`` where that is not set), of this user alone. It holds units, each of which is
removed as a whole, the one that was used longest ago first::

    remote/<digest>/    the stand-in of a URL: names, sizes and times, and in .steplens/ the tables made of it
    beside/<digest>/    the tables of captures in a local folder that is closed to writing
    content/<digest>    the beginning of a remote file, or all of one that has to be a local file to be read

Where there is no such folder a temporary one takes its place until the process ends.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import functools
import hashlib
import logging
import math
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from steplens.common import partial
from steplens.common.errors import SteplensError
from steplens.common.storage.private_folder import RefusedError, open_private_folder, user_folder

#: says how many GiB may be kept
VARIABLE = "STEPLENS_CACHE_LIMIT"
LIMIT_GIB = 10.0

REMOTE, BESIDE, CONTENT = "remote", "beside", "content"
#: a file in a unit: its time says when a process began to use the unit last
_USED = "used"
#: a list for each process of the units that it uses
_PROCESSES = "processes"
#: what was used so recently may be about to be opened
_RECENT_S = 60.0
#: of a file or folder without content, which takes a place in the file system all the same
_LEAST_BYTES = 4096

_LOG = logging.getLogger("steplens")


def limit_bytes() -> int:
    """How much may be kept.

    Raises:
        SteplensError: ``VARIABLE`` does not hold a number.
    """
    text = os.environ.get(VARIABLE, "").strip()
    try:
        gib = float(text) if text else LIMIT_GIB
    except ValueError:
        gib = math.nan
    if not 0 <= gib < 1 << 30:
        raise SteplensError(f"{VARIABLE} is {text!r}; give how many GiB may be kept, such as 20")
    return int(gib * (1 << 30))


def cache_root() -> Path:
    """The folder, made where it is missing; without links in its path."""
    return _root_of(os.getpid(), os.environ.get("XDG_CACHE_HOME", ""), os.environ.get("HOME", ""))


@functools.lru_cache(maxsize=4)
def _root_of(process: int, *_: str) -> Path:
    place = user_folder("XDG_CACHE_HOME", ".cache") / "steplens"
    try:
        os.close(open_private_folder(place))
        for name in (REMOTE, BESIDE, CONTENT, _PROCESSES):
            (place / name).mkdir(mode=0o700, exist_ok=True)
        atexit.register(_trim_at_end, process, place)
        return place.resolve()
    except (OSError, RefusedError) as error:
        _LOG.info("steplens: nothing is kept in %s (%s)", place, error)
    temporary = Path(tempfile.mkdtemp(prefix="steplens_cache_")).resolve()
    for name in (REMOTE, BESIDE, CONTENT, _PROCESSES):
        (temporary / name).mkdir(mode=0o700)
    atexit.register(_remove_at_end, process, temporary)
    return temporary


def digest_of(*names: str) -> str:
    """What a unit is called, from what it is of."""
    return hashlib.sha256("\0".join(names).encode(errors="surrogateescape")).hexdigest()[:32]


def use_unit(kind: str, digest: str) -> Path:
    """The folder of a unit, made where it is missing; it stays as long as this process lives.

    Raises:
        OSError: it cannot be made.
    """
    folder = cache_root() / kind / digest
    in_use = _process_list(os.getpid(), folder.parents[1])
    if folder not in in_use.units or not folder.is_dir():
        folder.mkdir(mode=0o700, exist_ok=True)
        os.close(os.open(folder / _USED, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        os.utime(folder / _USED)
        os.write(in_use.descriptor, f"{digest}\n".encode())
        in_use.units.add(folder)
    return folder


@dataclass(frozen=True)
class _ProcessList:
    """What one process uses, in a file that it has locked: the end of the process ends that, however it ends."""

    descriptor: int
    units: set[Path]


@functools.lru_cache(maxsize=4)
def _process_list(process: int, root: Path) -> _ProcessList:
    while True:
        path = root / _PROCESSES / f"{process}-{os.urandom(4).hex()}"
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_APPEND | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        # who looks for lists of dead processes may have come between the two lines
        if path.exists():
            atexit.register(_remove_at_end, process, path)
            return _ProcessList(lock, set())
        os.close(lock)


def _used_by_processes(root: Path) -> set[str]:
    """Digests of the units that processes use which live; lists of others are removed."""
    digests: set[str] = set()
    for path in sorted((root / _PROCESSES).iterdir()):
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            with open(descriptor, encoding="ascii") as handle:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()
                except BlockingIOError:
                    digests.update(handle.read().split())
    return digests


def content_file(digest: str) -> Path | None:
    """The file of a content that is kept; None where there is none."""
    file = cache_root() / CONTENT / digest
    with contextlib.suppress(OSError):
        os.utime(file, follow_symlinks=False)
        return file
    return None


@contextlib.contextmanager
def new_content(digest: str, size: int) -> Iterator[Path]:
    """Yield a file to write a content to, which is kept when it is complete.

    Args:
        digest: what it is called.
        size: bytes that it will have; as many are made room for.

    Raises:
        OSError: it is larger than what may be kept, or cannot be written.
    """
    limit = limit_bytes()
    if size > limit:
        gib = limit / (1 << 30)
        message = f"has to be fetched, and its {size / (1 << 30):.3g} GiB are more than may be kept: {VARIABLE} is {gib:g}"
        raise OSError(errno.EFBIG, message)
    _written_bytes[0] += size
    if size > _LEAST_BYTES << 4:
        trim_cache(size)
    file = cache_root() / CONTENT / digest
    # what a killed process leaves here goes as all contents do; to look for it at every file would take long
    temporary = file.with_name(f"{digest}-{os.getpid()}-{os.urandom(4).hex()}{partial.SUFFIX}")
    try:
        yield temporary
        temporary.chmod(0o600)
        temporary.replace(file)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def note_written() -> None:
    """Say that something was written into a unit, so that the size is looked at when the process ends."""
    _written_bytes[0] += 1


#: of this process since the size was looked at
_written_bytes = [0]


@dataclass(frozen=True)
class _Unit:
    path: Path
    size: int
    used: float
    is_content: bool


def trim_cache(more_bytes: int = 0) -> None:
    """Remove what was used longest ago until so many more bytes have room; what is in use stays.

    Args:
        more_bytes: that will be written.
    """
    _written_bytes[0] = 0
    units = sorted(_list_units(cache_root()), key=lambda unit: unit.used)
    surplus = sum(unit.size for unit in units) + more_bytes - limit_bytes()
    if surplus <= 0:
        return
    in_use = _used_by_processes(cache_root())
    for unit in units:
        if surplus > 0 and unit.path.name not in in_use and time.time() - unit.used > _RECENT_S and _remove_unit(unit):
            surplus -= unit.size


def _list_units(root: Path) -> Iterator[_Unit]:
    for kind in (REMOTE, BESIDE, CONTENT):
        with contextlib.suppress(OSError), os.scandir(root / kind) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    if kind == CONTENT:
                        yield _Unit(Path(entry.path), _bytes_of(status), status.st_mtime, True)
                    elif stat.S_ISDIR(status.st_mode):
                        with contextlib.suppress(FileNotFoundError):
                            status = os.lstat(os.path.join(entry.path, _USED))
                        yield _Unit(Path(entry.path), _tree_bytes(entry.path), status.st_mtime, False)


def _tree_bytes(folder: str) -> int:
    total = _LEAST_BYTES
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                is_folder = entry.is_dir(follow_symlinks=False)
                total += _tree_bytes(entry.path) if is_folder else _bytes_of(entry.stat(follow_symlinks=False))
    return total


def _bytes_of(status: os.stat_result) -> int:
    """What a file takes: a stand-in for a remote one has its size and no content."""
    return max(status.st_blocks * 512, _LEAST_BYTES)


def _remove_unit(unit: _Unit) -> bool:
    """Remove a unit; whether that was possible."""
    try:
        if unit.is_content:
            unit.path.unlink()
        else:
            # whoever looks for it finds all of it or nothing
            away = partial.partial_path(unit.path)
            unit.path.rename(away)
            shutil.rmtree(away, ignore_errors=True)
    except OSError:
        return False
    return True


def _trim_at_end(process: int, place: Path) -> None:
    if os.getpid() == process and _written_bytes[0] and place.is_dir():
        with contextlib.suppress(OSError, SteplensError):
            trim_cache()


def _remove_at_end(process: int, path: Path) -> None:
    if os.getpid() == process:
        with contextlib.suppress(OSError):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
