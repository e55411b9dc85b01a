"""A summary that was shown before, kept beside the tables that it is of: shown again without reading or analysing any."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from steplens.cli.summary.rows import Summary
from steplens.common import extensions, rundir
from steplens.common.step_points import named_points
from steplens.readers import detect
from steplens.trace.cache.kept_answers import pack_answers, read_answers, write_answers

if TYPE_CHECKING:
    from steplens.run import Run
    from steplens.trace.kept_tables import KeptTables

_KIND = "summary"
#: a longer one, as of thousands of steps, is made again
_MOST_BYTES = 4 << 20
#: what whoever shows it looks at anew: results may have been written or removed since
_OF_FOLDERS = ("results", "unfinished")


def find_summary(path: Path, by: str, top: int) -> Summary | None:
    """The summary of a path as it was kept; None where there is none of exactly what lies there now.

    Args:
        path: what the user asks for.
        by: what operators are grouped by.
        top: how many of them it has.

    Raises:
        InputError: nothing at ``path`` can be read.
    """
    captures = detect.find_traces(path)
    places: list[KeptTables] = []
    for capture in captures:
        place = detect.find_kept(capture)
        # most often it is the first one that is not there
        if place is None or (not places and not _has_any(place)):
            return None
        places.append(place)
    answers = read_answers(places[0], _context_of(path, by, top, places), _KIND)
    if answers is None:
        return None
    try:
        fields = msgspec.msgpack.decode(answers[_KIND], type=dict[str, Any])
        results, unfinished = list_results(capture.path for capture in captures)
        return Summary(**fields, results=results, unfinished=unfinished)
    except (KeyError, TypeError, msgspec.DecodeError):
        return None


def keep_summary(run: Run, found: Summary, by: str, top: int) -> None:
    """Keep a summary beside the tables of the first trace, where all of them are kept and nothing is missing.

    Args:
        run: what it is of.
        found: the summary.
        by: as for ``find_summary``.
        top: as there.
    """
    places = [trace.kept for trace in run.traces if trace.kept is not None]
    if len(places) < len(run.traces) or run.unreadable:
        return
    fields = {field.name: getattr(found, field.name) for field in dataclasses.fields(found) if field.name not in _OF_FOLDERS}
    try:
        content = msgspec.msgpack.encode({**fields, "steps": list(found.steps)})
    except (TypeError, OverflowError):  # a value that only an analysis of somebody else gives
        return
    if len(content) <= _MOST_BYTES:
        write_answers(places[0], _context_of(run.path, by, top, places), pack_answers({_KIND: content}), _KIND)


def list_results(paths: Iterable[Path]) -> tuple[list[str], list[str]]:
    """The folders of complete results among captures, and the run directories without."""
    directories = [path for path in paths if rundir.is_run_directory(path)]
    complete = [path for path in directories if (path / rundir.OUTPUT_DIRECTORY / rundir.COMPLETION_MARKER).exists()]
    return [str(path / rundir.OUTPUT_DIRECTORY) for path in complete], [str(path) for path in directories if path not in complete]


def _has_any(place: KeptTables) -> bool:
    try:
        return any(name.startswith(f"{_KIND}-") for name in os.listdir(place.folder))
    except OSError:
        return False


def _context_of(path: Path, by: str, top: int, places: Sequence[KeptTables]) -> str:
    """What a summary depends on besides the tables of the first trace and the program."""
    question = [str(path), by, str(top), repr(named_points(os.environ)), *extensions.installed_versions()]
    return hashlib.sha256(
        "\0".join([*question, *(place.fingerprint for place in places)]).encode(errors="surrogateescape")
    ).hexdigest()
