"""MindSpore's files of an Ascend device: step trace, executions and sums of operators, the AI CPU, the framework's list.

Sums are of the executions that were recorded; a table that a source keeps (``source_tables``) is handed on under the names that
MindSpore documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import polars as pl

from steplens.analysis.step_trace.step_trace import detail_table, points_of, step_trace
from steplens.trace.schema import KIND_COMPUTE
from steplens.trace.trace import Trace
from steplens.writers.common.output import NothingToWriteError, Output
from steplens.writers.common.source_table import required_source_table
from steplens.writers.common.text import microseconds, write_json, write_plain_csv
from steplens.writers.mindspore.mindspore_operators import write_guarded

_AI_CORE = "AI_CORE"
_HEADLINE = "====================op compute time===================="


def write_step_trace(output: Output, path: Path, average_from: int = 1) -> None:
    """Write step_trace_raw_<rank>_detail_time.csv, counts of 10 ns; the last row has the means without the first step."""
    table = detail_table(output.trace, average_from=average_from)
    if not table.height:
        raise NothingToWriteError("no step was recorded")
    write_plain_csv(table, path)


def write_graph_step_trace(output: Output, path: Path) -> None:
    """Write step_trace_raw_<rank>_detail_time.csv of a graph that ran on a CPU; the last row has the means of all steps."""
    _require_graph(output.trace)
    write_step_trace(output, path, average_from=0)


def _require_graph(trace: Trace) -> None:
    if trace.meta_value("context_mode") != "graph":
        raise NothingToWriteError("only a graph tells where its backward pass ends")


def write_points(output: Output, path: Path) -> None:
    """Write step_trace_point_info_<rank>.json: the operators at the points of the step trace, those that a user names first."""
    meta = output.trace.meta_values()
    named = points_of(output.trace)
    points = {key: meta[key] for key in _POINTS if key in meta}
    operators_at_points = _operators_at_points(output.trace) if named.forward or named.backward else {}
    for key, name in zip(_POINTS, (named.forward, named.backward), strict=True):
        if name is not None:
            points[key] = operators_at_points.get(key, name)
    if not points:
        raise NothingToWriteError("the operators at the points of the step trace were not recorded")
    write_json(points, path)


def write_graph_points(output: Output, path: Path) -> None:
    """Write step_trace_point_info_<rank>.json of a graph that ran on a CPU: the operators at the points of its first step.

    They are the one that starts at the forward point and the one that ends at the backward point of
    step_trace_raw_<rank>_detail_time.csv, in the first step that has both.
    """
    _require_graph(output.trace)
    points = _operators_at_points(output.trace)
    if len(points) < len(_POINTS):
        raise NothingToWriteError("no step was recorded with a forward and a backward pass")
    write_json(points, path)


#: as step_trace_point_info has them: the column of the step trace, and the time of an operator that is the point
_POINTS = {"fp_start": ("forward_ns", "start_ns"), "bp_end": ("backward_ns", "end_ns")}


def _operators_at_points(trace: Trace) -> dict[str, str]:
    """The full names of the operators at the points of the first step that has both."""
    first = step_trace(trace).drop_nulls(["forward_ns", "backward_ns"]).head(1)
    tasks = trace.required("kernels").filter(pl.col("kind").cast(pl.String) == KIND_COMPUTE)
    points = {}
    for key, (point, time) in _POINTS.items():
        at = first.lazy().select("step", pl.col(point).alias(time))
        names = tasks.join(at, on=["step", time], how="semi").select(pl.col("name").cast(pl.String)).head(1).collect()["name"]
        if len(names):
            points[key] = names[0]
    return points


def _core_executions(trace: Trace) -> pl.DataFrame:
    runs = trace.required("kernels").filter(pl.col("core").cast(pl.String) == _AI_CORE).collect()
    if runs.is_empty():
        raise NothingToWriteError("no execution on an AI Core was recorded")
    return runs


def operator_means(trace: Trace) -> pl.DataFrame:
    """Mean time of every operator on the AI Cores, in the order of the framework's list: name, type, stream, count, mean_ms.

    The time of an operator is the sum of all of its executions, divided by the executions of its first task: an operator of
    several tasks runs them all in every step.

    Raises:
        NothingToWriteError: no execution was recorded.
    """
    runs = _core_executions(trace).select(
        pl.col("name", "type").cast(pl.String), "stream", "task_id", length=pl.col("end_ns") - pl.col("start_ns")
    )
    listed = trace.source_table("framework_raw")
    if listed is not None and {"full_kernel_name", "task_id", "stream_id"} <= set(listed.columns):
        first = listed.unique("full_kernel_name", keep="first", maintain_order=True).select(
            name="full_kernel_name",
            first_task=pl.col("task_id").cast(pl.Int64, strict=False),
            first_stream=pl.col("stream_id").cast(pl.Int64, strict=False),
            order=pl.int_range(pl.len()),
        )
    else:
        first = runs.unique("name", keep="first", maintain_order=True).select(
            "name", first_task="task_id", first_stream="stream", order=pl.int_range(pl.len())
        )
    is_first = pl.col("task_id").eq_missing(pl.col("first_task")) & pl.col("stream").eq_missing(pl.col("first_stream"))
    sums = (
        runs.join(first, on="name", how="left", maintain_order="left")
        .group_by("name", maintain_order=True)
        .agg(
            pl.col("type", "stream", "order").first(),
            pl.col("length").sum(),
            pl.len().alias("runs"),
            first=is_first.sum(),
        )
    )
    # an operator whose first task never ran is divided by nothing; then each of its runs counts
    count = pl.when(pl.col("first") > 0).then("first").otherwise("runs")
    return sums.sort("order", nulls_last=True, maintain_order=True).select(
        "name", "type", "stream", count=count, mean_ms=pl.col("length") / count / 1e6
    )


def _write_lines(lines: Iterable[str], path: Path) -> None:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_compute_time(output: Output, path: Path) -> None:
    """Write output_op_compute_time_<device>.txt: mean time (ms) of every operator on the AI Cores."""
    means = operator_means(output.trace)
    lines = [
        _HEADLINE,
        "op_name       compute_time(ms) stream_id",
        "------------  ---------------  ---------",
        *(f"{name} {_format_ms(mean)}  {stream}" for name, stream, mean in means.select("name", "stream", "mean_ms").iter_rows()),
        f"total op  {_format_ms(float(means['mean_ms'].sum()))} 0",
    ]
    _write_lines(lines, path)


def write_compute_time_detail(output: Output, path: Path) -> None:
    """Write output_op_compute_time_detail_<device>.txt: sums by type, then every operator; ms per step, shares in percent."""
    means = operator_means(output.trace)
    total = float(means["mean_ms"].sum())
    types = means.group_by("type", maintain_order=True).agg(pl.col("mean_ms").sum(), pl.len())
    lines = [
        _HEADLINE,
        "optype_name compute_time(ms, per-step) called_times(per-step) percent",
        *(
            f"{kind} {_format_ms(mean)} {count} {round(100 * mean / total, 2) if total else 0.0}"
            for kind, mean, count in types.iter_rows()
        ),
        "",
        "Detail:",
        "op_name op_type avg_execution_time subgraph full_op_name",
        *(
            f"{name.rpartition('/')[2]} {kind} {_format_ms(mean)} {name.partition('/')[0]} {name}"
            for kind in types["type"].to_list()
            for name, mean in means.filter(pl.col("type").eq_missing(kind)).select("name", "mean_ms").iter_rows()
        ),
    ]
    _write_lines(lines, path)


def _format_ms(ms: float) -> str:
    return repr(round(ms, 9))


def write_core_types(output: Output, path: Path) -> None:
    """Write aicore_intermediate_<rank>_type.csv: task_time in ms, percent 0 to 100."""
    means = operator_means(output.trace)
    total = float(means["mean_ms"].sum())
    types = means.group_by("type", maintain_order=True).agg(pl.col("mean_ms").sum().round(9), pl.len())
    share = (100 * pl.col("mean_ms") / total).round(2) if total else pl.lit(0.0)
    rows = types.select(kernel_type="type", task_time="mean_ms", execution_frequency="len", percent=share)
    write_guarded(rows, path)


def write_core_details(output: Output, path: Path) -> None:
    """Write aicore_intermediate_<rank>_detail.csv: mean time (ms) and number of executions of every operator."""
    rows = operator_means(output.trace).select(
        full_kernel_name="name",
        task_duration=pl.col("mean_ms").round(9),
        execution_frequency="count",
        task_type=pl.lit(_AI_CORE),
    )
    write_guarded(rows, path)


def write_timeline_data(output: Output, path: Path) -> None:
    """Write output_timeline_data_<rank>.txt: start (us, of the device's clock) and length (ms) of every execution."""
    rows = _core_executions(output.trace).sort("start_ns", maintain_order=True)
    rows = rows.select(
        pl.col("name").cast(pl.String).alias("kernel_name"),
        pl.col("stream").alias("stream_id"),
        microseconds(pl.col("start_ns")).alias("start_time(us)"),
        ((pl.col("end_ns") - pl.col("start_ns")) / 1e6).round(6).alias("duration(ms)"),
    )
    write_guarded(rows, path)


def write_framework(output: Output, path: Path) -> None:
    """Write framework_raw_<rank>.csv: the framework's list of tasks."""
    write_guarded(required_source_table(output.trace, "framework_raw"), path)


def write_ai_cpu(output: Output, path: Path) -> None:
    """Write aicpu_intermediate_<rank>.csv: every run on the AI CPU, times in ms."""
    write_guarded(required_source_table(output.trace, "aicpu_intermediate"), path)


def write_ai_cpu_text(output: Output, path: Path) -> None:
    """Write output_data_preprocess_aicpu_<device>.txt, the older form of the same."""
    table = required_source_table(output.trace, "aicpu_intermediate")
    needed = ("serial_num", "kernel_type", "total_time", "dispatch_time", "run_start", "run_end")
    if missing := [name for name in needed if name not in table.columns]:
        raise NothingToWriteError(f"the source's list of runs on the AI CPU lacks {', '.join(missing)}")
    titles = ("serial_number", "node_type_name", "total_time(ms)", "dispatch_time(ms)", "run_start", "run_end")
    rows = [tuple("" if value is None else str(value) for value in row) for row in table.select(needed).iter_rows()]
    total = sum(float(value) for value in table["total_time"].to_list() if value)
    path.write_text(_simple_table(titles, rows, (_TOTAL, f"{total:.6f}")), encoding="utf-8")


_TOTAL = "AI CPU Total Time(ms):"
#: a column is this much wider than its title
_MARGIN = 2
#: of the first columns, which are names however much they look like numbers
_NAMES = 2


def _simple_table(titles: tuple[str, ...], rows: list[tuple[str, ...]], last: tuple[str, ...]) -> str:
    """A table with aligned columns, numbers by their decimal point; ``last`` is a row of names below them."""
    columns = [list(cells) for cells in zip(*rows, strict=True)]
    for number, cells in enumerate(columns):
        if number >= _NAMES:
            decimals = [len(cell.partition(".")[2]) + ("." in cell) for cell in cells]
            columns[number] = [cell + " " * (max(decimals) - own) for cell, own in zip(cells, decimals, strict=True)]
    below = [*last, *("" for _ in titles[len(last) :])]
    widths = [
        max(len(title) + _MARGIN, len(end), *map(len, cells)) for title, cells, end in zip(titles, columns, below, strict=True)
    ]

    def format_line(cells: Iterable[str]) -> str:
        parts = (
            cell.ljust(width) if number < _NAMES else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return "  ".join(parts).rstrip() + "\n"

    body = "".join(map(format_line, zip(*columns, strict=True)))
    return format_line(titles) + format_line("-" * width for width in widths) + body + format_line(below)


def _pipeline_batches(trace: Trace, kind: str, order: str, columns: Sequence[str], missing: str) -> pl.DataFrame:
    batches = trace.required("pipeline_batches").filter(pl.col("kind").cast(pl.String) == kind)
    rows = batches.sort(order, maintain_order=True).select(columns).collect()
    if rows.is_empty():
        raise NothingToWriteError(missing)
    return rows


def write_receive(output: Output, path: Path) -> None:
    """Write minddata_aicpu_<rank>.txt: what the device took from its data queue; times in us of the device's clock."""
    columns = ("name", "time_ns", "wait_ns", "queue_size")
    rows = _pipeline_batches(output.trace, "receive", "time_ns", columns, "the device's data queue was not recorded")
    lines = [f"{name} {time // 1000} {(time + (wait or 0)) // 1000} {size}" for name, time, wait, size in rows.iter_rows()]
    _write_lines(lines, path)


def write_send(output: Output, path: Path) -> None:
    """Write device_queue_profiling_<rank>.txt: what the host put into the device's data queue; ms of the host's clock."""
    columns = ("batch", "time_ns", "get_ns", "push_ns", "total_ns", "queue_size", "queue_capacity")
    rows = _pipeline_batches(output.trace, "send", "batch", columns, "the host's data queue was not recorded")
    lines = []
    for batch, time, get, push, total, size, capacity in rows.iter_rows():
        at = (time or 0) // 1_000_000
        for extra, value in ((1, push), (2, total), (0, get)):
            if value is not None:
                lines.append(f"0 {extra} {batch} {round(value / 1e6)} {at}")
        if size is not None:
            lines.append(f"1 {capacity or 0} {batch} {size} {at}")
    _write_lines(lines, path)
