"""``steplens open``: what a path holds, how each part of it is read and why, and whether the data can be trusted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steplens.cli.line.arguments import InputPath, Json, Scheduler
from steplens.cli.line.ending import next_commands, say_next
from steplens.cli.opening import keep_timelines, open_with_progress, show_work
from steplens.cli.text.text import console, duration, plain, print_json
from steplens.common.errors import SteplensError

if TYPE_CHECKING:
    from steplens.run import Run, Source
    from steplens.trace.trace import Trace

_COUNTED = ("ops", "python", "api", "task_queue", "kernels", "communication", "memory", "marks", "gc", "counters")
_OF_DEVICE = ("kernels", "communication")


def open_(
    path: InputPath,
    scheduler: Scheduler = "",
    json: Json = False,
) -> None:
    """Say what PATH holds: traces of PyTorch, captures of Ascend's or MindSpore's profiler, raw or analysed.

    Each trace is shown with how it is read and why, its rank, devices, steps and tables, and what is doubtful about it.
    """
    try:
        run = open_with_progress(path, scheduler=scheduler)
    except SteplensError as error:
        if json:
            print_json({"path": str(path), "problem": str(error)})
        raise
    with show_work("checking"):
        traces = [describe_trace(source, trace) for source, trace in zip(run.sources, run.traces, strict=True)]
        health = run.health().to_dicts()
    if json:
        from steplens.cli.text.unreadable_text import unreadable_rows

        unread = [{"path": str(item.path), "reason": item.reason} for item in run.unread]
        answer = {
            "path": str(path),
            "traces": traces,
            "unreadable": unreadable_rows(run),
            "not_read": unread,
            "health": health,
        }
        print_json(answer)
    else:
        _show_traces(run, traces, health)
    keep_timelines(run)


def describe_trace(source: Source, trace: Trace) -> dict[str, Any]:
    """One trace of a path.

    Returns:
        path, format, reason, ignored: see ``run.Source``; rank (of the process in its job; None when the source does not say);
        devices (what ran the device tasks, "CUDA 0", "CPU 0", with the product's name where the source knows it); steps (their
        numbers, in order); duration_ns (from the first recorded event to the last); rows (table -> how many rows, of the tables
        that hold events; no event is in two of them).
    """
    from steplens.trace.building.devices import cpu_is_device, device_names
    from steplens.trace.building.extents import table_extents

    # what the CPU computes and communicates are operator calls, which are counted once
    counted = [name for name in _COUNTED if name in trace and not (name in _OF_DEVICE and cpu_is_device(trace))]
    trace_extents = table_extents(trace)
    spans = [
        trace_extents[name] for name in ("ops", "python", "api", "kernels", "communication", "steps") if name in trace_extents
    ]
    first_ns = min((span.first_ns for span in spans if span.first_ns is not None), default=0)
    last_ns = max((span.last_ns for span in spans if span.first_ns is not None and span.last_ns is not None), default=0)
    return {
        "path": str(source.path),
        "format": source.format,
        "reason": source.reason,
        "ignored": source.ignored,
        "rank": trace.rank if trace.rank >= 0 else None,
        "devices": device_names(trace),
        "steps": _step_numbers(trace),
        "duration_ns": last_ns - first_ns,
        "rows": {name: trace_extents[name].rows for name in counted if trace_extents[name].rows},
    }


def _step_numbers(trace: Trace) -> list[int]:
    steps = trace.steps
    if steps is not None:
        return steps["id"].to_list()
    from steplens.analysis.steps.given_steps import given_steps

    return given_steps(trace)["step"].to_list()


def _show_traces(run: Run, traces: list[dict[str, Any]], health: list[dict[str, Any]]) -> None:
    from rich.text import Text

    from steplens.cli.text.health_text import show_health
    from steplens.cli.text.unreadable_text import show_unreadable, unreadable_rows

    out = console()
    trace_count = len(traces) + len(run.unreadable)
    # printed at once: to print is more work than what is printed
    header = [plain(f"{run.path}: {trace_count} trace{'s' if trace_count > 1 else ''}", "bold")]
    for trace in traces:
        header.append(plain(""))
        rank = f"rank {trace['rank']}" if trace["rank"] is not None else "rank unknown"
        header.append(plain(trace["path"], "cyan"))
        lines = [
            f"{trace['format']}, because {trace['reason']}",
            f"{rank}, {', '.join(trace['devices']) or 'no device'}, {_describe_steps(trace['steps'])}, "
            f"{duration(trace['duration_ns'])} recorded",
            "tables: " + ", ".join(f"{name} {count}" for name, count in trace["rows"].items()),
        ]
        if trace["ignored"]:
            lines.append(f"not read: {', '.join(trace['ignored'])}")
        header += [plain(f"  {line}") for line in lines]
    out.print(Text("\n").join(header), soft_wrap=True)
    show_unreadable(out, unreadable_rows(run))
    if run.unread:
        from steplens.readers.unread import abbreviate_names, group_by_reason

        out.print()
        out.print(plain("Not read", "bold"))
        for folder, reason, names in group_by_reason(run.unread):
            out.print(plain(f"  {folder}: {abbreviate_names(names)}: {reason}"), soft_wrap=True)
    show_health(out, health)
    say_next(next_commands(run.path, "summary"))


def _describe_steps(steps: list[int]) -> str:
    if not steps:
        return "no steps"
    if len(steps) == 1:
        return f"step {steps[0]}"
    return f"{len(steps)} steps ({min(steps)} to {max(steps)})"
