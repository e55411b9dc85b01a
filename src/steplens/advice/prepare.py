"""What summary and advice ask of each of many small traces, worked out in several processes at once where that is worth it.

The processes beside this one run this module. What they answer takes the place of what this process would work out; asked about
a trace alone, nothing else changes, so that an answer that does not come is worked out when it is needed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.judging.asking import findings_of, is_small, judge_once
from steplens.advice.registry import built_in_rules
from steplens.analysis.operators.operators import operators_by_name
from steplens.analysis.steps.phases import host_phase_names
from steplens.analysis.steps.times import times_of_steps
from steplens.common.worker_processes import SharedTasks, serve_tasks
from steplens.run import Run, open_run
from steplens.trace.trace import Trace

#: so many take longer than a process takes to start, however small they are
_MANY_TRACES = 64
#: what is asked of every trace, by the name under which the answer is sent
_FRAMES: dict[str, Callable[[Trace], pl.DataFrame]] = {
    "times": times_of_steps,
    "phase_names": host_phase_names,
    "operators": operators_by_name,
}


def prepare_answers(run: Run) -> None:
    """Work out what summary and advice ask of each trace of a run, in several processes where there are many small ones.

    Args:
        run: as it was opened; of one that is only a part of another, or whose tables are not kept, nothing is worked out.
    """
    first = run.traces[0] if run.traces else None
    if first is None or len(run.traces) < 2 or first.once(_is_prepared):
        return
    first.replace(_is_prepared, True)
    if set(first.companions) != set(run.traces) or not all(trace.kept is not None and is_small(trace) for trace in run.traces):
        return
    prints = [trace.kept.fingerprint for trace in run.traces if trace.kept is not None]
    request = {"path": os.fsdecode(run.path), "fingerprints": prints}
    tasks = SharedTasks(len(prints), "steplens.advice.prepare", request, at_once=len(prints) >= _MANY_TRACES)

    def work_out(number: int) -> None:
        _work_out(run.traces[number])

    for number, answer in tasks.run(work_out).items():
        _take_answer(run.traces[number], answer)


def _is_prepared(_: Trace) -> bool:
    """Whether what is asked of this run was worked out."""
    return False


def _work_out(trace: Trace) -> dict[str, pl.DataFrame]:
    """Ask a trace for everything; the answers stay with it. What fails is asked again, and fails, where it matters."""
    frames = {}
    for name, make in _FRAMES.items():
        with contextlib.suppress(Exception):  # the boundary of a question, as of a trace without steps
            frames[name] = trace.once(make)
    facts = Facts(trace)
    for rule in built_in_rules():
        if rule.judge_run is None and rule.is_about(facts.device) and rule.applies([facts]):
            with contextlib.suppress(Exception):  # the boundary of a rule
                judge_once(rule, facts)
    return frames


def _start_worker(request: Any) -> Callable[[int], dict[str, Any]]:
    traces: Sequence[Trace] = open_run(Path(request["path"])).traces
    fingerprints: list[str] = request["fingerprints"]

    def answer_for_trace(number: int) -> dict[str, Any]:
        trace = traces[number]
        if len(traces) != len(fingerprints) or trace.kept is None or trace.kept.fingerprint != fingerprints[number]:
            raise ValueError("it has changed meanwhile")
        frames = _work_out(trace)
        findings = {name: list(map(dataclasses.asdict, of_rule)) for (name, _), of_rule in findings_of(trace).items()}
        return {"frames": {name: _to_ipc_stream(frame) for name, frame in frames.items()}, "findings": findings}

    return answer_for_trace


def _to_ipc_stream(frame: pl.DataFrame) -> bytes:
    content = io.BytesIO()
    frame.write_ipc_stream(content)
    return content.getvalue()


def _take_answer(trace: Trace, answer: dict[str, Any]) -> None:
    """Let a trace answer what a process worked out about it."""
    for name, stream in answer["frames"].items():
        trace.replace(_FRAMES[name], pl.read_ipc_stream(stream))
    judges = {rule.name: rule.judge for rule in built_in_rules()}
    for name, findings in answer["findings"].items():
        findings_of(trace)[name, judges[name]] = tuple(map(_restore_finding, findings))


def _restore_finding(fields: dict[str, Any]) -> Finding:
    """A finding from its fields; no number of it becomes one of another type."""
    saving = None if fields["saving"] is None else Saving(**fields["saving"])
    evidence = [{**item, **{name: tuple(item[name]) for name in ("steps", "places", "places_ns")}} for item in fields["evidence"]]
    lists = {name: tuple(fields[name]) for name in ("lies_in", "ranks", "overlaps", "first")}
    return Finding(**{**fields, **lists, "saving": saving, "evidence": tuple(Evidence(**item) for item in evidence)})


if __name__ == "__main__":
    serve_tasks(_start_worker)
