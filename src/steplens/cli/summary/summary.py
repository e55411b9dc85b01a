"""``steplens summary``: where the steps of a run went, in the terminal or as one JSON document."""

from __future__ import annotations

import dataclasses
import enum
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steplens.cli.line.arguments import InputPath, Json, Scheduler
from steplens.cli.opening import keep_timelines, open_with_progress, show_work
from steplens.cli.summary.rows import FrameRows, Summary
from steplens.cli.text.pipeline_text import pipeline_rows
from steplens.cli.text.text import print_json
from steplens.cli.text.unreadable_text import unreadable_rows
from steplens.common.errors import InputError, SteplensError
from steplens.readers.glance import refuse_hopeless

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import polars as pl

    from steplens.analysis.steps.summary import StepSummary
    from steplens.run import Run
    from steplens.trace.trace import Trace

TRUNCATED = "truncated"
LIMITED = "expansion_limit"
#: findings of the advice that a summary has room for
_ADVICE = 3
#: calls that are named of a phase
_NAMED_CALLS = 3

#: what operators can be grouped by, and the column of the ``ops`` table that must hold something for it
_GROUP_COLUMNS = {"module": "module", "shape": "input_shapes", "stack": "stack"}


class By(str, enum.Enum):
    """What operators are grouped by."""

    name = "name"
    shape = "shape"
    stack = "stack"
    module = "module"


#: ranks of which a part differs by this share of a step are shown beside each other, as on the first page
_APART = 0.15
#: so many operations are named with their bandwidth
_OPERATIONS = 3
#: calls per step of two means that differ by no more are the same
_SAME_CALLS = 1e-6
#: of more ranks the figures of each take longer than the rest of the summary
_COMPARED_RANKS = 64
_MEANS = ("host_mean_ns", "device_mean_ns", "step_mean_ns")
_NO_PARTS = ("step_time_ns", "quartiles_ns", "host_ns", "device_ns", *_MEANS)


def summary(
    path: InputPath,
    by: Annotated[
        By, typer.Option(metavar="GROUP", help="What operators are grouped by: name, shape, stack or module.")
    ] = By.name,
    top: Annotated[int, typer.Option(min=1, metavar="N", help="How many operators to show, the longest first.")] = 10,
    scheduler: Scheduler = "",
    json: Json = False,
) -> None:
    """Show where each step's time went, the top operators, the memory peak and what is doubtful about the data."""
    try:
        refuse_hopeless(path)
        from steplens.cli.summary.kept_summary import find_summary, keep_summary

        run, figures = None, find_summary(path, by.value, top)
        if figures is None:
            run = open_with_progress(path, scheduler=scheduler)
            with show_work("analysing"):
                figures = collect_summary(run, path, by.value, top)
    except SteplensError as error:
        if json:
            print_json({"path": str(path), "problem": str(error)})
        raise
    if json:
        fields = {field.name: getattr(figures, field.name) for field in dataclasses.fields(figures)}
        print_json({**fields, "steps": list(figures.steps)})
    else:
        from steplens.cli.summary.summary_text import show_summary

        show_summary(figures, by.value, next_commands(figures, by.value))
    if run is not None:
        keep_timelines(run)
        keep_summary(run, figures, by.value, top)
    if figures.problem:
        raise InputError(path, figures.problem)


def collect_summary(run: Run, path: Path, by: str, top: int) -> Summary:
    """Ask ``run`` for everything the summary shows."""
    from steplens.advice.prepare import prepare_answers
    from steplens.analysis.verdict_words import OF_THE_HOST
    from steplens.cli.summary.kept_summary import list_results
    from steplens.trace.building.checks.ranks import recorded_ranks

    prepare_answers(run)
    accelerator = any(trace.has_accelerator for trace in run.traces)
    # device work can be told apart without steps; a CPU's trace without them shows operators only
    steps = run.steps(whole_trace_without_steps=accelerator)
    # of a step, as in the table and on the pages
    operators, basis = _operators_of_verdict(run, by)
    verdict = verdict_row(run)
    device_ns = float(operators["device_self_ns"].sum())
    order = "self_ns"
    if accelerator and device_ns > 0 and verdict["kind"] not in OF_THE_HOST:
        order = "device_self_ns"
        operators = operators.sort(order, descending=True, maintain_order=True)
    health = run.health().to_dicts()
    pipeline = pipeline_rows(run)
    results, unfinished = list_results(source.path for source in run.sources)
    ranks, job_ranks = recorded_ranks(run.traces)
    rank_steps = _unlike_rank_steps(run)
    # of ranks that are unlike, what the first one called
    callers: tuple[Sequence[Trace], Mapping[str, Any]] = (run.traces, run.step_summary().host)
    if rank_steps:
        callers = ([trace for trace in run.traces if trace.rank == rank_steps[0]["rank"]], rank_steps[0])
    return Summary(
        path=str(path),
        verdict=verdict,
        step=_step_figures(run, steps),
        phase_names=_phase_names(*callers),
        steps=FrameRows(steps),
        operators=operators.head(top).to_dicts(),
        operator_count=operators.height,
        order=order,
        self_ns=float(operators["self_ns"].sum()),
        device_self_ns=device_ns,
        basis=basis,
        memory=run.memory().to_dicts(),
        health=health,
        recorded=[By.name.value, *(kind for kind, column in _GROUP_COLUMNS.items() if _is_recorded(run, column))],
        results=results,
        unfinished=unfinished,
        advice=_advice_rows(run),
        accelerator=accelerator,
        problem=_describe_problem(steps.height, _is_recorded(run, "id"), health, bool(pipeline)),
        pipeline=pipeline,
        recorded_ranks=len(ranks),
        unreadable=unreadable_rows(run),
        job_ranks=job_ranks,
        rank_steps=rank_steps,
        job=_job_figures(run) if len(ranks) > 1 else {},
    )


def _job_figures(run: Run) -> dict[str, Any]:
    """How a job is laid out, and how fast its collectives and messages are."""
    import polars as pl

    layout = run.parallel_layout().drop_nulls("data").to_dicts()
    rates = run.bus_bandwidth().drop_nulls("bus_bytes_per_s")
    heaviest = rates.sort(pl.col("message_bytes") * pl.col("measured"), "bus_bytes_per_s", descending=True)
    rows = heaviest.unique("operation", keep="first", maintain_order=True).head(_OPERATIONS).to_dicts()
    return {"layout": layout[0] if layout else None, "bandwidths": rows}


def _operators_of_verdict(run: Run, by: str) -> tuple[pl.DataFrame, str]:
    """The operators of a step, and what they are of; where ranks call different ones, of the rank that the verdict names."""
    operators = run.table("operators", by, per_step=True)
    rank = run.verdict().rank
    of_rank = [(source, trace) for source, trace in zip(run.sources, run.traces, strict=True) if trace.rank == rank]
    if rank is None or len(of_rank) in (0, len(run.traces)):
        return operators, run.step_basis()
    rank_run = type(run)(run.path, of_rank, [])
    of_rank_alone = rank_run.table("operators", by, per_step=True)
    # a mean over ranks that call unlike often is of none of them
    if abs(float(operators["calls"].sum()) - float(of_rank_alone["calls"].sum())) <= _SAME_CALLS:
        return operators, run.step_basis()
    return of_rank_alone, f"rank {rank} alone, {rank_run.step_basis()}"


def verdict_row(run: Run) -> dict[str, Any]:
    """The fields of the verdict on a run, but for its summary, and its sentence."""
    verdict = run.verdict()
    fields = {field.name: getattr(verdict, field.name) for field in dataclasses.fields(verdict) if field.name != "summary"}
    return {"sentence": verdict.sentence(), **fields}


def _step_figures(run: Run, steps: pl.DataFrame) -> dict[str, Any]:
    """The figures of a step; of a trace without steps those of the whole trace."""
    from steplens.analysis.operators.recording_cost import step_without_recording

    summary = run.step_summary()
    if not summary.steps and steps.height:
        row = steps.row(0, named=True)
        figures_of_trace = {
            **dict.fromkeys(("host_ns", "host_mean_ns"), row["duration_ns"]),
            **dict.fromkeys(("device_ns", "device_mean_ns"), row["device_period_ns"]),
            "step_mean_ns": row["step_time_ns"],
            "steps": 0,
            "of": "the whole trace",
        }
        return {**row, **figures_of_trace, "long_steps": [], "queue_wait": {}}
    return {**_to_figures(summary), "without_recording_ns": step_without_recording(run.traces, summary)}


def _to_figures(summary: StepSummary) -> dict[str, Any]:
    names = ("steps", "distinct", "ranks", "device_steps", "step_time_ns", "quartiles_ns", "host_ns", "device_ns", "differs")
    more = ("gradient_sync_ns", "overlapped_communication_ns", "behind", "queue_wait", "usual_steps")
    figures = {name: getattr(summary, name) for name in (*names, *more, *_MEANS)}
    figures |= {name: list(getattr(summary, name)) for name in ("usual", "usual_on_device", "outliers")}
    figures["long_steps"] = [dataclasses.asdict(entry) for entry in summary.long_steps]
    return {**figures, "of": summary.sentence(), **summary.host, **summary.device}


def _unlike_rank_steps(run: Run) -> list[dict[str, Any]]:
    """The steps of two ranks that spend them unlike each other, as the first page shows them; none where ranks are alike."""
    from steplens.analysis.steps.summary import summarize_steps
    from steplens.analysis.tools.parallel import by_rank

    ranks = by_rank(run.traces)
    if not 1 < len(ranks) <= _COMPARED_RANKS:
        return []
    figures = [{"rank": rank, **_to_figures(summarize_steps(windows))} for rank, windows in ranks.items()]
    figures = [row for row in figures if row["step_time_ns"]]
    if len(figures) < 2:
        return []
    parts = [name for name in figures[0] if name.endswith("_ns") and name not in _NO_PARTS]

    def share_of(row: dict[str, Any], name: str) -> float:
        return float(row.get(name) or 0.0) / float(row["step_mean_ns"])

    named_rank = run.verdict().rank
    slow = [row for row in figures if named_rank is not None and row["rank"] == named_rank]
    first = (slow or sorted(figures, key=lambda row: share_of(row, "exposed_communication_ns")))[0]
    rest = [row for row in figures if row is not first]
    apart = [max(abs(share_of(row, name) - share_of(first, name)) for name in parts) for row in rest]
    most = max(apart)
    return [first, rest[apart.index(most)]] if slow or most > _APART else []


def _phase_names(traces: Sequence[Trace], host: Mapping[str, Any]) -> list[dict[str, str]]:
    """The calls outside of forward, backward and optimizer that take the most of a step, one entry per phase.

    Args:
        traces: whose calls.
        host: the phases of a step of these.
    """
    import polars as pl

    from steplens.analysis.steps.phases import BETWEEN, DEVICE_WAIT, host_phase_names
    from steplens.analysis.steps.summary import usual_step_times
    from steplens.analysis.tools.joined_rows import join_rows
    from steplens.cli.text.bars import BETWEEN_PHASES
    from steplens.cli.text.text import duration

    rows = join_rows(trace.once(host_phase_names).join(usual_step_times(trace), on="step", how="semi") for trace in traces)
    sums = rows.group_by("phase", "name").agg(pl.col("time_ns").sum())
    # parts of the figure of the phase, which is a mean over the usual steps
    of_a_step = {BETWEEN: host.get("between_ns", 0.0), DEVICE_WAIT: host.get("device_wait_ns", 0.0)}
    sums = sums.sort("time_ns", "name", descending=[True, False])
    phases = []
    for phase in sums["phase"].unique(maintain_order=True).to_list():
        calls = sums.filter(pl.col("phase") == phase)
        scale = of_a_step[phase] / float(calls["time_ns"].sum())
        largest = calls.head(_NAMED_CALLS).select("name", "time_ns").iter_rows()
        largest_text = ", ".join(f"{name} {duration(time * scale)}" for name, time in largest)
        phases.append({"phase": BETWEEN_PHASES if phase == BETWEEN else phase, "names": f"{largest_text} a step"})
    return phases


def _advice_rows(run: Run) -> list[dict[str, str]]:
    from steplens.advice import advise
    from steplens.advice.finding import LOW
    from steplens.advice.judging.order import is_worth_saying
    from steplens.advice.texts import ENGLISH
    from steplens.advice.words import Words
    from steplens.cli.text.advise_text import finding_headline

    words = Words(ENGLISH)
    # the first one is about the verdict where any is
    findings = advise(run).findings
    matter = [finding for finding in findings if finding.level != LOW or (finding is findings[0] and is_worth_saying(finding))]
    return [{"id": one.id, "level": one.level, "text": finding_headline(one, words)} for one in matter[:_ADVICE]]


def _is_recorded(run: Run, column: str) -> bool:
    from steplens.analysis.operators.operators import filled_columns

    return any(column in filled_columns(trace) for trace in run.traces)


def problem_of_health(findings: Iterable[tuple[str, str]]) -> str:
    """Why what is shown is not all of the data, for the end of a command; empty where it is.

    Args:
        findings: check and message of what the health check says.
    """
    for check, message in findings:
        if check == LIMITED:
            return f"not all of it was read, what was read is shown: {message}"
        if TRUNCATED in check:
            return f"the data is truncated, what precedes the cut is shown: {message}"
    return ""


def _describe_problem(steps: int, operators: bool, health: list[dict[str, Any]], pipeline: bool) -> str:
    if problem := problem_of_health((str(finding["check"]), str(finding["message"])) for finding in health):
        return problem
    if not steps and not operators:
        return "" if pipeline else "there are no operators and no steps in it, so there is nothing to show"
    if not steps:
        return "there are no steps in it; record with a schedule and prof.step(), or with steplens run"
    return ""


def next_commands(found: Summary, by: str) -> list[str]:
    """What to try after this summary, most useful first."""
    path = shlex.quote(found.path)
    commands = [f"steplens view {path}"]
    commands += [f"steplens analyse {path}"] if found.unfinished else []
    commands += [f"steplens advise {path}"] if found.advice else []
    commands += [f"steplens summary {path} --by {kind}" for kind in _GROUP_COLUMNS if kind in found.recorded and kind != by]
    if len(found.recorded) == 1:
        commands.append("steplens run --record-shapes --with-modules --profile-memory SCRIPT, which records more")
    return commands[:3]
