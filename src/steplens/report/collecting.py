"""Collects what a report of some runs holds, in jobs that several processes share where that is worth it.

A job is what an address answers, the timeline or the shapes of a trace, or a table. The processes beside this one run this
module. A report has the same pieces in the same order whoever makes them.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from steplens.common.errors import SteplensError
from steplens.common.storage.files import locate_path, private_address
from steplens.common.worker_processes import SharedTasks, serve_tasks
from steplens.report import answers, plans, shapes, tables, timeline
from steplens.report.answers import AddressAnswers, Values
from steplens.report.ask import InProcessClient
from steplens.report.parts import LeftOut, Parts
from steplens.report.window import Window
from steplens.server.runs import OpenedRun, RunLibrary
from steplens.server.search import searchable_entries

#: runs of which every two are compared
_MOST_COMPARED = 4
#: they wait only a moment for the advice
_WAITING = (f"{answers.RUN}/overview", f"{answers.RUN}/pipeline/batches")


@dataclass(frozen=True)
class Job:
    """One thing that a report holds.

    Attributes:
        kind: one of ``_KINDS``.
        run: number of the run.
        of: the address, the number of the trace, or the table as ``tables.listed`` has it; None where it is of the whole run.
    """

    kind: str
    run: int
    of: Any = None


@dataclass
class Collector:
    """Does the jobs of a report.

    Attributes:
        library: the runs, opened.
        asker: of them.
        windows: the window of each run.
        rows: how many rows of a table a report has at most.
        answered: of each run: address -> what it answers.
    """

    library: RunLibrary
    asker: InProcessClient
    windows: Sequence[Window]
    rows: int

    def __post_init__(self) -> None:
        self._values = [Values(self.asker, shown) for shown in self.library.runs]
        self.answered: list[dict[str, AddressAnswers]] = [{} for _ in self.library.runs]

    def jobs(self) -> list[Job]:
        """All jobs, in the order in which a report has what they make."""
        runs = self.library.runs
        found = []
        for shown in runs:
            found += [Job("answers", shown.id, path) for path in answers.answerable_addresses(self.asker)]
            found.append(Job("end of answers", shown.id))
        found.append(Job("comparison", 0))
        for shown in runs:
            traces = range(len(shown.run.traces))
            # the timeline goes before long tables: it is what only a report of this window has
            found += [Job("timeline", shown.id, trace) for trace in traces]
            found += [Job("plans", shown.id), Job("strategy", shown.id)]
            found += [Job("shapes", shown.id, trace) for trace in traces]
            found += [Job("table", shown.id, table) for table in self.asker.get(f"runs/{shown.id}/tables").json]
        return found

    def do(self, job: Job, parts: Parts) -> None:
        """Do one, and put what it makes into a report.

        Raises:
            SteplensError: what no page can do without does not fit.
        """
        _KINDS[job.kind](self, self.library.runs[job.run], job.of, parts)

    def _collect_answers(self, shown: OpenedRun, path: str, _: Parts) -> None:
        if path in _WAITING:
            self.asker.get(f"runs/{shown.id}/advice")
        self.answered[shown.id][path] = answers.ask_address(self.asker, self._values[shown.id], shown, path)

    def _end_of_answers(self, shown: OpenedRun, _: None, parts: Parts) -> None:
        answers.add_answers(shown, self.answered[shown.id], parts)
        entries_by_kind = {
            kind: [entry.model_dump() for entry in kind_entries] for kind, kind_entries in searchable_entries(shown).items()
        }
        count = sum(map(len, entries_by_kind.values()))
        parts.add_some(f"search/{shown.id}", entries_by_kind, "answers", shown.id, None, "search", count, count)

    def _collect_comparison(self, _: OpenedRun, __: None, parts: Parts) -> None:
        runs = len(self.library.runs)
        pairs = list(itertools.permutations(range(min(runs, _MOST_COMPARED)), 2))
        replies = {}
        for before, after in pairs:
            pair = {"before": before, "after": after}
            compared = self.asker.get("compare", pair)
            # sides that cannot be compared are a problem, which the page tells
            replies[answers.question_key("compare", pair)] = (compared.status, msgspec.Raw(compared.body))
            if not compared.ok:
                continue
            calls = [("compare/calls", {**pair, "of": of}) for of in compared.json["calls_of"]]
            for path, query in [*calls, ("compare/findings", pair)]:
                answer = self.asker.get(path, query)
                replies[answers.question_key(path, query)] = (answer.status, msgspec.Raw(answer.body))
        pair_count = runs * (runs - 1)
        if replies and not parts.add("compare", replies):
            raise SteplensError("the comparison of the runs does not fit into the report; allow more with --limit")
        if len(pairs) < pair_count:
            parts.lost("answers", 0, None, "compare", len(pairs), pair_count, "many")


_KINDS: dict[str, Callable[[Collector, OpenedRun, Any, Parts], None]] = {
    "answers": Collector._collect_answers,
    "end of answers": Collector._end_of_answers,
    "comparison": Collector._collect_comparison,
    "timeline": lambda report, run, trace, parts: timeline.collect_timeline(
        report.asker, run, trace, report.windows[run.id], parts
    ),
    "plans": lambda _, run, __, parts: plans.collect_memory_plans(run, parts),
    "strategy": lambda _, run, __, parts: plans.collect_stage_operators(run, parts),
    "shapes": lambda _, run, trace, parts: shapes.collect_shape_changes(run, trace, parts),
    "table": lambda report, run, table, parts: tables.collect_table(
        report.asker, run, table, report.windows[run.id], report.rows, parts
    ),
}
#: of so many traces the collecting takes longer than a process takes to start
_MANY_TRACES = 6
#: rests on all answers, or takes no time
_NOT_SHARED = ("end of answers", "comparison", "plans", "strategy")


def collect_report(collector: Collector, parts: Parts, begun: Callable[[Job], None]) -> None:
    """Collect all that a report holds.

    Args:
        collector: of its runs.
        parts: where it goes; the processes beside this one know nothing of what is in there.
        begun: told of each job that is begun here.

    Raises:
        SteplensError: the report does not fit into its limit.
    """
    jobs = collector.jobs()
    prints = _table_fingerprints(collector.library)
    request = {
        "paths": [private_address(shown.path) for shown in collector.library.runs],
        "tables": prints,
        "windows": [dataclasses.asdict(window) for window in collector.windows],
        "rows": collector.rows,
        "limit_bytes": parts.limit_bytes,
        "jobs": [dataclasses.asdict(job) for job in jobs],
    }
    done = 0

    def do_job(number: int) -> None:
        nonlocal done
        # what another process could not do waits until all before it is there
        if number == done:
            begun(jobs[number])
            collector.do(jobs[number], parts)
            done += 1

    # what is not kept, as where names were replaced, only this process knows
    most_workers = None if all(prints) else lambda: 0
    at_once = len(prints) >= _MANY_TRACES
    made = SharedTasks(len(jobs), "steplens.report.collecting", request, at_once=at_once, most_workers=most_workers).run(do_job)
    for number in range(done, len(jobs)):
        if not _add_worker_result(collector, jobs[number], made.get(number), parts):
            collector.do(jobs[number], parts)


def _table_fingerprints(library: RunLibrary) -> list[str]:
    """What the tables of every trace are known by; empty where they are not kept."""
    return ["" if trace.kept is None else trace.kept.fingerprint for shown in library.runs for trace in shown.run.traces]


def _add_worker_result(collector: Collector, job: Job, made: dict[str, Any] | None, parts: Parts) -> bool:
    """Put into a report what another process made; False where there is nothing, or it does not fit as it is."""
    if made is None:
        return False
    if made["answers"] is not None:
        defaults, answered, question_count = made["answers"]
        collector.answered[job.run][job.of] = AddressAnswers(defaults, [tuple(answer) for answer in answered], question_count)
    return parts.take(made["pieces"], [LeftOut(**item) for item in made["left_out"]])


def _prepare_jobs(request: Any) -> Callable[[int], dict[str, Any]]:
    library = RunLibrary([locate_path(path, listed_before=True) for path in request["paths"]])
    for shown in library.runs:
        shown.open()
    if _table_fingerprints(library) != request["tables"]:
        raise SteplensError("a run has changed meanwhile")
    windows = [Window(**window) for window in request["windows"]]
    collector = Collector(library, InProcessClient(library), windows, request["rows"])
    jobs = [Job(**job) for job in request["jobs"]]

    def make_pieces(number: int) -> dict[str, Any]:
        job = jobs[number]
        if job.kind in _NOT_SHARED:
            raise SteplensError("this is done where the answers are")
        parts = Parts(request["limit_bytes"])
        collector.do(job, parts)
        if parts.is_full:
            raise SteplensError("what is left out is decided where all of the report is")
        address = collector.answered[job.run].pop(job.of, None) if job.kind == "answers" else None
        return {
            "pieces": parts.pieces,
            "left_out": parts.told(),
            "answers": None if address is None else (address.defaults, address.answers, address.asked),
        }

    return make_pieces


if __name__ == "__main__":
    serve_tasks(_prepare_jobs)
