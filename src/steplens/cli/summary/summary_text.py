"""The summary as text: bars, tables and findings that fit the terminal, with or without colours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from steplens.analysis.step_words import CUT_WINDOW, RUN_AHEAD, THROTTLED, number_ranges
from steplens.analysis.verdict_words import collective_name
from steplens.cli.line.ending import say_next
from steplens.cli.text.bars import DEVICE, PHASES, Segment, legend_lines, split_backward, split_rest, step_bar
from steplens.cli.text.health_text import show_health
from steplens.cli.text.pipeline_text import show_pipeline
from steplens.cli.text.text import console, duration, estimated_duration, plain, share, size
from steplens.cli.text.unreadable_text import show_unreadable

if TYPE_CHECKING:
    from steplens.cli.line.ending import say_next
from steplens.cli.summary.rows import Summary

MAX_STEPS = 16
#: peaks of memory that are shown, of as many ranks and devices
MAX_PEAKS = 16
MIN_BAR = 8
NARROW = 70
#: a wait that is a smaller share of the host's time is not named
LEAST_WAIT = 0.005
_MEAN = "mean of "
#: in the order in which they are told
_LAYOUT_KINDS = ("data", "tensor", "pipeline", "context")
#: where mean and median of a step differ by more than this share, both are told
_APART = 0.02
#: of what a side lacks to the step so much is told, with these words; its bar ends before the step does
_LEAST_LEFT = 0.005
_LEFT = {
    "host": Segment("", "ahead of the device", " ", ""),
    "device": Segment("", "before and after the device period", " ", ""),
}

HOST_NOT_RECORDED = (
    "the operators that the training thread calls were not recorded: forward, backward, optimizer and Python are not told apart"
)
_KEYS = ("input_shapes", "stack")
_NOT_RECORDED = {
    "module": "No modules were recorded: with_modules=True or --with-modules records them.",
    "shape": "No shapes were recorded: record_shapes=True or --record-shapes records them.",
    "stack": "No stacks were recorded: with_stack=True or --with-stack records them.",
}
_NUMBERS: dict[str, Callable[[dict[str, Any], Summary], str]] = {
    "calls": lambda row, _: f"{row['calls']:.1f}".removesuffix(".0"),
    "self": lambda row, _: duration(row["self_ns"]),
    "share": lambda row, found: share(row[found.order] or 0, found.device_self_ns if _by_device(found) else found.self_ns),
    "total": lambda row, _: duration(row["total_ns"]),
    "device": lambda row, _: duration(row["device_self_ns"] or 0),
}
#: the columns in the order of a table by self time, and of one by device time; in a narrow window the two that matter
_BY_SELF, _BY_DEVICE = ("calls", "self", "share", "total", "device"), ("calls", "device", "share", "self", "total")


def _by_device(found: Summary) -> bool:
    return found.order == "device_self_ns"


def show_summary(found: Summary, by: str, next_commands: Sequence[str]) -> None:
    """Print the whole summary on stdout."""
    out = console()
    out.print(plain(found.path, "bold"), soft_wrap=True)
    _print_wrapped(out, plain(found.verdict["sentence"], "bold"), 0)
    if 0 < found.recorded_ranks < found.job_ranks:
        which = f"{found.recorded_ranks} of {found.job_ranks} ranks were recorded"
        _print_wrapped(out, plain(f"{which}: whom they wait for, and which rank is late, is not known"), 0)
    if line := _job_line(found.job):
        _print_wrapped(out, plain(line), 0)
    show_unreadable(out, found.unreadable)
    _show_steps(out, found)
    _show_operators(out, found, by)
    _show_memory(out, found.memory)
    show_pipeline(out, found.pipeline)
    _show_advice(out, found.advice)
    show_health(out, found.health)
    out.print()
    for folder in found.results:
        out.print(Text("results: ", "dim") + plain(folder), soft_wrap=True)
    say_next(next_commands)


def _job_line(job: dict[str, Any]) -> str:
    """How a job is laid out and how fast it communicates; empty where neither is known."""
    layout, bandwidths = job.get("layout"), job.get("bandwidths") or []
    parts = []
    if layout:
        sizes = " x ".join(f"{layout[kind]} {kind}" for kind in _LAYOUT_KINDS if layout[kind] > 1 or kind == "data")
        parts.append(f"{layout['ranks']} ranks: {sizes} parallel")
    rates = []
    for row in bandwidths:
        # a message between two ranks has both of its operations as its name
        operation = row["operation"] if "/" in row["operation"] else collective_name(row["operation"])
        message = f"{size(row['message_bytes'])}, {row['ranks']} ranks"
        rates.append(f"{operation} {row['bus_bytes_per_s'] / 1e9:.3g} GB/s ({message})")
    if rates:
        parts.append(f"bus bandwidth: {', '.join(rates)}")
    return "; ".join(parts)


def _show_steps(out: Console, found: Summary) -> None:
    steps = found.steps
    if not steps:
        return
    slowest: list[dict[str, Any]] = [split_rest(split_backward(step), "duration_ns") for step in _slowest_steps(steps)]
    colour = out.color_system is not None and not out.no_color
    out.print()
    if any(step["step"] is None for step in steps):
        out.print(
            plain("No steps were recorded: this is the whole trace, from its first call or device task to its last", "bold")
        )
    else:
        _show_step_time(out, found, len(slowest))
    labels = [
        part + (f"step {step['step']}" if step["step"] is not None else "whole trace")
        for part, step in zip(_part_labels(slowest, steps), slowest, strict=True)
    ]
    times = [duration(step["step_time_ns"]) for step in slowest]
    left = max(map(len, labels)) + max(map(len, times)) + 2
    width = max(out.width - left - 3, MIN_BAR)
    longest = max(max(step["duration_ns"] or 0, step["device_period_ns"] or 0) for step in slowest)
    has_host = any(step["python_ns"] is not None or step["host_rest_ns"] for step in slowest)
    has_device = any(step["device_period_ns"] is not None for step in slowest)
    for step, label, time in zip(slowest, labels, times, strict=True):
        head = Text(f"{label}{time.rjust(left - len(label))}  ")
        for segments, is_there in ((PHASES, has_host), (DEVICE, has_device)):
            if is_there:
                line = head + step_bar(step, segments, longest, width, colour=colour)
                # beside a step that takes long, one that takes no time has no cell
                line.rstrip()
                out.print(line, no_wrap=True, overflow="crop")
                head = Text("device".rjust(left) + "  ", "dim")
    mean_step: dict[str, Any] = split_rest(split_backward(found.step), "host_mean_ns")
    if found.rank_steps:
        for step in found.rank_steps:
            slow = ", which the others wait for" if step["rank"] == found.verdict.get("rank") else ""
            lengths = f": {lengths_text}" if (lengths_text := _lengths_text(step)) else ""
            _print_wrapped(out, plain(f"rank {step['rank']}{slow}{lengths}", "dim"), 0)
            _show_shares(out, split_rest(split_backward(step), "host_mean_ns"), colour=colour)
    else:
        _show_shares(out, mean_step, colour=colour)
        # also where the verdict's shares are of the step, and would seem to contradict those of the device
        if found.step["steps"] and (lengths_text := _lengths_text(found.step)):
            _print_wrapped(out, plain(f"shares are of {'the ' * lengths_text.startswith(_MEAN)}{lengths_text}", "dim"), 8)
    if has_host or has_device:
        _print_wrapped(out, plain("a bar has the shares of its step, not the order in which they ran", "dim"), 8)
    of_rank = f"rank {found.rank_steps[0]['rank']} " if found.rank_steps else ""
    for phase in found.phase_names:
        _print_wrapped(out, plain(f"{of_rank}{phase['phase']}: {phase['names']}"), 8)


def _show_shares(out: Console, step: dict[str, Any], *, colour: bool) -> None:
    """The legend of the bars with the shares of a step, of host and device, and what these lack of it."""
    for name, segments in (("host", PHASES), ("device", DEVICE)):
        used = [segment for segment in segments if step.get(segment.column)]
        base_ns = _base_ns(step, name)
        if used and base_ns:
            shares = [share(step[segment.column] or 0, base_ns) for segment in used]
            left_ns = base_ns - step[f"{name}_mean_ns"]
            if left_ns > _LEAST_LEFT * base_ns:
                used, shares = [*used, _LEFT[name]], [*shares, share(left_ns, base_ns)]
            _print_hanging(out, name.ljust(8), legend_lines(used, shares, out.width - 8, colour=colour))
            if name == "host" and step.get("queue_wait"):
                _print_wrapped(out, plain(_queue_text(step)), 8)
            if name == "host" and step.get("host_rest_ns"):
                _print_wrapped(out, plain(HOST_NOT_RECORDED, "dim"), 8)
        else:
            _print_hanging(out, name.ljust(8), [plain("not recorded", "dim")])


def _base_ns(step: dict[str, Any], side: str) -> float:
    """What shares of the parts of a side are of: its mean length; where host and device differ the step, as in the verdict."""
    mean_ns = float(step.get(f"{side}_mean_ns") or 0.0)
    return max(float(step.get("step_mean_ns") or 0.0), mean_ns) if mean_ns and step.get("differs") else mean_ns


def _lengths_text(step: dict[str, Any]) -> str:
    """What shares of host and device are of: means of the steps whose parts are told, and the medians where these differ."""
    sides = [(side, steps) for side, steps in (("host", step["usual"]), ("device", step["usual_on_device"])) if steps]
    if not sides:
        return ""
    # a side that is shorter than the step has no median that the step could differ from
    bases = [(_base_ns(step, side), step[f"{side}_mean_ns"], step[f"{side}_ns"]) for side, _ in sides]
    means = [(base_ns, median_ns if base_ns == mean_ns else base_ns) for base_ns, mean_ns, median_ns in bases]
    is_apart = any(abs(mean - median) > _APART * median for mean, median in means)
    texts = [duration(mean) + (f" (median {duration(median)})" if is_apart else "") for mean, median in means]
    which = [_usual_words(step, steps) for _, steps in sides]
    if len(set(texts)) == 1 and len(set(which)) == 1:
        return f"{which[0]}, {texts[0]}"
    if len(set(which)) == 1:
        return f"{which[0]}, " + " and ".join(f"{text} on the {side}" for text, (side, _) in zip(texts, sides, strict=True))
    return " and ".join(f"{name}, {text} on the {side}" for name, text, (side, _) in zip(which, texts, sides, strict=True))


def _usual_words(step: dict[str, Any], steps: Sequence[int]) -> str:
    """``mean of steps 3-12`` or ``step 3``."""
    if step["ranks"] > 1 and 0 < step["usual_steps"] < step["steps"]:
        return f"{_MEAN}{step['usual_steps']} of {step['steps']} steps on {step['ranks']} ranks"
    text = f"step{'s' if len(steps) > 1 else ''} {number_ranges(steps)}"
    on_ranks = f" on {step['ranks']} ranks" if step["ranks"] > 1 else ""
    return f"{_MEAN}{text}{on_ranks}" if len(steps) > 1 or on_ranks else text


def _queue_text(step: dict[str, Any]) -> str:
    """How long the host waits for a place in the queue of the device, in which phases, and how long it works itself."""
    waits: dict[str, float] = step["queue_wait"]
    labels = {segment.column: segment.label for segment in PHASES} | {"backward_ns": "backward"}
    host_ns: float = step["host_mean_ns"]
    parts = [f"{duration(length)} of {labels[name]}" for name, length in waits.items() if length >= LEAST_WAIT * host_ns]
    waits_ns = sum(waits.values())
    own_work = duration(host_ns - waits_ns)
    in_phases = f" ({', '.join(parts)})" if parts else ""
    return (
        f"of that {duration(waits_ns)} waiting for the device, whose queue is full{in_phases}; the host's own work is {own_work}"
    )


def _show_step_time(out: Console, found: Summary, shown: int) -> None:
    """How long a step takes, of which steps that is, and why host and device differ where they do."""
    step = found.step
    low, high = step["quartiles_ns"]
    spread = f" (quartiles {duration(low)} to {duration(high)})" if step["distinct"] > 1 else ""
    _print_wrapped(out, plain(f"A step takes {duration(step['step_time_ns'])}{spread}: {step['of']}", "bold"), 0)
    if step["differs"]:
        why = {
            RUN_AHEAD: "the host issues its work faster than the device does it",
            THROTTLED: "perhaps the host waits for the device's queue in some steps",
            CUT_WINDOW: "the device period begins with the first work of a step, and the last one ends with its last work",
        }[step["differs"]]
        _print_wrapped(
            out, plain(f"{duration(step['host_ns'])} on the host, {duration(step['device_ns'])} on the device: {why}"), 2
        )
    if step["without_recording_ns"]:
        low, high = (estimated_duration(ns) for ns in step["without_recording_ns"])
        without = f"without the profiler a step takes about {low} to {high}; figures below are of the recorded one"
        _print_wrapped(out, plain(without), 2)
    if step["device_steps"] and step["device_steps"] < step["steps"]:
        _print_wrapped(out, plain(f"of {step['device_steps']} of these {step['steps']} steps the device was recorded"), 2)
    for entry in step["long_steps"]:
        of = "" if entry["rank"] is None else f" of rank {entry['rank']}"
        long_text = f"step {entry['step']}{of} takes {duration(entry['step_time_ns'])}, {entry['factor']:.1f} times the median"
        _print_wrapped(out, plain(long_text), 2)
    if step["outliers"]:
        which = f"step{'s' if len(step['outliers']) > 1 else ''} {number_ranges(step['outliers'])}"
        _print_wrapped(out, plain(f"outliers ({which}) count in that median, not in the parts below (means)"), 2)
    if shown < len(found.steps):
        _print_wrapped(out, plain(f"{len(found.steps)} steps were recorded, the {shown} slowest are shown"), 2)


def _show_advice(out: Console, advice: list[dict[str, str]]) -> None:
    if advice:
        out.print()
        out.print(plain("Advice", "bold"))
        for number, finding in enumerate(advice, 1):
            _print_wrapped(out, plain(f"{number}. {finding['text']}"))


def _slowest_steps(steps: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """The slowest steps in the order in which they ran."""
    if len(steps) <= MAX_STEPS:
        return steps
    limit = sorted((step["step_time_ns"] for step in steps), reverse=True)[MAX_STEPS - 1]
    return [step for step in steps if step["step_time_ns"] >= limit][:MAX_STEPS]


def _part_labels(labelled: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]]) -> list[str]:
    """Which part of several each of some rows is of: ``rank 3 ``, or ``window 2 ``, the number of the run directory by name.

    Args:
        labelled: which of the rows.
        rows: all that there are.
    """
    windows = {(row["rank"], row["window"]) for row in rows if "window" in row}
    ranks = {rank for rank, _ in windows}
    names = sorted({window for _, window in windows})
    labels = []
    for row in labelled:
        words = [f"rank {row['rank']} "] if len(ranks) > 1 else []
        if len(windows) > len(ranks):
            words.append(f"window {names.index(row['window']) + 1} ")
        labels.append("".join(words))
    return labels


def _print_hanging(out: Console, head: str, lines: Sequence[Text]) -> None:
    for number, line in enumerate(lines):
        out.print(Text(head if number == 0 else " " * len(head), "dim") + line, no_wrap=True, overflow="crop")


def _print_wrapped(out: Console, text: Text, indent: int = 2) -> None:
    """Print ``text`` some cells to the right, without spaces at the ends of its lines."""
    lines = [*text.wrap(out, max(out.width - indent, 20))]
    for line in lines:
        line.rstrip()
    _print_hanging(out, " " * indent, lines)


def _show_operators(out: Console, found: Summary, by: str) -> None:
    if by not in found.recorded:
        out.print()
        _print_wrapped(out, plain(_NOT_RECORDED[by]))
    if not found.operators:
        return
    out.print()
    wide = out.width >= NARROW
    counted = f"{len(found.operators)} of {found.operator_count}, by {by}"
    by_device = _by_device(found)
    sort = "device time" if by_device else "self time"
    out.print(plain(f"Operators by {sort}, {found.basis}: {counted}", "bold"))
    key = next((column for column in _KEYS if column in found.operators[0] and by in found.recorded), None)
    columns = [column for column in (_BY_DEVICE if by_device else _BY_SELF) if found.accelerator or column != "device"]
    columns = columns if wide else columns[1:3]
    numbers = [[_NUMBERS[column](row, found) for column in columns] for row in found.operators]
    widths = [max(len(column), *(len(row[index]) for row in numbers)) for index, column in enumerate(columns)]
    room = max(out.width - sum(widths) - 2 * len(widths), 10)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for title in ["module" if by == "module" else "operator"] + ([by] if key is not None else []):
        table.add_column(title, no_wrap=True, overflow="ellipsis", max_width=room if key is None else max(room // 2 - 1, 8))
    for column, width in zip(columns, widths, strict=True):
        table.add_column(column, justify="right", no_wrap=True, min_width=width)
    for row, cells in zip(found.operators, numbers, strict=True):
        names = [plain(row["name"] or "", "cyan")] + ([plain(row[key] or "")] if key is not None else [])
        table.add_row(*names, *map(plain, cells))
    for line in out.render_lines(table, pad=False):
        out.print(Text.assemble(*((segment.text, segment.style or "") for segment in line)), no_wrap=True, overflow="crop")


def _show_memory(out: Console, memory: list[dict[str, Any]]) -> None:
    if not memory:
        return
    out.print()
    out.print(plain("Memory peak", "bold"))
    highest = memory
    if len(memory) > MAX_PEAKS:
        highest = sorted(memory, key=lambda row: -(row["peak_allocated"] or 0))[:MAX_PEAKS]
        _print_wrapped(out, plain(f"of {len(memory)} peaks of ranks and devices the {MAX_PEAKS} highest are shown"), 2)
    for part, row in zip(_part_labels(highest, memory), highest, strict=True):
        name = row["device_type"] if row["device"] in (None, -1) else f"{row['device_type']} {row['device']}"
        peak = f"{size(row['peak_allocated'] or 0)} allocated at the peak"
        allocations_text = f"{row['allocations']} allocations of {size(row['allocated_bytes'])} in all"
        _print_wrapped(out, plain(f"{part}{name}: {peak}, {allocations_text}"))
