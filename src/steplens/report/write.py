"""Writes a report: opens the runs, chooses what to show, asks for it, and puts all of it into one file."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from steplens import rundir
from steplens.errors import InputError, SteplensError
from steplens.report import answers, page, plans, redact, shapes, strategy, tables, timeline, window
from steplens.report.ask import Asker
from steplens.report.parts import Parts
from steplens.report.window import Wanted, Window
from steplens.server import session
from steplens.server.app import STATIC
from steplens.server.errors import path_text
from steplens.server.runs import Library, Shown
from steplens.server.search import PER_KIND, entries

#: runs of which every two are compared
_MOST_COMPARED = 4


@dataclass(frozen=True)
class Options:
    """How to make a report.

    Attributes:
        wanted: the window that is shown event by event.
        rows: how many rows of a table it has at most.
        limit_bytes: how large its data may be.
        redact: whether to replace the strings of users by pseudonyms.
        language: in which it opens; None leaves it to the browser.
    """

    wanted: Wanted = field(default_factory=Wanted)
    rows: int = 2000
    limit_bytes: int = 32 << 20
    redact: bool = False
    language: str | None = None


@dataclass(frozen=True)
class Written:
    """A report: its size, the window of each run, and how many things are not, or not whole, in it."""

    size_bytes: int
    windows: Sequence[Window]
    left_out: int


def write(paths: Sequence[Path], output: Path, options: Options, say: Callable[[str], None], static: Path = STATIC) -> Written:
    """Write the report of some runs.

    Args:
        paths: of the runs.
        output: the HTML file; replaced as a whole, or not at all.
        options: see ``Options``.
        say: told what is being done.
        static: folder of the built front end.

    Raises:
        InputError: a run cannot be read, has no such step, the pages are not built, or ``output`` cannot be written.
        SteplensError: the report does not fit into its limit.
    """
    built = page.front_end(static)
    library = Library(paths)
    for shown in library.runs:
        say(f"reading {shown.path}")
        _open(shown)
    if options.redact:
        say("replacing names")
        redact.redact(library.runs)
    parts = Parts(options.limit_bytes)
    with Asker(library) as asker:
        windows = [window.choose(library, shown, options.wanted) for shown in library.runs]
        parts.require("session", asker.get("session").body)
        for shown in library.runs:
            say(f"analysing {shown.path}")
            _answers(library, asker, shown, parts)
        _compared(asker, library, parts)
        for shown, span in zip(library.runs, windows, strict=True):
            say(f"events and tables of {shown.path}")
            # the timeline goes before long tables: it is what only a report of this window has
            timeline.collect(library, asker, shown, span, parts)
            plans.collect(shown, parts)
            strategy.collect(shown, parts)
            shapes.collect(library, shown, parts)
            tables.collect(asker, shown, span, options.rows, parts)
    told = {
        "version": session.VERSION,
        "created": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "redacted": options.redact,
        "rows": options.rows,
        "limit_bytes": options.limit_bytes,
        "per_kind": PER_KIND,
        "windows": [vars(one) for one in windows],
        "left_out": parts.told(),
    }
    # the list of what did not fit always fits
    room = replace(parts, limit_bytes=1 << 62)
    room.require("report", msgspec.json.encode(told))
    title = f"{', '.join(path_text(shown.path.resolve().name) for shown in library.runs[:3])} · steplens"
    data = page.compose(built, title, options.language, room.pieces)
    try:
        rundir.write_bytes(output, data)
    except OSError as error:
        remedy = "Nothing was left there; free some space or give another --output"
        raise InputError(output, f"cannot be written: {error.strerror or error}", remedy) from error
    return Written(len(data), windows, len(parts.left_out))


def _open(shown: Shown) -> None:
    shown.open()
    if shown.opening.problem is not None:
        told = shown.opening.problem
        raise InputError(told.where or shown.path, told.problem, told.remedy)


def _answers(library: Library, asker: Asker, shown: Shown, parts: Parts) -> None:
    # the first page would wait only a moment for it
    asker.get(f"runs/{shown.id}/advice")
    answers.collect(asker, shown, parts)
    found = {kind: [one.model_dump() for one in known] for kind, known in entries(shown, library).items()}
    if not parts.add(f"search/{shown.id}", found):
        parts.lost("answers", shown.id, None, "search", 0, sum(map(len, found.values())), "size")


def _compared(asker: Asker, library: Library, parts: Parts) -> None:
    pairs = list(itertools.permutations(range(min(len(library.runs), _MOST_COMPARED)), 2))
    found = {}
    for before, after in pairs:
        query = {"before": before, "after": after, "limit": 200}
        answer = asker.get("compare", query)
        found[answers.key("compare", {"before": before, "after": after})] = msgspec.Raw(answer.body)
    every = len(library.runs) * (len(library.runs) - 1)
    if found and not parts.add("compare", found):
        raise SteplensError("the comparison of the runs does not fit into the report; allow more with --limit")
    if len(pairs) < every:
        parts.lost("answers", 0, None, "compare", len(pairs), every, "many")
