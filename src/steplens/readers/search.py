"""The captures at and below a path: nested, mixed, many.

Finding looks at names and first bytes only; nothing is read. Every capture claims the entries of its folder that are parts of
it; the search goes on through all others, so that no capture hides what lies beside it. What nobody claims is named
(``steplens.readers.unread``). Links are not followed, hidden folders are left out, and the search is bounded, so that a path
such as ``/`` ends in a sentence and not in an hour.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from steplens.common.errors import DefectError, InputError, SteplensError, check_readable
from steplens.common.listings import list_folder
from steplens.common.storage.files import list_remote
from steplens.readers.contents import is_part, is_trace_file, read_head, runs_in
from steplens.readers.reader import AnyCapture, AnyReader, guard_reader
from steplens.readers.unread import CLOSED, LINK, TOO_DEEP, Unread

_DEPTH = 8
_ENTRIES = 200_000


@dataclass
class Search:
    """One way through the folders below a path.

    Attributes:
        top: the path.
        built_in: the readers of steplens, in order of precedence.
        installed: those of installed packages, which are asked behind them.
        unread: what was found there and is no part of any capture.
        most_entries: so many files and folders are walked through.
    """

    top: Path
    built_in: Sequence[AnyReader]
    installed: Sequence[AnyReader] = ()
    unread: list[Unread] = field(default_factory=list)
    most_entries: int = field(default_factory=lambda: _ENTRIES)
    _entries: int = 0

    def captures(self) -> Iterator[AnyCapture]:
        """Every run directory, lone result folder and trace file, in order of path.

        A part of a run directory (its result folder, its raw data of the host) stands for the whole; a ``PROF_*`` directory is
        opened alone. A file that no reader takes gives nothing.

        Raises:
            InputError: the path does not exist, cannot be reached, is a pipe or a device, or holds more than a search should walk
                through.
        """
        list_remote(self.top)
        check_readable(self.top)
        if self.top.is_file():
            capture = _first_of_file((*self.built_in, *self.installed), self.top)
            yield from () if capture is None else (capture,)
            return
        if is_part(self.top):
            top_parent = self.top.resolve().parent
            captures = [capture for reader in self.built_in for capture in reader.find_in_folder(top_parent, ())]
            captures = captures or list(self._run_captures(top_parent, set()))
            if captures:
                yield from captures
                return
        yield from self._captures_below(self.top, 0)

    def _captures_below(self, folder: Path, depth: int) -> Iterator[AnyCapture]:
        """The captures in a folder, then those of its entries that are no parts of them."""
        try:
            entries = list_folder(folder).entries
        except OSError as error:
            if depth == 0:
                raise InputError(folder, f"cannot be listed ({error.strerror})", "Check its permissions") from error
            self.unread.append(Unread(folder, CLOSED))
            return
        self._entries += len(entries)
        if self._entries > self.most_entries:
            raise InputError(
                self.top, f"holds more than {self.most_entries} files and folders", "Give a folder nearer to the runs"
            )
        claimed: set[str] = set()
        yield from self._in_folder(self.built_in, folder, claimed)
        yield from self._run_captures(folder, claimed)
        yield from self._in_folder(self.installed, folder, claimed)
        for entry in entries:
            if entry.name in claimed or entry.name.startswith("."):
                continue
            yield from self._entry_captures(entry, depth)

    def _in_folder(self, readers: Iterable[AnyReader], folder: Path, claimed: set[str]) -> Iterator[AnyCapture]:
        """What readers find in a folder as a whole; ``claimed`` grows by its parts."""
        for reader in readers:
            try:
                with guard_reader(folder, reader):
                    captures = reader.find_in_folder(folder, frozenset(claimed))
            except (SteplensError, OSError) as error:
                self.unread.append(Unread(folder, f"a folder that {_describe_problem(error)}"))
                continue
            for capture in captures:
                claimed |= capture.claimed
                yield capture

    def _run_captures(self, folder: Path, claimed: set[str]) -> Iterator[AnyCapture]:
        """The run directory that a folder is, or those that it collects; ``claimed`` grows by their parts."""
        for contents in runs_in(folder, claimed):
            claimed |= contents.claimed if contents.path == folder else {contents.path.name}
            captures = (reader.find_run(contents) for reader in self.built_in)
            yield next(capture for capture in captures if capture is not None)

    def _entry_captures(self, entry: os.DirEntry[str], depth: int) -> Iterator[AnyCapture]:
        child = Path(entry.path)
        if entry.is_symlink():
            self.unread.append(Unread(child, LINK))
        elif entry.is_dir():
            if depth + 1 < _DEPTH:
                yield from self._captures_below(child, depth + 1)
            else:
                self.unread.append(Unread(child, TOO_DEEP))
        else:
            yield from self._file(child)

    def _file(self, path: Path) -> Iterator[AnyCapture]:
        """The capture that a file is, which nobody named: readers of steplens take only those that look like one of theirs."""
        readers = (*self.built_in, *self.installed) if is_trace_file(path) else self.installed
        try:
            capture = _first_of_file(readers, path)
        except (SteplensError, OSError) as error:
            self.unread.append(Unread(path, f"a file that {_describe_problem(error)}"))
            return
        if capture is None:
            self.unread.append(Unread(path))
        else:
            yield capture


def _first_of_file(readers: Sequence[AnyReader], path: Path) -> AnyCapture | None:
    """The capture that a file is for the first reader that takes it; None where none does.

    Raises:
        DefectError: none does, and one of them failed.
    """
    start = read_head(path) if readers else b""
    defect: DefectError | None = None
    for reader in readers:
        try:
            with guard_reader(path, reader):
                capture = reader.find_file(path, start)
        except DefectError as error:
            defect = defect or error
            continue
        if capture is not None:
            return capture
    if defect is not None:
        raise defect
    return None


def _describe_problem(error: SteplensError | OSError) -> str:
    """What is wrong, in words that follow "a file that"."""
    if isinstance(error, InputError):
        return error.problem
    return f"cannot be looked at ({getattr(error, 'strerror', None) or error})"
