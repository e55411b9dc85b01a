"""Tables of operators as a device's profiler shows them, and searching, sorting and paging of any table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from steplens.analysis.device.kernels import op_statistic
from steplens.analysis.operators.rank_flops import OPERATORS, operator_work
from steplens.analysis.tools.schemas import cast_columns, table_schema
from steplens.trace.trace import Trace

AI_CORE = "AI_CORE"
AI_CPU = "AI_CPU"

#: a name of an operator without its scopes and its number
_TYPE = r"([^/]+?)(?:-op\d+)?$"
MOST_ROWS = 100_000

CORE_TYPES = table_schema("type: String, total_ns: Float64, count, average_ns: Float64, percent: Float64")
CORE_OPERATORS: dict[str, pl.DataType] = {
    "name": pl.String(),
    "type": pl.String(),
    "subgraph": pl.String(),
    "average_ns": pl.Float64(),
    "count": pl.Int64(),
    **{name: pl.Float64() for name in list(OPERATORS)[1:]},
    "info": pl.String(),
}
AI_CPU_TYPES = table_schema(
    "type: String, total_ns: Float64, dispatch_ns: Float64, count, average_ns: Float64, average_dispatch_ns: Float64, "
    "percent: Float64"
)


@dataclass(frozen=True)
class Page:
    """Some rows of a table.

    Attributes:
        rows: those of the page.
        total: how many rows fit the filters, on all pages.
    """

    rows: pl.DataFrame
    total: int


@dataclass(frozen=True)
class Executions:
    """What a device ran, all in all.

    Attributes:
        total_ns: sum over executions; of the AI CPU with the dispatch that its own total holds.
        streams: number of streams; tasks that name none count as one.
        operators: number of different names.
        executions: number of tasks.
    """

    total_ns: int
    streams: int
    operators: int
    executions: int


def query_table(
    table: pl.DataFrame,
    *,
    among: Mapping[str, Sequence[object]] | None = None,
    without: Mapping[str, Sequence[object]] | None = None,
    containing: Mapping[str, str] | None = None,
    sort: Sequence[str] = (),
    descending: bool = True,
    page: int = 0,
    page_rows: int = MOST_ROWS,
) -> Page:
    """Rows of a table that fit all filters, sorted, one page of them.

    Args:
        table: any.
        among: column -> the values that it may have.
        without: column -> the values that it may not have.
        containing: column -> text that it holds, in capitals or not.
        sort: columns, the first decides first; the order of the table without any. Absent values come last.
        descending: the direction.
        page: which page, from 0.
        page_rows: rows of a page, from 1 to ``MOST_ROWS``.

    Raises:
        ValueError: no such column, page or number of rows.
    """
    columns_used = [*(among or {}), *(without or {}), *(containing or {}), *sort]
    unknown = [name for name in columns_used if name not in table.columns]
    if unknown:
        raise ValueError(f"there is no column {unknown[0]!r}; the columns are {', '.join(table.columns)}")
    if not 1 <= page_rows <= MOST_ROWS:
        raise ValueError(f"a page has 1 to {MOST_ROWS} rows, not {page_rows}")
    if page < 0:
        raise ValueError(f"pages count from 0; there is no page {page}")
    matching = table
    for column, values in (among or {}).items():
        matching = matching.filter(pl.col(column).is_in(list(values)))
    for column, values in (without or {}).items():
        matching = matching.filter(~pl.col(column).is_in(list(values)).fill_null(False))
    for column, text in (containing or {}).items():
        held = pl.col(column).cast(pl.String).str.to_lowercase().str.contains(text.lower(), literal=True)
        matching = matching.filter(held.fill_null(False))
    if sort:
        matching = matching.sort(list(sort), descending=descending, nulls_last=True, maintain_order=True)
    return Page(matching.slice(page * page_rows, page_rows), matching.height)


def in_order_of(table: pl.DataFrame, column: str, values: Sequence[str]) -> pl.DataFrame:
    """The rows whose ``column`` is one of ``values``, in the order of these; rows of one value keep their order."""
    place = {value: number for number, value in enumerate(values)}
    matching = table.filter(pl.col(column).is_in(list(values)))
    return matching.sort(pl.col(column).replace_strict(place, default=None, return_dtype=pl.Int64), maintain_order=True)


def core_types(trace: Trace) -> pl.DataFrame:
    """Types of operators of the AI Cores, longest total first; columns as in ``CORE_TYPES``.

    Source: MindSpore's ``aicore_intermediate_type`` where the run has one, else the device's tasks, with shares of their sum.
    """
    table = trace.source_table("aicore_intermediate_type")
    if table is None:
        type_rows = op_statistic(trace).filter(core=AI_CORE)
        share = pl.col("total_ns") / pl.col("total_ns").sum() * 100
        return type_rows.with_columns(average_ns="mean_ns", percent=share).select(cast_columns(CORE_TYPES))
    total, count = _number_column("task_time") * 1e6, _number_column("execution_frequency")
    renamed = table.select(type="kernel_type", total_ns=total, count=count.cast(pl.Int64), average_ns=total / count,
                         percent=_number_column("percent"))  # fmt: skip
    return renamed.sort("total_ns", descending=True).select(cast_columns(CORE_TYPES))


def core_operators(trace: Trace) -> pl.DataFrame:
    """Operators of the AI Cores, with what ``operator_work`` has of them; columns as in ``CORE_OPERATORS``, ``info`` is JSON.

    Rows are in the order of MindSpore's ``aicore_intermediate_detail``; without it there are none. The oldest such files
    have no counts and no types: types are the ends of the names then, and counts those of the device's tasks.
    """
    table = trace.source_table("aicore_intermediate_detail")
    if table is None:
        return pl.DataFrame(schema=CORE_OPERATORS)
    plain = pl.col("name").str.extract(_TYPE)
    details = table.select(
        name="full_kernel_name",
        average_ns=_number_column("task_duration") * 1e6,
        stored=_number_column("execution_frequency") if "execution_frequency" in table.columns else pl.lit(None, pl.Float64),
    )
    tasks = trace.required("kernels").group_by(name=pl.col("name").cast(pl.String)).agg(executions=pl.len()).collect()
    details = details.join(tasks, on="name", how="left", maintain_order="left")
    details = details.with_columns(count=pl.coalesce("stored", "executions").cast(pl.Int64)).drop("stored", "executions")
    details = _add_framework_details(details, trace.source_table("framework_raw")).with_columns(type=pl.coalesce("type", plain))
    details = details.join(operator_work(trace).unique("name", keep="first"), on="name", how="left", maintain_order="left")
    return details.select(cast_columns(CORE_OPERATORS))


def _add_framework_details(details: pl.DataFrame, framework: pl.DataFrame | None) -> pl.DataFrame:
    """With type, subgraph and info of the framework's list of operators."""
    columns = {"type": "kernel_type", "subgraph": "subgraph", "info": "op_info"}
    if framework is None:
        return details.with_columns(pl.lit(None, pl.String).alias(name) for name in columns)
    missing = pl.lit(None, pl.String)
    framework_names = framework.select(
        name="full_kernel_name", **{new: pl.col(old) if old in framework.columns else missing for new, old in columns.items()}
    )
    return details.join(framework_names.unique("name", keep="first"), on="name", how="left", maintain_order="left")


def stored_table(trace: Trace, name: str) -> pl.DataFrame:
    """A table that the source keeps, columns and units as the source has them; texts that are all numbers are numbers.

    Args:
        trace: one rank.
        name: such as "cpu_op_type_info" or "gpu_activity_data"; no rows and no columns where the source has none.
    """
    table = trace.source_table(name)
    if table is None:
        return pl.DataFrame()
    numbers = [
        column.name
        for column in table
        if column.dtype == pl.String and column.cast(pl.Float64, strict=False).null_count() == column.null_count() < len(column)
    ]
    return table.with_columns(pl.col(numbers).cast(pl.Float64))


def ai_cpu_types(trace: Trace) -> pl.DataFrame:
    """Kernels of the AI CPU by type, in order of appearance; columns as in ``AI_CPU_TYPES``, percent of the total.

    Source: MindSpore's ``aicpu_intermediate``, whose total time holds the dispatch.
    """
    table = trace.source_table("aicpu_intermediate")
    if table is None:
        return pl.DataFrame(schema=AI_CPU_TYPES)
    rows = table.select(
        type="kernel_type",
        total_ns=_number_column("total_time") * 1e6,
        dispatch_ns=_number_column("dispatch_time") * 1e6 if "dispatch_time" in table.columns else pl.lit(None, pl.Float64),
    )
    grouped = rows.group_by("type", maintain_order=True).agg(
        pl.col("total_ns", "dispatch_ns").sum(),
        count=pl.len().cast(pl.Int64),
        average_ns=pl.col("total_ns").mean(),
        average_dispatch_ns=pl.col("dispatch_ns").mean(),
    )
    return grouped.with_columns(percent=pl.col("total_ns") / pl.col("total_ns").sum() * 100).select(cast_columns(AI_CPU_TYPES))


def count_executions(trace: Trace) -> Executions:
    """What the device ran, all in all; see ``Executions``.

    Source: ``kernels``, and for the AI CPU the totals that it measured itself (``kernel_metrics``) where they are there.
    """
    tasks = trace.required("kernels").select("id", "stream", "device", name=pl.col("name").cast(pl.String), length="self_ns")
    measured = (
        trace.required("kernel_metrics")
        .filter(pl.col("name").cast(pl.String) == "Total Time(ms)")
        .select(id="kernel", total=pl.col("value") * 1e6)
    )
    rows = tasks.join(measured, on="id", how="left").collect()
    total = rows.select(pl.coalesce("total", "length").sum().round().cast(pl.Int64)).item()
    lanes = rows.select("device", "stream").n_unique()
    return Executions(int(total or 0), lanes if rows.height else 0, rows["name"].n_unique() if rows.height else 0, rows.height)


def _number_column(name: str) -> pl.Expr:
    return pl.col(name).cast(pl.Float64, strict=False)
