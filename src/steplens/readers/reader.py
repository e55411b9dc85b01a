"""What every reader of a format is: how it finds its captures, how it reads one, and what a kept trace of that depends on.

Each module that reads a format exports one ``READER``; ``steplens.readers.detect`` lists them in order of precedence. Installed
packages add theirs behind the entry point group ``steplens.readers``.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from steplens.common.errors import DefectError, SteplensError
from steplens.common.extensions import package_of
from steplens.readers.contents import Contents

if TYPE_CHECKING:
    from steplens.trace.trace import Trace

_LOG = logging.getLogger("steplens.readers")

#: what a reader has to know of a capture to read it: a path, or more than that
Where = TypeVar("Where")


@dataclass(frozen=True)
class Capture(Generic[Where]):
    """One trace that a path holds, before it is read.

    Attributes:
        path: the run directory, the result folder that lies alone, or the file.
        reader: what reads it.
        where: what its reader reads.
        reason: why it is read this way, in one sentence for the user.
        ignored: what else it holds and is not read.
        part: which rank or device of a folder that several share; empty where there is only one trace.
        claimed: of a capture that a reader found in a folder, the names in there that are parts of it.
    """

    path: Path
    reader: Reader[Where]
    where: Where
    reason: str
    ignored: tuple[str, ...] = ()
    part: str = ""
    claimed: frozenset[str] = frozenset()

    @property
    def format(self) -> str:
        """What it is called in front of users."""
        return self.reader.format_of(self.where)


class Reader(ABC, Generic[Where]):
    """Reads one format.

    A reader finds its captures in one or more of three places, and answers for the others that there is nothing: in a folder as a
    whole, which may hold several captures; in what ``Contents`` knows as a run directory or result folder; in a file.

    Attributes:
        name: what the format is called in front of users.
        in_place: whether results are made of its captures, so that they belong into their run directories.
    """

    name: str
    in_place: bool = False

    def find_in_folder(self, folder: Path, claimed: Collection[str]) -> Sequence[Capture[Where]]:
        """The captures in a folder itself, not in those below it.

        Args:
            folder: the folder.
            claimed: names in it that are parts of other readers' captures.
        """
        return ()

    def find_run(self, contents: Contents) -> Capture[Where] | None:
        """The capture that a run directory or a result folder is; None where this reader does not read it."""
        return None

    def find_file(self, path: Path, start: bytes) -> Capture[Where] | None:
        """The capture that a file is; None where this reader does not read it.

        Args:
            path: the file.
            start: its first 64 KiB, decompressed; empty where it cannot be read.
        """
        return None

    @abstractmethod
    def read(self, where: Where, *, allow_msprof: bool = False) -> Trace:
        """The trace of a capture.

        Args:
            where: what ``find_...`` put into the capture.
            allow_msprof: whether CANN's ``msprof`` may be run on device data that was not exported; it writes beside that data.

        Raises:
            InputError: nothing in it can be read; the message says why.
        """

    @abstractmethod
    def sources(self, where: Where) -> list[Path]:
        """The files whose change makes a kept trace stale."""

    def format_of(self, where: Where) -> str:
        """What a capture is called in front of users, where a reader reads several kinds."""
        return self.name

    def dependencies(self, where: Where) -> Sequence[int | str]:
        """What else a kept trace depends on, as on a rank in the name of the folder around the sources."""
        return ()

    def exports(self, where: Where) -> bool:
        """Whether reading with ``allow_msprof`` would export device data first: a kept trace would hide that."""
        return False

    def timeline(self, where: Where) -> tuple[Path, Callable[[Path], Trace]] | None:
        """The JSON file with nearly all of the events, and what reads such a file alone; None where there is none."""
        return None


#: of any format: ``where`` is for the reader that found it alone
AnyCapture = Capture[Any]
AnyReader = Reader[Any]


@contextlib.contextmanager
def guard_reader(path: Path, reader: AnyReader) -> Iterator[None]:
    """The boundary around a reader: what it did not foresee costs one path, and the message says whose defect it is.

    Raises:
        DefectError: in place of any other exception than an InputError, an OSError and a lack of memory.
    """
    try:
        yield
    except (SteplensError, OSError, MemoryError):
        raise
    except _unforeseen_errors() as error:  # the boundary between files, and to installed packages
        # where nobody set up logging nothing below a warning is shown: a command prints one sentence, no traceback
        _LOG.info("%s could not be read", path, exc_info=True)
        raise DefectError(path, error, package_of(reader)) from error


def _unforeseen_errors() -> tuple[type[BaseException], ...]:
    """Any error, and what polars raises where it fails inside; asked for only when something was raised: then it is loaded."""
    polars = sys.modules.get("polars")
    return (Exception,) if polars is None else (Exception, polars.exceptions.PanicException)
