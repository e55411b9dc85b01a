"""Which reports of a comparison are asked for, and where they go."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from steplens.common import rundir
from steplens.common.errors import InputError, SteplensError

if TYPE_CHECKING:
    from steplens.comparison.reports.reported import Reported

#: in place of a file
STDOUT = Path("-")


@dataclass(frozen=True)
class ReportFiles:
    """Where reports go: files, or ``STDOUT``; None where nobody asks for one."""

    junit: Path | None = None
    markdown: Path | None = None

    @property
    def are_printed(self) -> bool:
        """Whether one of them takes the place of what the command prints."""
        return STDOUT in (self.junit, self.markdown)

    def check_targets(self, *, json: bool) -> None:
        """Whether the files may be written, before anything is read for them.

        Args:
            json: whether a JSON document goes to stdout.

        Raises:
            SteplensError: two things would go to stdout, or into one file.
            InputError: there is no such folder.
        """
        paths = [path for path in (self.junit, self.markdown) if path is not None]
        if [*paths, *([STDOUT] if json else [])].count(STDOUT) > 1:
            raise SteplensError("only one of --json, --junit and --markdown can go to stdout; name a file for the others")
        if self.junit is not None and self.junit == self.markdown:
            raise SteplensError("--junit and --markdown name the same file; give each its own")
        for path in paths:
            if path == STDOUT:
                continue
            if path.is_dir():
                raise InputError(path, "is a folder", "Give the file to write")
            if not path.absolute().parent.is_dir():
                raise InputError(path, "lies in a folder that does not exist", "Make it first")

    def write_reports(self, comparisons: Sequence[Reported], top: int) -> None:
        """Write what is asked for.

        Args:
            comparisons: what was compared.
            top: how many operators and device tasks to show.

        Raises:
            InputError: a file cannot be written.
        """
        from steplens.comparison.reports.junit import junit_report
        from steplens.comparison.reports.markdown import markdown_report

        self._write_texts(lambda: junit_report(comparisons), lambda: markdown_report(comparisons, top))

    def write_problem(self, sides: Sequence[str], problem: str) -> None:
        """Write what is asked for where nothing could be compared, so that whoever shows it shows why.

        Args:
            sides: the paths that were to be compared.
            problem: a sentence.

        Raises:
            InputError: a file cannot be written.
        """
        from steplens.comparison.reports.junit import junit_problem
        from steplens.comparison.reports.markdown import markdown_problem

        self._write_texts(lambda: junit_problem(sides, problem), lambda: markdown_problem(sides, problem))

    def _write_texts(self, junit: Callable[[], str], markdown: Callable[[], str]) -> None:
        for path, make_text in ((self.junit, junit), (self.markdown, markdown)):
            if path is not None:
                _write_text(path, make_text())


def _write_text(path: Path, text: str) -> None:
    if path == STDOUT:
        sys.stdout.write(text)
        return
    try:
        rundir.write_bytes(path, text.encode())
    except OSError as error:
        raise InputError(path, f"cannot be written: {error.strerror or error}", "Choose another file") from error
