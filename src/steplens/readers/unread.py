"""What lies in a folder of captures and is not read, each with the reason."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from steplens.common import expansion
from steplens.formats.ascend_database import SQLITE_START

LINK = "a link, and links are not followed"
CLOSED = "a folder that may not be listed"
TOO_DEEP = "a folder deeper than the search goes"

_PARQUET = b"PAR1"
_NSYS_TABLES = (b"CUPTI_ACTIVITY_KIND_", b"TARGET_INFO_")
_NSYS_SUFFIXES = (".nsys-rep", ".qdrep", ".qdstrm")
_HEAD_BYTES = 1 << 16
#: so many names of one reason are listed
_NAMED = 5


@dataclass(frozen=True)
class Unread:
    """One file or folder that is no part of anything that is read.

    Attributes:
        path: where it lies.
        cause: why it is not read, where that is known without a look into it.
    """

    path: Path
    cause: str = ""

    @property
    def reason(self) -> str:
        """Why it is not read, in words that follow "it is"."""
        return self.cause or _reason_of(self.path)


def group_by_reason(unread: Iterable[Unread]) -> list[tuple[Path, str, list[str]]]:
    """Folder, reason and names of what is not read, in order of path."""
    groups: dict[tuple[Path, str], list[str]] = {}
    for item in sorted(unread, key=lambda item: item.path):
        groups.setdefault((item.path.parent, item.reason), []).append(item.path.name)
    return [(folder, reason, names) for (folder, reason), names in groups.items()]


def abbreviate_names(names: list[str]) -> str:
    """The first of some names, and how many follow."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _reason_of(path: Path) -> str:
    if path.name.lower().endswith(_NSYS_SUFFIXES):
        return "a report of Nsight Systems, for which there is no reader"
    start = _first_bytes(path)
    if start is None:
        return "a file that cannot be read"
    if not start:
        return "an empty file"
    if start.startswith(SQLITE_START):
        if any(table in start for table in _NSYS_TABLES):
            return "an export of Nsight Systems, for which there is no reader"
        return "a database of another program"
    if start.startswith(_PARQUET):
        return "a Parquet table, for which there is no reader"
    if path.name.endswith((".json", ".json.gz")):
        return "a JSON file without events of a profiler"
    return "none of the files that steplens reads"


def _first_bytes(path: Path) -> bytes | None:
    try:
        return expansion.read_head(path, _HEAD_BYTES)
    except ValueError:
        return b"\0"
    except OSError:
        return None
