"""What is shown and how far the opening of it is."""

from __future__ import annotations

import sys
import threading
import time

from fastapi import Request
from pydantic import BaseModel

from steplens.advice.texts import LANGUAGES
from steplens.server.captures import is_watched
from steplens.server.http.errors import Problem, path_text
from steplens.server.http.routing import create_router
from steplens.server.requests import Living, Runs
from steplens.server.runs import Doing, Opened, OpenedRun, State, file_states

#: not imported: the package has names of the collector, which the server must not know
VERSION: str = sys.modules["steplens"].__version__

#: so many files are looked at once in so many seconds, however often somebody asks
_MANY_FILES, _LOOK_EVERY_S = 1000, 10.0

router = create_router("/api", "session")


class Progress(BaseModel):
    """How far the opening of a run is.

    Attributes:
        state: "waiting", "opening", "ready" or "failed".
        doing: "reading" traces; of many of them "analysing" each, once all were read, and then "comparing" them.
        done: traces that have been read, or analysed.
        total: traces to read; 0 while they are looked for.
        what: what is being read.
        bytes: its size, where it is a file; 0 otherwise.
        part: how much of it was read, 0 to 1; 0 where that is not known.
        seconds: how long it has taken so far, or took.
        timelines: traces whose timeline is laid out.
        problem: why it failed.
    """

    state: State
    doing: Doing
    done: int
    total: int
    what: str
    bytes: int
    part: float
    seconds: float
    timelines: int
    problem: Problem | None


class TraceState(BaseModel):
    """One trace of a run: its number, the rank of its process (None where the source does not say) and its origin, as text."""

    trace: int
    rank: int | None
    origin_ns: str


class Draft(BaseModel):
    """Some events of the first trace of a run that is being read: its timeline can be looked at, and no figure rests on it.

    Attributes:
        run: its number, under which the addresses of the timeline know it.
        one_of: it has one of so many events, about.
        origin_ns: as that of a run.
    """

    run: int
    one_of: float
    origin_ns: str


class RunState(BaseModel):
    """One run of the session.

    Attributes:
        run: its number, which addresses name.
        path: what the user gave.
        name: the last part of the path.
        origin_ns: Unix time from which moments of its first trace, and of answers about several, count, as text: it is larger
            than what a number of JavaScript holds. Traces on another clock have their own (``ranks``).
        generation: how often it was opened; answers of an earlier generation are out of date.
        traces: what it holds; nothing while it is opened for the first time.
        strategy: whether it says how its network is spread over devices.
        versions: how many versions of a program lie in it, each in a folder of its own or saved as a baseline; 0 where it is
            something else.
        not_recorded: the parts of a recording that it has nothing of, names as ``trace.not_recorded.PARTS`` has them: pages about
            them are not offered.
        growing: whether a training writes more of it: one that runs watches its folder, or files came since it was read.
        progress: see ``Progress``.
        draft: what can be looked at until its timeline is laid out, where that takes long; None otherwise.
    """

    run: int
    path: str
    name: str
    origin_ns: str
    generation: int
    traces: list[TraceState]
    strategy: bool
    versions: int
    not_recorded: list[str]
    growing: bool
    progress: Progress
    draft: Draft | None


class Session(BaseModel):
    """The whole session.

    Attributes:
        version: of steplens.
        languages: in which advice is given.
        runs: what is shown.
    """

    version: str
    languages: list[str]
    runs: list[RunState]


class Live(BaseModel):
    """Whether there is more of a run than what is shown.

    Attributes:
        generation: what is shown.
        changed: whether files were added, removed or written since it was opened.
        files: how many files there are now.
    """

    generation: int
    changed: bool
    files: int


@router.get("/session")
def session(runs: Runs, request: Request) -> Session:
    """What is shown."""
    return Session(version=VERSION, languages=list(LANGUAGES), runs=[state_of_run(opened, request) for opened in runs.runs])


@router.get("/runs/{run}")
def run_state(chosen: Living, request: Request) -> RunState:
    """One run, and how far the opening of it is. Poll it until its state is "ready" or "failed"."""
    return state_of_run(chosen, request)


@router.get("/runs/{run}/live")
def is_changed(chosen: Living) -> Live:
    """Whether a training has written more since the run was opened."""
    before = chosen.opened.files if chosen.opened is not None else {}
    now = file_states(chosen.path)
    return Live(generation=chosen.generation, changed=now != before, files=len(now))


@router.post("/runs/{run}/reopen")
def reopen(chosen: Living, runs: Runs, request: Request) -> RunState:
    """Read the run again; what was read before is shown until then."""
    runs.reopen(chosen)
    return state_of_run(chosen, request)


def state_of_run(chosen: OpenedRun, request: Request) -> RunState:
    """A run as the session lists it."""
    # how far it is first: a run is there before it is said to be ready, and who is told so does not ask again
    opening = chosen.opening
    progress, generation = dict(vars(opening)), chosen.generation
    opened = chosen.opened
    traces = [] if opened is None else zip(opened.run.traces, opened.origins, strict=True)
    running = time.monotonic() - opening.started if opening.started else 0.0
    return RunState(
        run=chosen.id,
        path=path_text(chosen.path),
        name=path_text(chosen.path.resolve().name),
        origin_ns=str(chosen.origin_ns),
        generation=generation,
        traces=[
            TraceState(trace=number, rank=trace.rank if trace.rank >= 0 else None, origin_ns=str(origin))
            for number, (trace, origin) in enumerate(traces)
        ],
        strategy=opened is not None and opened.has_strategy,
        versions=opened.version_count if opened is not None else chosen.baselines,
        not_recorded=list(opened.not_recorded) if opened is not None else [],
        growing=chosen.path.is_dir() and (is_watched(chosen, request) or _has_more_files(chosen)),
        progress=Progress(**{**progress, "seconds": running if progress["seconds"] is None else progress["seconds"]}),
        draft=_draft_of_run(chosen),
    )


def _has_more_files(chosen: OpenedRun) -> bool:
    """Whether files were added or written since a run was read; while it is being read nobody can tell."""
    opened = chosen.opened
    if opened is None or chosen.opening.state != "ready":
        return False
    if len(opened.files) < _MANY_FILES:
        return file_states(chosen.path) != opened.files
    # looking at the files of a thousand ranks takes longer than everything else that a page begins with: nobody waits for it
    looked, is_changed = chosen.looked
    if time.monotonic() - looked > _LOOK_EVERY_S:
        chosen.looked = time.monotonic(), is_changed
        threading.Thread(target=_look_for_files, args=(chosen, opened), name="steplens-files", daemon=True).start()
    return is_changed


def _look_for_files(chosen: OpenedRun, opened: Opened) -> None:
    is_changed = file_states(chosen.path) != opened.files
    if chosen.opened is opened:
        chosen.looked = time.monotonic(), is_changed


def _draft_of_run(chosen: OpenedRun) -> Draft | None:
    """Of its first trace, until that is laid out."""
    drawn = chosen.draft
    if drawn is None or chosen.opening.timelines or chosen.opening.state == "failed":
        return None
    return Draft(run=drawn.id, one_of=drawn.one_of, origin_ns=str(drawn.origin_ns))
