"""What steplens wrote itself, and what it was made of: the rule by which anything kept beside a capture is believed.

A capture may come from anybody, with everything that lies beside it. Of what looks as if steplens had kept it only that is
believed which bears a seal made with this user's secret (``secret``), lies in a folder and in files of this user that are no
links, and was made of sources that are still the same. All else is made anew.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import hmac
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from steplens.common.storage.files import content_mark, is_remote
from steplens.common.storage.files import open_file as open_source
from steplens.trace.cache.secret import user_secret

#: bytes of a seal, and of a digest
SIZE = hashlib.sha256().digest_size
_PIECE = 1 << 20

#: what of a source is read: all of it up to this size, of a larger one its ends and samples that make up as much
WHOLE_BYTES = 192 << 10
_END_BYTES = 32 << 10
_SAMPLES = 32
_SAMPLE_BYTES = (WHOLE_BYTES - 2 * _END_BYTES) // _SAMPLES

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# a pipe in a file's place must not make anybody wait
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def is_possible() -> bool:
    """Whether anything can be sealed: without a secret nothing is believed, so that nothing is worth keeping."""
    return user_secret() is not None


def compute_seal(kind: str, content: bytes) -> bytes | None:
    """The seal of some content: 32 bytes that nobody makes who does not have this user's secret; None where there is none.

    Args:
        kind: what the content is, so that one thing that is kept does not pass for another.
        content: what is sealed; it has to hold the digests of whatever else shall be believed with it.
    """
    key = user_secret()
    return None if key is None else hmac.digest(key, kind.encode() + b"\0" + content, "sha256")


def is_sealed(kind: str, content: bytes, mark: bytes) -> bool:
    """Whether ``mark`` is our seal of this content."""
    expected = compute_seal(kind, content)
    return expected is not None and hmac.compare_digest(expected, mark)


# --- what something was made of


def source_identity(source: Path) -> list[str | int]:
    """What a source is known by: its name, size, time and content.

    Of a file of up to 192 KiB all content counts. Of a larger one the ends and 32 samples are read, from places that only this
    user's secret tells: a change between them is noticed where the file was changed in place (``marks``), and else is not.

    Raises:
        OSError: it cannot be read.
    """
    status = source.stat()
    values: list[str | int] = [source.name, status.st_size, status.st_mtime_ns]
    if not stat.S_ISREG(status.st_mode):
        return values
    # of a file of elsewhere its file system tells what changes with the content
    return [*values, content_mark(source) or _content_digest(source, status.st_size)]


def relative_place(source: Path, folder: Path) -> str:
    """Where a source lies, seen from the folder of what is kept, which may be moved or opened by another path."""
    if source.is_relative_to(folder):
        return str(source.relative_to(folder))
    return os.path.relpath(os.path.join(os.path.realpath(source.parent), source.name), os.path.realpath(folder))


def file_change_marks(sources: Iterable[Path]) -> list[list[int]]:
    """Of every source that is too large to be read whole: its number in the file system, and when that last noted a change.

    No program can set that time. A copy and a file that came in place of another one have numbers of their own.

    Raises:
        OSError: one cannot be looked at.
    """
    statuses = [source.stat() for source in sources]
    return sorted([status.st_ino, status.st_ctime_ns] for status in statuses if status.st_size > WHOLE_BYTES)


def is_changed_in_place(sources: Iterable[Path], before: list[list[int]]) -> bool:
    """Whether one of the sources is a file that ``marks`` knew and was changed since, whatever its time says.

    Raises:
        OSError: as ``marks``.
    """
    numbers = {number for number, _ in before}
    return any(mark[0] in numbers and mark not in before for mark in file_change_marks(sources))


def _content_digest(source: Path, size: int) -> str:
    digest = hashlib.sha256()
    if is_remote(source):
        with open_source(source) as file:
            for place, length in _looked_at(size):
                file.seek(place)
                digest.update(file.read(length))
        return digest.hexdigest()
    descriptor = os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        for place, length in _looked_at(size):
            digest.update(os.pread(descriptor, length, place))
    finally:
        os.close(descriptor)
    return digest.hexdigest()


def _looked_at(size: int) -> list[tuple[int, int]]:
    """Places and lengths of what is read of a source."""
    if size <= WHOLE_BYTES:
        return [(0, WHOLE_BYTES)]
    samples = [(place, _SAMPLE_BYTES) for place in _sample_places(size)]
    return [(0, _END_BYTES), *samples, (size - _END_BYTES, _END_BYTES)]


def _sample_places(size: int) -> list[int]:
    """One place in each of as many equal stretches between the ends; whoever changes a file cannot know which."""
    stretch = (size - 2 * _END_BYTES) // _SAMPLES
    stream = hashlib.shake_256(compute_seal("samples", str(size).encode()) or b"").digest(8 * _SAMPLES)
    free = stretch - _SAMPLE_BYTES + 1
    drawn = [int.from_bytes(stream[8 * number : 8 * number + 8], "little") % free for number in range(_SAMPLES)]
    return [_END_BYTES + number * stretch + offset for number, offset in enumerate(drawn)]


# --- folders and files of ours


@contextlib.contextmanager
def open_folder(path: Path | str, *, inside: int | None = None, ours: bool = True) -> Iterator[int]:
    """A descriptor of a folder that is no link.

    Args:
        path: the folder.
        inside: descriptor of the folder that it lies in, where ``path`` is its name there.
        ours: whether it has to belong to this user.

    Raises:
        OSError: there is none, it is a link, or it belongs to somebody else.
    """
    descriptor = os.open(path, _FOLDER, dir_fd=inside)
    try:
        if ours and os.fstat(descriptor).st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "belongs to somebody else", str(path))
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def cache_folder(cache: Path) -> Iterator[int]:
    """A descriptor of the cache of one trace, which is ours; the folder around it may be of whoever opened the capture first.

    Raises:
        OSError: one of the two is missing or a link, or the cache belongs to somebody else.
    """
    with open_folder(cache.parent, ours=False) as around, open_folder(cache.name, inside=around) as inside:
        yield inside


def own_place(cache: Path) -> Path:
    """Where this user keeps what belongs into ``cache``: beside it, where another user of the machine has that one."""
    with contextlib.suppress(OSError):
        if cache.lstat().st_uid != os.geteuid():
            return cache.with_name(f"{cache.name}@{os.geteuid()}")
    return cache


def path_of(descriptor: int) -> Path:
    """A path that leads into the very folder a descriptor is of, whatever its name leads to meanwhile."""
    return Path(f"/proc/self/fd/{descriptor}")


def open_file(name: str, inside: int) -> int:
    """A descriptor, for reading, of a file of ours that is no link.

    Args:
        name: of the file.
        inside: descriptor of the folder that it lies in.

    Raises:
        OSError: there is none, it is a link or no file, or it belongs to somebody else.
    """
    descriptor = os.open(name, _FILE, dir_fd=inside)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        os.close(descriptor)
        raise PermissionError(errno.EPERM, "is no file, or somebody else's", name)
    return descriptor


def read_file(name: str, inside: int, limit: int) -> bytes:
    """The bytes of a file of ours.

    Raises:
        OSError: as ``open_file``; or it has more than ``limit`` bytes.
    """
    with open(open_file(name, inside), "rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise OSError(errno.EFBIG, "is too large", name)
    return content


def file_digest(name: str, inside: int) -> list[str | int]:
    """Size and SHA-256 of a file of ours: its content is that which was sealed, or it is not shown.

    Raises:
        OSError: as ``open_file``.
    """
    hashed, size = hashlib.sha256(), 0
    piece = bytearray(_PIECE)
    view = memoryview(piece)
    with open(open_file(name, inside), "rb", buffering=0) as file:
        while count := file.readinto(view):
            hashed.update(view[:count])
            size += count
    return [size, hashed.hexdigest()]


def digest_of(pieces: Iterable[memoryview]) -> str:
    """SHA-256 of some bytes in memory, one after the other."""
    hashed = hashlib.sha256()
    for piece in pieces:
        hashed.update(piece)
    return hashed.hexdigest()
