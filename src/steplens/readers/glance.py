"""What can be refused without a reader: in a few milliseconds, where loading the readers takes half a second."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from steplens.common import extensions
from steplens.common.errors import InputError, check_readable
from steplens.common.listings import list_folder
from steplens.common.storage.files import list_remote
from steplens.formats.kineto import SUFFIXES
from steplens.readers.common.json_start import empty_file, refuse_without_events
from steplens.readers.contents import Contents, is_database, is_recording, read_head
from steplens.readers.mindspore.folders import is_promising
from steplens.readers.reader import Capture, Reader
from steplens.readers.search import Search
from steplens.readers.unread import Unread, abbreviate_names, group_by_reason

if TYPE_CHECKING:
    from steplens.trace.trace import Trace

REMEDY = (
    "steplens reads Kineto and Chrome traces (.json, .json.gz), its own runs (.rec), and what the Ascend PyTorch "
    "Profiler and MindSpore's write (FRAMEWORK, PROF_*, ASCEND_PROFILER_OUTPUT, .db, profiler/, raw device logs)"
)

#: a folder of more files and folders is left to the readers
_GLANCED = 2000
#: of so many files that are not read a message says why
_NAMED_UNREAD = 200


def refuse_hopeless(path: Path) -> None:
    """Refuse what no reader would take; the readers say what is wrong with everything else.

    Raises:
        InputError: ``path`` does not exist, is no file or folder, or is a folder or file in which nothing can be read.
    """
    list_remote(path)
    check_readable(path)
    if path.is_dir():
        if _is_empty(path) and not _has_foreign_readers():
            raise InputError(path, "is an empty folder, so it holds no run and no trace", REMEDY)
        _refuse_foreign_folder(path)
        return
    if path.stat().st_size == 0 and path.name.endswith(SUFFIXES):
        raise empty_file(path)
    start = read_head(path)
    if is_database(path, start) or is_recording(start) or _has_foreign_readers():
        return
    if not path.name.endswith(SUFFIXES):
        raise unknown_file(path)
    refuse_without_events(path)


def _refuse_foreign_folder(path: Path) -> None:
    """Refuse a folder without anything that a reader would look at more closely."""
    search = Search(path, (_Anything(),), most_entries=_GLANCED)
    try:
        if next(search.captures(), None) is not None or _has_foreign_readers():
            return
    except InputError:  # it is large, or the readers say better what is wrong
        return
    raise nothing_found(path, search.unread)


class _Anything(Reader[Path]):
    """Takes all that a reader of steplens would have to look into."""

    name = "anything"

    def find_in_folder(self, folder: Path, claimed: Collection[str]) -> Sequence[Capture[Path]]:
        """The folder, where it may be MindSpore's."""
        return [Capture(folder, self, folder, "")] if is_promising(folder) else []

    def find_run(self, contents: Contents) -> Capture[Path]:
        """Any run directory."""
        return Capture(contents.path, self, contents.path, "")

    def find_file(self, path: Path, start: bytes) -> Capture[Path]:
        """Any file that looks like a trace."""
        return Capture(path, self, path, "")

    def read(self, where: Path, *, allow_msprof: bool = False) -> Trace:
        """Nobody asks it to."""
        raise NotImplementedError

    def sources(self, where: Path) -> list[Path]:
        """Nobody asks for them."""
        raise NotImplementedError


def nothing_found(path: Path, unread: Sequence[Unread]) -> InputError:
    """A folder in which no reader finds anything.

    Args:
        path: the folder.
        unread: what lies in it.
    """
    groups = [f"{abbreviate_names(names)} ({reason})" for _, reason, names in group_by_reason(unread[:_NAMED_UNREAD])]
    return InputError(path, f"holds no run and no trace{', only ' if groups else ''}{'; '.join(groups)}", REMEDY)


def unknown_file(path: Path) -> InputError:
    """A file that no reader takes."""
    return InputError(path, "is not a trace steplens knows", REMEDY)


def _is_empty(folder: Path) -> bool:
    try:
        return not list_folder(folder).entries
    except OSError:
        return False


def _has_foreign_readers() -> bool:
    """Whether an installed package has readers, which may take anything."""
    return extensions.are_installed(extensions.READERS)
