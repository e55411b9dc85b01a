"""The runs that are shown: opened in the background one after the other, and what was worked out about them."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import polars as pl

from steplens.advice.prepare import keep_answers, prepare_answers, use_kept_answers
from steplens.analysis.cluster.strategy import stage_ranks
from steplens.common import rundir
from steplens.common.errors import DefectError, SteplensError
from steplens.common.executors import TaskExecutor
from steplens.comparison.history.version_count import count_baselines, count_versions
from steplens.run import Run, open_draft, open_run
from steplens.server.http import errors
from steplens.server.http.errors import Problem, Refusal, path_text
from steplens.server.http.page_store import is_many, read_pages
from steplens.server.memo import AnswerCache
from steplens.timeline import presence, timeline_file
from steplens.timeline.layout import build_timeline
from steplens.timeline.pyramid import Pyramid
from steplens.timeline.sources import RECORDED, SOURCES
from steplens.timeline.time_origin import trace_origins
from steplens.trace.cache.store import tables_kept_afterwards
from steplens.trace.not_recorded import parts_not_recorded
from steplens.trace.trace import Trace

_LOG = logging.getLogger("steplens.server")

T = TypeVar("T")

Files = Mapping[str, tuple[int, int]]
State = Literal["waiting", "opening", "ready", "failed"]
Doing = Literal["reading", "analysing", "comparing"]

#: memory for answers, and for timelines; one of ten million events takes 0.4 GB until it is in its file
ANSWER_BYTES = 512 << 20
TIMELINE_BYTES = 2 << 30

#: among the names of answers
_PAGE = "page"

#: of an answer that is a few objects
_SMALL_ANSWER_BYTES = 1 << 16
#: the number of the draft of run 0: runs may be added meanwhile
_FIRST_DRAFT = 1 << 20
#: a folder with more files is no folder of runs
_MOST_FILES = 100_000
#: events of a draft are painted before reading takes the processors, unless nobody looks within a tenth of what reading will take
_DRAFT_WAITS_S_PER_BYTE = 1 / (700 << 20)
#: the same of laying out, which only the timeline waits for
_DRAFT_WAITS_S = 2.0
#: and of keeping the tables, which nobody waits for
_PAINTING_WAITS_S = 1.0


@dataclass
class Opening:
    """How far the opening of a run is.

    Attributes:
        state: "waiting" (for the run before it), "opening", "ready" or "failed".
        doing: "reading" its traces; of many of them "analysing" each, once all were read, and then "comparing" them.
        done: traces that have been read, or analysed.
        total: traces to read; 0 while they are looked for.
        what: the file or folder that is being read; empty when none is.
        bytes: its size, where it is a file.
        part: how much of it was read, 0 to 1, as far as that is known.
        started: when the opening began, seconds of ``time.monotonic``.
        seconds: how long it took, once it is over.
        timelines: traces whose timeline is ready.
        problem: why it failed.
    """

    state: State = "waiting"
    doing: Doing = "reading"
    done: int = 0
    total: int = 0
    what: str = ""
    bytes: int = 0
    part: float = 0.0
    started: float = 0.0
    seconds: float | None = None
    timelines: int = 0
    problem: Problem | None = None


@dataclass(frozen=True)
class Opened:
    """A run that was read: what belongs together, so that reading it again replaces all of it at once.

    Attributes:
        run: the run.
        origins: per trace the time from which its moments are told: the first event of all traces on the same clock.
        generation: how often it had been read.
        files: what lay there just before.
    """

    run: Run
    origins: tuple[int, ...]
    generation: int
    files: Files

    @cached_property
    def has_strategy(self) -> bool:
        """Whether the run says how its network is spread over devices."""
        return bool(stage_ranks(self.run.traces))

    @cached_property
    def version_count(self) -> int:
        """How many versions of a program lie in its folder, each in a folder of its own; 0 where it is something else."""
        return count_versions(self.run)

    @cached_property
    def not_recorded(self) -> tuple[str, ...]:
        """The parts of a recording that the run has nothing of."""
        return parts_not_recorded(self.run.traces)


@dataclass
class OpenedRun:
    """One path that the user wants to see, or the draft of one.

    Attributes:
        id: its place on the command line, from 0, or behind all of them; what the addresses call it.
        path: what the user gave.
        opening: how far it is.
        opened: what was read last; None before, and where it cannot be read any more.
        draft: some of its events, to be looked at while it is opened for the first time, where that takes long.
        one_of: this is a draft, which has one of so many events, about; 1 where it has all.
        seen: somebody was told what is to be painted of it.
        answers, timelines: what was worked out about it; a server has the same of all of its runs.
        executor: where its traces are read and analysed; None is this machine.
        baselines: how many saved baselines its folder holds, and nothing else: there is only their history then, and no run.
        looked: when somebody last looked for files that came since (``time.monotonic``), and whether there were any.
    """

    id: int
    path: Path
    opening: Opening = field(default_factory=Opening)
    opened: Opened | None = None
    draft: OpenedRun | None = None
    one_of: float = 1.0
    seen: threading.Event = field(default_factory=threading.Event)
    answers: AnswerCache = field(default_factory=partial(AnswerCache, ANSWER_BYTES), repr=False)
    timelines: AnswerCache = field(default_factory=partial(AnswerCache, TIMELINE_BYTES), repr=False)
    executor: TaskExecutor | None = field(default=None, repr=False)
    baselines: int = 0
    looked: tuple[float, bool] = (0.0, False)
    _openings: int = 0
    _unkept: list[Callable[[], None]] = field(default_factory=list, repr=False)

    @property
    def origins(self) -> tuple[int, ...]:
        """Where the moments of each trace count from; see ``Opened``."""
        return self.opened.origins if self.opened is not None else ()

    @property
    def generation(self) -> int:
        """How often it was read; answers about an earlier generation are of no use."""
        return self.opened.generation if self.opened is not None else 0

    @property
    def origin_ns(self) -> int:
        """The origin of the first trace, and of answers about several; 0 while nothing is open."""
        return self.origins[0] if self.origins else 0

    @property
    def run(self) -> Run:
        """The run itself.

        Raises:
            Refusal: it is not open yet (503), or cannot be read (409).
        """
        if self.opened is not None:
            return self.opened.run
        if self.opening.problem is not None:
            raise Refusal(409, **asdict(self.opening.problem))
        raise Refusal(errors.OPENING, "the run is being opened", path_text(self.path), "Ask again in a second")

    def trace(self, number: int) -> Trace:
        """One of its traces.

        Raises:
            Refusal: there is none of this number (404), or as ``run``.
        """
        traces = self.run.traces
        if not 0 <= number < len(traces):
            raise Refusal(404, f"the run has {len(traces)} traces, numbered from 0", "trace", "Leave it out for the first")
        return traces[number]

    def answer(self, key: tuple[Any, ...], make: Callable[[], T], size: Callable[[T], int] = lambda _: _SMALL_ANSWER_BYTES) -> T:
        """Anything about the run, worked out once; ``size`` gives the bytes of more than a few objects."""
        return self.answers.get((self.id, self.generation, *key), make, size)

    def frame(self, key: tuple[Any, ...], make: Callable[[], pl.DataFrame]) -> pl.DataFrame:
        """A frame about the run, worked out once."""
        return self.answer(key, make, lambda frame: int(frame.estimated_size()))

    def frame_of_run(self, analysis: Callable[..., pl.DataFrame], *arguments: Any) -> pl.DataFrame:
        """What an analysis makes of all traces and some arguments, worked out once."""
        return self.frame((analysis, *arguments), lambda: analysis(self.run.traces, *arguments))

    def frame_of_trace(self, analysis: Callable[..., pl.DataFrame], number: int, *arguments: Any) -> pl.DataFrame:
        """What an analysis makes of one trace and some arguments, worked out once."""
        trace = self.trace(number)
        return self.frame((analysis, number, *arguments), lambda: analysis(trace, *arguments))

    def soon(self, key: tuple[Any, ...], make: Callable[[], Any], seconds: float) -> Any:
        """Like ``answer``, but None when that takes longer than some seconds; it goes on in the background."""

        def make_answer() -> None:
            try:
                self.answer(key, make)
            except Exception:  # whoever asks for it alone is told
                _LOG.exception("no answer about %s", self.path)

        full_key = (self.id, self.generation, *key)
        if self.answers.known(full_key) is None:
            worker = threading.Thread(target=make_answer, name="steplens-answer", daemon=True)
            worker.start()
            worker.join(seconds)
        return self.answers.known(full_key)

    def timeline(self, number: int) -> Pyramid:
        """The timeline of a trace; the first request for it waits until it is laid out, or mapped where that was done before."""
        trace, origin = self.trace(number), self.origins[number]

        def build_pyramid() -> Pyramid:
            saved = timeline_file.load_timeline(trace.kept, origin) if trace.kept is not None else None
            sources = SOURCES if self.one_of == 1 else RECORDED
            return Pyramid(build_timeline(trace, origin, sources)) if saved is None else saved

        return self.timelines.get((self.id, self.generation, number), build_pyramid, lambda pyramid: pyramid.size_bytes)

    def save_timeline(self, number: int) -> None:
        """Put a timeline that is in memory into a file, for the next time and to free the memory."""
        place, pyramid = self.trace(number).kept, self.timeline(number)
        if place is None or not pyramid.size_bytes or timeline_file.save_timeline(pyramid, place) is None:
            return
        mapped = timeline_file.load_timeline(place, self.origins[number])
        if mapped is not None:
            self.timelines.replace((self.id, self.generation, number), mapped, mapped.size_bytes)

    def keep_tables(self) -> None:
        """Keep the tables that ``open`` left in memory; who looks at the timeline has its picture first."""
        waiting, self._unkept = self._unkept, []
        if waiting:
            self.seen.wait(_PAINTING_WAITS_S)
        for keep in waiting:
            keep()

    def draw(self, number: int) -> None:
        """Make the draft of a run that takes long to read, under a number of its own, and let it be painted; never raises."""
        try:
            drawn = open_draft(self.path, presence.seems_there)
        except Exception:  # reading all of it tells what is wrong
            _LOG.exception("no draft of %s", self.path)
            return
        if drawn is not None:
            opened = Opened(drawn.run, trace_origins(drawn.run.traces), 1, {})
            self.draft = OpenedRun(
                number, self.path, Opening(state="ready"), opened,
                one_of=drawn.of_bytes / drawn.bytes, answers=self.answers, timelines=self.timelines,
            )  # fmt: skip
            if not drawn.is_read:
                self.draft.seen.wait(drawn.of_bytes * _DRAFT_WAITS_S_PER_BYTE)

    def open(self, *, keeps_later: bool = False) -> None:
        """Read it; never raises.

        Args:
            keeps_later: leave the tables of a trace that was read in memory, for ``keep_tables``.
        """
        self.opening = opening = Opening(state="opening", started=time.monotonic())

        def report_progress(number: int, total: int, path: Path) -> None:
            # the total last: once somebody who asks meanwhile is told it, the rest is there too
            opening.bytes = path.stat().st_size if path.is_file() else 0
            opening.what, opening.part = path_text(path), 0.0
            opening.done, opening.total = number, total

        def report_bytes(path: Path, done: int, total: int) -> None:
            opening.part = min(done / total, 1.0) if total else 0.0

        def report_analysed(number: int, total: int) -> None:
            opening.done, opening.total = number, total

        try:
            if (baselines := count_baselines(self.path)) > 0:
                self.baselines, opening.state, opening.seconds = baselines, "ready", 0.0
                return
            files = file_states(self.path)
            with contextlib.ExitStack() as keeping:
                if keeps_later:
                    self._unkept = keeping.enter_context(tables_kept_afterwards())
                run = open_run(self.path, report_progress, report_bytes, executor=self.executor)
            if is_many(run):
                # pages speak of all of them: without this the first one would read the tables of each
                opening.what, opening.doing = "", "analysing"
                if prepare_answers(run, report_analysed):
                    keep_answers(run)
            else:
                use_kept_answers(run)
            self._openings += 1
            opened = Opened(run, trace_origins(run.traces), self._openings, files)
            if is_many(run):
                opening.doing = "comparing"
                self._compare_ranks(opened)
            self.opened, self.looked = opened, (time.monotonic(), False)
            opening.what, opening.bytes, opening.part = "", 0, 0.0
            opening.state, opening.done, opening.total = "ready", len(run.traces), len(run.sources)
        except SteplensError as error:
            if isinstance(error, DefectError):
                _LOG.exception("cannot open %s", self.path)
            opening.problem, opening.state = errors.of_input(error), "failed"
        except Exception as error:  # a defect of ours must not leave the page waiting for ever
            _LOG.exception("cannot open %s", self.path)
            text = f"steplens failed to read it ({type(error).__name__}: {error})"
            opening.problem = Problem(problem=text, where=path_text(self.path), remedy="Please report this")
            opening.state = "failed"
        if opening.state == "failed":
            self.opened = None
        opening.seconds = time.monotonic() - opening.started

    def _compare_ranks(self, opened: Opened) -> None:
        """Have what the first page says of all ranks together: as it was kept, or worked out while the opening says so."""
        pages = read_pages(opened.run)
        for name, packed in pages.items():
            self.add_page(name, opened.generation, packed)
        # what the list of runs says of it
        _ = opened.has_strategy, opened.not_recorded
        if not pages:
            with contextlib.suppress(Exception):  # whoever asks for it is told
                opened.run.verdict()

    def kept_page(self, name: str) -> bytes | None:
        """A whole answer that is kept, packed (``http.page_store``), by what was asked; None where it is not known."""
        packed: bytes | None = self.answers.known((self.id, self.generation, _PAGE, name))
        return packed

    def add_page(self, name: str, generation: int, packed: bytes) -> None:
        """Let an answer of a generation of the run be known."""
        self.answers.get((self.id, generation, _PAGE, name), lambda: packed, len)


def file_states(path: Path) -> Files:
    """Name -> (size, time of the last change in ns) of the files at a path, without what steplens itself keeps there.

    Links to folders are not followed; what vanishes meanwhile is left out.
    """
    sizes: dict[str, tuple[int, int]] = {}
    if not path.is_dir():
        _add_file_state(sizes, path, path.parent)
        return sizes
    for folder, inside, names in os.walk(path):
        inside[:] = [name for name in inside if name != rundir.CACHE_DIRECTORY]
        for name in names:
            _add_file_state(sizes, Path(folder, name), path)
            if len(sizes) >= _MOST_FILES:
                return sizes
    return sizes


def _add_file_state(found: dict[str, tuple[int, int]], file: Path, top: Path) -> None:
    try:
        status = file.lstat()
    except OSError:
        return
    found[str(file.relative_to(top))] = status.st_size, status.st_mtime_ns


class RunLibrary:
    """All runs of a server.

    Args:
        paths: what to show.
        executor: where traces are read and analysed; None is this machine.
    """

    def __init__(self, paths: Sequence[Path], executor: TaskExecutor | None = None) -> None:
        answers, timelines = AnswerCache(ANSWER_BYTES), AnswerCache(TIMELINE_BYTES)
        self.runs = [
            OpenedRun(number, path, answers=answers, timelines=timelines, executor=executor) for number, path in enumerate(paths)
        ]
        self._opening, self._adding = threading.Lock(), threading.Lock()
        #: answers what the pages of a run of many ranks ask first; told by the application over these runs
        self.answer_ahead: Callable[[OpenedRun], None] | None = None

    def start(self) -> None:
        """Open all runs in the background."""
        self._in_background(self.runs)

    def add_path(self, path: Path) -> OpenedRun:
        """A run beside those of the command line, opened in the background; the same one where it is shown already."""
        with self._adding:
            for opened in self.runs:
                if opened.path == path:
                    return opened
            first = self.runs[0]
            added = OpenedRun(len(self.runs), path, answers=first.answers, timelines=first.timelines, executor=first.executor)
            self.runs.append(added)
        self._in_background([added])
        return added

    def reopen(self, shown: OpenedRun) -> None:
        """Read a run again, because there is more of it now; what is known stays until then."""
        if shown.opening.state not in ("waiting", "opening"):
            shown.opening, shown.draft = Opening(), None
            self._in_background([shown])

    def _in_background(self, runs: Sequence[OpenedRun]) -> None:
        # not waited for when the server ends
        threading.Thread(target=self._open, args=(list(runs),), name="steplens-open", daemon=True).start()

    def _open(self, runs: Sequence[OpenedRun]) -> None:
        with self._opening:
            for opened in runs:
                if opened.opened is None and not count_baselines(opened.path):
                    opened.draw(_FIRST_DRAFT + opened.id)
                opened.open(keeps_later=len(runs) == 1)
            for opened in runs:
                if (draft := opened.draft) is not None:
                    draft.seen.wait(_DRAFT_WAITS_S)
                try:
                    self._prepare_run(opened)
                finally:
                    opened.keep_tables()

    def _prepare_run(self, shown: OpenedRun) -> None:
        """Lay out the timelines as far as memory for them goes, before somebody asks."""
        if shown.opening.state != "ready" or shown.opened is None:
            return
        if is_many(shown.run) and self.answer_ahead is not None:
            self.answer_ahead(shown)
        # of very many ranks a few are looked at
        for number in range(1 if is_many(shown.run) else len(shown.run.traces)):
            if shown.timelines.size_bytes > TIMELINE_BYTES // 2:
                return
            try:
                shown.timeline(number)
                shown.opening.timelines += 1
                shown.keep_tables()
                shown.save_timeline(number)
            except Exception:  # whoever asks for it is told
                if not threading.main_thread().is_alive():
                    # Ctrl-C ended the server meanwhile: nobody asks any more, and no work can be begun
                    return
                _LOG.exception("no timeline of trace %d of %s", number, shown.path)

    def shown(self, number: int) -> OpenedRun:
        """A run by its number, or the draft of one.

        Raises:
            Refusal: there is none (404).
        """
        drafts = {draft.id: draft for opened in self.runs if (draft := opened.draft) is not None}
        if number in drafts:
            return drafts[number]
        if not 0 <= number < len(self.runs):
            raise Refusal(404, f"there are {len(self.runs)} runs, numbered from 0", "run", "GET /api/runs lists them")
        return self.runs[number]
