"""Device time by call path, matched between two sides: what has other names below counts where the paths are still the same.

Kernels of two GPUs, of two versions of a library, of a fused and an unfused operator have different names. The operator that
launched them, or one above it, has the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from steplens.analysis.steps.times import chosen_step_times
from steplens.analysis.tools.groups import first_rows, number_groups
from steplens.analysis.tools.once import once_per_trace
from steplens.comparison.paths import ROOT, Numbers, PathTree, first_calls, number_labels, number_paths
from steplens.trace.trace import Trace

#: columns of ``DeviceTimeByPath.rows``
ROWS = {
    "name": pl.String(),
    "path": pl.String(),
    "module": pl.String(),
    "before_ns": pl.Float64(),
    "after_ns": pl.Float64(),
    "difference_ns": pl.Float64(),
    "before_launched_by": pl.String(),
    "after_launched_by": pl.String(),
}
#: columns of ``CallPaths.calls``
CALLS = {
    "name": pl.String(),
    "module": pl.String(),
    "depth": pl.Int64(),
    "parent": pl.Int64(),
    "calls": pl.Float64(),
    "self_ns": pl.Float64(),
    "device_ns": pl.Float64(),
}
#: those of them that add up
SUMS = ("calls", "self_ns", "device_ns")
_SEPARATOR = " > "
#: operators that are named where sides differ below a path
_NAMED = 3


@dataclass(frozen=True)
class DeviceTimeByPath:
    """What ``match_device_time`` finds.

    Attributes:
        rows: columns ``ROWS``, per step, the largest change first: the last operator of a path that both sides have, the path
            from the outermost operator, its module where that was recorded, device time of what is launched there and below on
            paths that the other side lacks, and which operators launched it.
        matched: share of the device time of both sides that has such a path, 0 to 1; None without device time of operators.
    """

    rows: pl.DataFrame
    matched: float | None


NO_DEVICE_TIME = DeviceTimeByPath(pl.DataFrame(schema=ROWS), None)


@dataclass(frozen=True)
class CallPaths:
    """The calls of a side, those with the same path in one row.

    Attributes:
        calls: columns ``CALLS``: the last operator of the path and its module ("" where none is known), how many operators are
            around it, the row of the path without it (-1 for none; rows lie behind that of their parent), and per step how often
            it was called, its self time, and the time of the device tasks that it launched itself.
        steps: of so many steps, those of each rank and recording; 1 where there are none, and sums are of whole recordings.
        kernel_ns: how long device tasks took in all of these together.
    """

    calls: pl.DataFrame
    steps: int
    kernel_ns: int


def match_device_time(before: CallPaths, after: CallPaths) -> DeviceTimeByPath:
    """Match the device time of two sides by call path, over the chosen steps, per step.

    A path is the names of the operators that call each other, with the module of the innermost one. Device time whose path the
    other side has not counts at the longest beginning of it that both have.

    Args:
        before: the call paths of the earlier side.
        after: those of the later one.
    """
    sides = (before, after)
    calls = pl.concat([side.calls.with_columns(side=pl.lit(number)) for number, side in enumerate(sides)])
    all_kernels_ns = sum(side.kernel_ns for side in sides)
    if not calls.height or not all_kernels_ns:
        return NO_DEVICE_TIME
    side_of = calls["side"].to_numpy()
    # rows of the later side lie behind those of the earlier one
    parent = calls["parent"].to_numpy() + np.where((side_of == 1) & (calls["parent"].to_numpy() >= 0), sides[0].calls.height, 0)
    tree = number_paths(parent, calls["depth"].to_numpy(), number_labels(_labels_of(calls)))
    times = np.stack([_sum_times(tree, calls, number) for number in range(len(sides))])
    places = _common_paths(tree, side_of)
    moved = np.zeros_like(times)
    has_place = places >= 0
    for number in range(len(sides)):
        np.add.at(moved[number], places[has_place], times[number, has_place])
    matched = float(sum(moved[number].sum() * side.steps for number, side in enumerate(sides))) / all_kernels_ns
    rows = _describe_paths(tree, calls, moved, times, places)
    return DeviceTimeByPath(rows, min(matched, 1.0))


def measure_paths(traces: Sequence[Trace]) -> CallPaths:
    """The call paths of a side, with what they took in the chosen steps of all its traces, per step; without steps in all."""
    steps = sum(chosen_step_times(trace).height for trace in traces)
    of_traces = [_paths_of_chosen(trace) if steps else _sum_paths(trace, pl.lit(True)) for trace in traces]
    calls = _mean_calls([paths.calls for paths in of_traces], max(steps, 1))
    return CallPaths(calls, max(steps, 1), sum(paths.kernel_ns for paths in of_traces))


@once_per_trace
def _paths_of_chosen(trace: Trace) -> CallPaths:
    """The call paths of a trace, with sums over its chosen steps."""
    return _sum_paths(trace, pl.col("step").is_in(chosen_step_times(trace)["step"].to_list()).fill_null(False))


def _sum_paths(trace: Trace, is_counted: pl.Expr) -> CallPaths:
    kernels = trace.required("kernels").filter(is_counted).select((pl.col("end_ns") - pl.col("start_ns")).sum()).collect()
    return CallPaths(_join_calls(_calls_of(trace, is_counted), are_recorded=True), 1, int(kernels.item() or 0))


def join_paths(sides: Sequence[CallPaths]) -> CallPaths:
    """The call paths of several sides as those of one, per step of all of them."""
    steps = sum(side.steps for side in sides)
    sums = [side.calls.with_columns(pl.col(*SUMS) * side.steps) for side in sides]
    return CallPaths(_mean_calls(sums, steps), steps, sum(side.kernel_ns for side in sides))


def _mean_calls(frames: Sequence[pl.DataFrame], steps: int) -> pl.DataFrame:
    """Paths with their sums, joined and divided by a number of steps."""
    moved, offset = [pl.DataFrame(schema=CALLS)], 0
    for frame in frames:
        # rows lie behind those of the frames before
        parent = pl.when(pl.col("parent") >= 0).then(pl.col("parent") + offset).otherwise(ROOT)
        moved.append(frame.with_columns(parent=parent))
        offset += frame.height
    return _join_calls(pl.concat(moved)).with_columns(pl.col(*SUMS) / steps)


def _calls_of(trace: Trace, is_counted: pl.Expr) -> pl.DataFrame:
    """A row per call, with ``CALLS``, names as they were recorded; what does not count has neither calls nor time."""
    counts = pl.when(is_counted)
    return (
        trace.required("ops")
        .select(
            "name",
            "module",
            depth=pl.col("depth").cast(pl.Int64),
            parent=pl.col("parent").cast(pl.Int64).fill_null(ROOT),
            calls=counts.then(1).otherwise(0).cast(pl.Float64),
            self_ns=counts.then(pl.col("self_ns")).otherwise(0).cast(pl.Float64),
            device_ns=counts.then(pl.col("device_self_ns")).otherwise(0).cast(pl.Float64),
        )
        .collect()
    )


def _join_calls(calls: pl.DataFrame, *, are_recorded: bool = False) -> pl.DataFrame:
    """The paths of calls, a row each, behind that of what is around it: a job has millions of calls, and thousands of paths.

    Args:
        calls: with ``CALLS``.
        are_recorded: they are of ``ops``, where each step and call of a range has its number behind its name.
    """
    if not calls.height:
        return pl.DataFrame(schema=CALLS)
    # what is called and where has few values, which are made texts once
    group, groups = number_groups(calls, ["name", "module"])
    name, module = pl.col("name").cast(pl.String), pl.col("module").cast(pl.String).fill_null("")
    labels = calls.select("name", "module")[np.maximum(first_rows(group, groups), 0)].select(
        name=name.str.replace(r"#\d+$", "") if are_recorded else name, module=module
    )
    tree = number_paths(calls["parent"].to_numpy(), calls["depth"].to_numpy(), number_labels(_labels_of(labels))[group])
    size = tree.parent_path.size
    sums = {name: np.bincount(tree.path_of_call, weights=calls[name].to_numpy(), minlength=size) for name in SUMS}
    first_call = first_calls(tree)
    rows = labels[group[first_call]].with_columns(depth=calls["depth"].gather(first_call), parent=pl.Series(tree.parent_path))
    return rows.with_columns(**{name: pl.Series(values) for name, values in sums.items()}).select(*CALLS)


def _labels_of(calls: pl.DataFrame) -> pl.Series:
    return calls.select(pl.concat_str("name", pl.lit("\0"), "module")).to_series()


def _sum_times(tree: PathTree, calls: pl.DataFrame, side: int) -> npt.NDArray[np.float64]:
    """Device time of a side launched at each path itself, ns per step."""
    own_ns = calls["device_ns"].to_numpy() * (calls["side"].to_numpy() == side)
    return np.bincount(tree.path_of_call, weights=own_ns, minlength=tree.parent_path.size).astype(np.float64)


def _common_paths(tree: PathTree, side_of: Numbers) -> Numbers:
    """Of each path the longest beginning of it that both sides have, itself perhaps; -1 where there is none."""
    on_side = np.zeros((2, tree.parent_path.size), bool)
    on_side[side_of, tree.path_of_call] = True
    place = np.where(on_side.all(axis=0), np.arange(tree.parent_path.size), ROOT)
    # paths are numbered from the outermost ones
    for path in np.flatnonzero(place == ROOT).tolist():
        outer = tree.parent_path[path]
        if outer >= 0:
            place[path] = place[outer]
    return place


def _describe_paths(
    tree: PathTree,
    calls: pl.DataFrame,
    moved: npt.NDArray[np.float64],
    times: npt.NDArray[np.float64],
    places: Numbers,
) -> pl.DataFrame:
    first_call = first_calls(tree)
    names = calls["name"].gather(first_call).to_list()
    modules = calls["module"].gather(first_call).to_list()
    launched: list[dict[int, dict[str, float]]] = [{}, {}]
    for side in range(2):
        for path in np.flatnonzero((times[side] > 0) & (places >= 0)).tolist():
            by_name = launched[side].setdefault(int(places[path]), {})
            by_name[names[path]] = by_name.get(names[path], 0.0) + float(times[side, path])
    rows = []
    for path in np.flatnonzero(moved.sum(axis=0) > 0).tolist():
        before_ns, after_ns = float(moved[0, path]), float(moved[1, path])
        row = {"name": names[path], "path": _path_text(tree, names, path), "module": modules[path]}
        row |= {"before_ns": before_ns, "after_ns": after_ns, "difference_ns": after_ns - before_ns}
        row |= {
            f"{side}_launched_by": _largest_names(launched[number].get(path, {}))
            for number, side in enumerate(("before", "after"))
        }
        rows.append(row)
    frame = pl.DataFrame(rows, schema=ROWS)
    return frame.sort(pl.col("difference_ns").abs(), pl.col("path"), descending=[True, False])


def _path_text(tree: PathTree, names: Sequence[str], path: int) -> str:
    path_names = []
    while path >= 0:
        path_names.append(names[path])
        path = int(tree.parent_path[path])
    return _SEPARATOR.join(reversed(path_names))


def _largest_names(times_ns: dict[str, float]) -> str:
    ordered = sorted(times_ns, key=lambda name: (-times_ns[name], name))
    return ", ".join(ordered[:_NAMED]) + (f" and {len(ordered) - _NAMED} more" if len(ordered) > _NAMED else "")
