"""MindSpore's files of operators on a CPU: sums by type and by instance, every launch with its time and its shapes, memory.

An instance is an operator under its full name: short names repeat in every scope. Times are ms as MindSpore has them, printed
from integer ns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from steplens.trace.schema import CORE_CPU, GRADIENTS_PREFIX, NAME
from steplens.trace.trace import Trace
from steplens.writers.common.output import NothingToWriteError, Output
from steplens.writers.common.text import names, render_distinct, write_plain_csv

_SIDE = "HostCpuOps"
_MILLIONTH_DIGITS = 6
#: would end a field or a line
_NOT_IN_A_LINE = r"[;\n\r]"


def recorded_launches(trace: Trace) -> pl.DataFrame:
    """Every launch in order of time: name, short, type, start_ns, length (ns), worker, shapes (``;`` between inputs).

    Texts are Categorical; ``short`` is the last part of the name.

    Raises:
        NothingToWriteError: no launch was recorded.
    """
    rows = trace.once(_read_launches)
    if rows.is_empty():
        raise NothingToWriteError("no launch of an operator was recorded")
    return rows


def _read_launches(trace: Trace) -> pl.DataFrame:
    rows = (
        trace.required("kernels")
        .filter(pl.col("core").cast(pl.String) == CORE_CPU)
        .sort("start_ns", maintain_order=True)
        .select(
            "name",
            "type",
            "start_ns",
            length=pl.col("end_ns") - pl.col("start_ns"),
            worker=pl.col("stream").fill_null(0),
            shapes="input_shapes",
        )
        .collect()
    )
    return rows.with_columns(short=render_distinct(rows["name"], lambda name: name.rpartition("/")[2]).cast(NAME))


@dataclass(frozen=True)
class Counted:
    """What the sums by operator count, as MindInsight's parameters of the recording say; without them everything.

    Attributes:
        subgraph: "all", "Default" or "Gradients".
        only: types that count; empty for all.
        without: types that do not.
        instances: whether there are sums by instance.
        paths: whether the short name of an instance is its full one.
    """

    subgraph: str = "all"
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    instances: bool = True
    paths: bool = False


def operator_options(trace: Trace) -> Counted:
    """What was asked for when the trace was recorded."""
    options = trace.meta_value("config")
    options = options if isinstance(options, dict) else {}
    subgraph = options.get("subgraph")
    return Counted(
        subgraph if isinstance(subgraph, str) else "all",
        _parse_operator_types(options.get("optypes_to_deal")),
        _parse_operator_types(options.get("optypes_not_deal")),
        options.get("is_detail") is not False,
        options.get("is_show_op_path") is True,
    )


def _parse_operator_types(value: object) -> tuple[str, ...]:
    """Types of operators from a list, or from one text with commas."""
    texts = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else []
    return tuple(text.strip() for text in texts if isinstance(text, str) and text.strip())


def _counted_launches(trace: Trace) -> pl.DataFrame:
    """The launches that count in sums by operator."""
    rows, counts = recorded_launches(trace), operator_options(trace)
    kind = pl.col("type").cast(pl.String)
    if counts.only:
        rows = rows.filter(kind.is_in(counts.only))
    if counts.without:
        rows = rows.filter(~kind.is_in(counts.without))
    if counts.subgraph != "all":
        rows = rows.filter(_subgraph_name() == counts.subgraph)
    if rows.is_empty():
        raise NothingToWriteError("no launch of the subgraph and the types that were asked for was recorded")
    return rows


def _subgraph_name() -> pl.Expr:
    in_gradients = pl.col("name").cast(pl.String).str.starts_with(GRADIENTS_PREFIX)
    return pl.when(in_gradients).then(pl.lit("Gradients")).otherwise(pl.lit("Default"))


def type_table(trace: Trace) -> pl.DataFrame:
    """Sums by type, largest first; ``percent`` is the share of all counted launches' time, 0 to 1, as MindSpore has it.

    Launches per step are those per recorded step; without steps, per launch of the type's first instance.
    """
    rows = _counted_launches(trace)
    steps = trace.required("steps").select(pl.len()).collect().item()
    first = rows.group_by("type", maintain_order=True).agg(per_first=pl.len() // (pl.col("name") == pl.col("name").first()).sum())
    sums = _sum_launches(rows, "type")
    frequency = (pl.col("count") / steps).round(3) if steps else pl.col("per_first").cast(pl.Float64)
    first = first.with_columns(pl.col("type").cast(pl.String))
    return (
        sums.join(first, on="type", maintain_order="left")
        .sort("length", "type", descending=[True, False])
        .select(
            op_type="type",
            type_occurrences="count",
            **{"execution_frequency(per-step)": frequency},
            total_compute_time="total_ms",
            **{"avg_time(ms)": "mean_ms"},
            percent="share",
        )
    )


def detail_table(trace: Trace, pid: int) -> pl.DataFrame:
    """Sums by instance, largest first; ``total_proportion`` is the share of all counted launches' time, 0 to 1."""
    counts = operator_options(trace)
    if not counts.instances:
        raise NothingToWriteError("is_detail=False asked for sums by type alone")
    sums = _sum_launches(_counted_launches(trace), "name", "type", "short")
    return sums.sort("length", "name", descending=[True, False]).select(
        op_side=pl.lit("Host"),
        op_type="type",
        op_name="name" if counts.paths else "short",
        full_op_name="name",
        op_occurrences="count",
        **{"op_total_time(ms)": "total_ms", "op_avg_time(ms)": "mean_ms"},
        total_proportion="share",
        subgraph=_subgraph_name(),
        pid=pl.lit(pid),
    )


def _sum_launches(rows: pl.DataFrame, key: str, *more: str) -> pl.DataFrame:
    """Launches by ``key``, with the first of each other column as text: count, length (ns), total_ms, mean_ms, share."""
    total = int(rows["length"].sum())
    length, count = pl.col("length"), pl.col("count")
    return (
        rows.group_by(key, maintain_order=True)
        .agg(*(pl.col(name).first() for name in more), pl.len().alias("count"), length.sum())
        .with_columns(
            pl.col(key, *more).cast(pl.String),
            total_ms=(length.cast(pl.Float64) / 1e6).round(_MILLIONTH_DIGITS),
            mean_ms=(length / count / 1e6).round(_MILLIONTH_DIGITS),
            share=(length / total).round(9) if total else pl.lit(0.0),
        )
    )


def write_guarded(frame: pl.DataFrame, path: Path) -> None:
    """Write a table with MindSpore's line ends; a name that a spreadsheet would take for a formula is guarded."""
    texts = [name for name, dtype in frame.schema.items() if dtype == pl.String]
    write_plain_csv(frame.with_columns(names(frame[name]) for name in texts), path)


def write_types(output: Output, path: Path) -> None:
    """Write cpu_op_type_info_<rank>.csv."""
    write_guarded(type_table(output.trace), path)


def write_details(output: Output, path: Path) -> None:
    """Write cpu_op_detail_info_<rank>.csv."""
    pid = output.trace.meta_value("pid")
    write_guarded(detail_table(output.trace, pid if isinstance(pid, int) else 0), path)


def write_timestamps(output: Output, path: Path) -> None:
    """Write cpu_op_execute_timestamp_<rank>.txt: a line per instance: start (Unix ns), length (ms), worker of each launch."""
    rows = recorded_launches(output.trace)
    milliseconds = pl.col("length") // 1_000_000
    fraction = (pl.col("length") % 1_000_000).cast(pl.String).str.zfill(_MILLIONTH_DIGITS)
    lines = (
        rows.with_columns(entry=pl.format("{},{}.{},{}", "start_ns", milliseconds, fraction, "worker"))
        .group_by("name", maintain_order=True)
        .agg(pl.col("entry").str.join(" "))
        .select(
            pl.format("{};{};{} ", pl.col("name").cast(pl.String).str.replace_all(_NOT_IN_A_LINE, "_"), pl.lit(_SIDE), "entry")
        )
    )
    path.write_text("\n".join(lines.to_series().to_list()) + "\n", encoding="utf-8")


def write_framework(output: Output, path: Path) -> None:
    """Write cpu_framework_<rank>.txt: a line per launch with the shapes of its inputs, where they were recorded."""
    rows = recorded_launches(output.trace)
    cells = [render_distinct(rows[column], _one_line) for column in ("type", "short")]
    cells.append(render_distinct(rows["shapes"], _format_inputs, ""))
    lines = pl.select(pl.format("{};{};0;{}", *cells))
    write_plain_csv(lines, path, include_header=False, quote_style="never")


def _one_line(text: str) -> str:
    return re.sub(_NOT_IN_A_LINE, "_", text)


def _format_inputs(shapes: str) -> str:
    texts = (f"[{', '.join(shape.split(','))}]" if shape else "NoShape" for shape in shapes.split(";"))
    return "".join(f"input_{number}:{text};" for number, text in enumerate(texts, 1))


def write_memory(output: Output, path: Path) -> None:
    """Write cpu_ms_memory_record_<rank>.txt: totals of the memory pool (bytes) after each of its events (Unix ns)."""
    rows = (
        output.trace.required("memory")
        .filter(pl.col("device_type").cast(pl.String) == CORE_CPU)
        .sort("time_ns", maintain_order=True)
        .select(
            pl.col("time_ns").alias("Timestamp(ns)"),
            pl.col("allocated").alias("Total Allocated(Byte)"),
            pl.col("reserved").alias("Total Reserved(Byte)"),
            pl.col("active").alias("Total Active(Byte)"),
        )
        .collect()
    )
    if rows.is_empty():
        raise NothingToWriteError("no event of the memory pool was recorded")
    write_plain_csv(rows, path)


def launched_types(trace: Trace) -> list[str]:
    """The types of operators that ran, in order of the alphabet."""
    return sorted(recorded_launches(trace)["type"].cast(pl.String).unique().drop_nulls())


def operator_times(trace: Trace, types: Sequence[str], rank: int) -> str:
    """The JSON text of ``op_analyse``: for each type its launches by the shapes of their inputs, longest first, times us."""
    rows = recorded_launches(trace)
    result: dict[str, object] = {}
    for kind in types:
        rows_of_type = rows.filter(pl.col("type").cast(pl.String) == kind)
        groups = (
            rows_of_type.group_by(pl.col("shapes").cast(pl.String))
            .agg(pl.len(), pl.col("length").sum())
            .sort("length", "shapes", descending=[True, False])
        )
        result[kind] = [
            {
                "op_side": "cpu",
                "input_shape": _shape_text(shapes),
                "op_occurrences": count,
                "op_total_time(us)": length / 1000,
                "op_avg_time(us)": round(length / count / 1000, 3),
            }
            for shapes, count, length in groups.iter_rows()
        ]
    result["device_id"] = str(rank)
    return json.dumps(result, ensure_ascii=False)


def _shape_text(shapes: str | None) -> str:
    """Shapes as JSON text of lists; empty where they were not recorded, as of operators that PyNative mode dispatches itself."""
    if not shapes:
        return ""
    return json.dumps([[int(size) for size in shape.split(",") if size.lstrip("-").isdecimal()] for shape in shapes.split(";")])
