"""Writes a report: opens the runs, chooses what to show, asks for it, and puts all of it into one file."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from steplens.advice.prepare import keep_answers, prepare_answers
from steplens.common import rundir
from steplens.common.errors import InputError
from steplens.common.executors import TaskExecutor
from steplens.report import page, window
from steplens.report.ask import InProcessClient
from steplens.report.collecting import Collector, Job, collect_report
from steplens.report.parts import Parts
from steplens.report.redaction import redact
from steplens.report.window import Window
from steplens.server import session
from steplens.server.app import STATIC
from steplens.server.http.errors import path_text
from steplens.server.runs import RunLibrary
from steplens.server.search import PER_KIND


@dataclass(frozen=True)
class Options:
    """How to make a report.

    Attributes:
        step: the step that is shown event by event.
        span_ns: or the window, start and end from the origin of the run.
        rows: how many rows of a table it has at most.
        limit_bytes: how large its data may be.
        redact: whether to replace the strings of users by pseudonyms.
        language: in which it opens; None leaves it to the browser.
    """

    step: int | None = None
    span_ns: tuple[int, int] | None = None
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


def write_report(
    paths: Sequence[Path],
    output: Path,
    options: Options,
    say: Callable[[str], None],
    static: Path = STATIC,
    executor: TaskExecutor | None = None,
) -> Written:
    """Write the report of some runs.

    Args:
        paths: of the runs.
        output: the HTML file; replaced as a whole, or not at all.
        options: see ``Options``.
        say: told what is being done.
        static: folder of the built front end.
        executor: where traces are read, and what is asked of each of them is worked out; None is this machine.

    Raises:
        InputError: a run cannot be read, has no such step, the pages are not built, or ``output`` cannot be written.
        SteplensError: the report does not fit into its limit.
    """
    built = page.front_end(static)
    library = RunLibrary(paths, executor)
    for shown in library.runs:
        say(f"reading {shown.path}")
        shown.open()
        if (problem := shown.opening.problem) is not None:
            raise InputError(problem.where or shown.path, problem.problem, problem.remedy)
    if options.redact:
        say("replacing names")
        redact.redact_runs(library.runs)
    parts = Parts(options.limit_bytes)
    with InProcessClient(library) as asker:
        for shown in library.runs:
            prepare_answers(shown.run)
        windows = [window.choose_window(shown, options.step, options.span_ns) for shown in library.runs]
        parts.require("session", asker.get("session").body)
        sentences: set[str] = set()

        def say_what_begins(job: Job) -> None:
            doing = {"answers": "analysing", "timeline": "events and tables of"}.get(job.kind)
            sentence = f"{doing} {library.runs[job.run].path}"
            if doing is not None and sentence not in sentences:
                sentences.add(sentence)
                say(sentence)

        collect_report(Collector(library, asker, windows, options.rows), parts, say_what_begins)
    for shown in library.runs:
        keep_answers(shown.run)
    document = {
        "version": session.VERSION,
        "created": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "redacted": options.redact,
        "rows": options.rows,
        "limit_bytes": options.limit_bytes,
        "per_kind": PER_KIND,
        "windows": [vars(item) for item in windows],
        "left_out": parts.told(),
    }
    # the list of what did not fit always fits
    room = replace(parts, limit_bytes=1 << 62)
    room.require("report", msgspec.json.encode(document))
    title = f"{', '.join(path_text(shown.path.resolve().name) for shown in library.runs[:3])} · steplens"
    data = page.compose_page(built, title, options.language, room.pieces)
    try:
        rundir.write_bytes(output, data)
    except OSError as error:
        remedy = "Nothing was left there; free some space or give another --out"
        raise InputError(output, f"cannot be written: {error.strerror or error}", remedy) from error
    return Written(len(data), windows, len(parts.left_out))
