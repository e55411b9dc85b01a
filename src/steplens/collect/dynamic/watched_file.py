"""Notices that a file was saved, also twice within a second and also with the same content."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steplens.common import json_text

LARGEST_BYTES = 1 << 20

#: an editor may empty a file before it writes it; a save counts when nothing has changed for so long
_SETTLE_S = 0.03
#: times of files are coarse (a tick, on shared storage a second): so long after a change the content is compared too
_DOUBT_S = 2.0

_Signature = tuple[int, int, int, int]


@dataclass(frozen=True)
class Change:
    """One save.

    Attributes:
        id: the same in every process that sees this save; another one for the next save of the same content.
        document: the content; None when it cannot be used.
        problem: why not, as the end of a sentence that begins with the file's name.
    """

    id: str
    document: dict[str, Any] | None
    problem: str = ""


class WatchedFile:
    """One file that is looked at again and again.

    Args:
        path: the file.
        settle: wait until its writer is done; False for files that are replaced in one piece.
    """

    def __init__(self, path: Path, *, settle: bool = True) -> None:
        self.path = path
        self._settle_s = _SETTLE_S if settle else 0.0
        self._signature: _Signature | None = None
        self._since = 0.0
        self._doubt_until = 0.0
        self._was_read = False
        self._last: tuple[int, str] | None = None
        self._missing = False

    @property
    def unsettled(self) -> bool:
        """Whether a change was seen that is not yet reported: look again soon."""
        return self._signature is not None and not self._was_read

    def poll(self, *, settle: bool = True) -> Change | None:
        """The save that has happened since the last call, if any; without ``settle`` what is there is taken at once."""
        now = time.monotonic()
        try:
            signature = _file_signature(os.stat(self.path))
        except OSError as error:
            return self._report_missing(error)
        self._missing = False
        if signature != self._signature:
            self._signature, self._since, self._was_read = signature, now, False
            self._doubt_until = now + _DOUBT_S
        elif self._was_read and now > self._doubt_until:
            return None
        if not self._was_read and settle and now - self._since < self._settle_s:
            return None
        return self._read_change(signature)

    def _report_missing(self, error: OSError) -> Change | None:
        self._signature = None
        if self._missing:
            return None
        self._missing = True
        return Change("", None, f"cannot be read: {error.strerror or error}")

    def _read_change(self, signature: _Signature) -> Change | None:
        try:
            with open(self.path, "rb", opener=_open_regular_file) as handle:
                before = _file_signature(os.fstat(handle.fileno()))
                text = handle.read(LARGEST_BYTES + 1)
                after = _file_signature(os.fstat(handle.fileno()))
        except OSError as error:
            return self._report_missing(error)
        if not before == after == signature:
            return None
        self._was_read = True
        save = (signature[0], hashlib.sha256(text).hexdigest())
        if save == self._last:
            return None
        self._last = save
        name = f"{save[0]:x}-{save[1][:12]}"
        if len(text) > LARGEST_BYTES:
            return Change(name, None, f"is larger than {LARGEST_BYTES >> 20} MiB and is ignored")
        try:
            document = json_text.loads(text)
        except ValueError as error:
            return Change(name, None, f"is not valid JSON and is ignored: {error}")
        if not isinstance(document, dict):
            return Change(name, None, "does not hold a JSON object and is ignored")
        return Change(name, document)


def _open_regular_file(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is not a file")
    return descriptor


def _file_signature(status: os.stat_result) -> _Signature:
    return status.st_mtime_ns, status.st_size, status.st_ino, status.st_ctime_ns
