"""Reads what MindSpore records of operators on a CPU: every launch with its time, name and shapes, and the memory pool.

The files tie launches to names, not to threads of the operating system: a launch has a worker of the actor pool.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from steplens.readers.ascend_csv_file import complete_rows, read_table, required
from steplens.readers.legacy_files import read_up_to
from steplens.readers.mindspore_kernels import ms_text_ns
from steplens.trace.health import (
    ERROR,
    INFO,
    KERNEL_DETAILS,
    MEMORY,
    OPERATOR_CALLS,
    OPERATOR_TIMES,
    RANK_COMPARISON,
    WARNING,
    HealthLog,
)
from steplens.trace.schema import CORE_CPU, KIND_COMPUTE, SCOPE_BACKWARD, SCOPE_FUNCTION

_SIZE_LIMIT_BYTES = 4 << 30
_LATEST_NS = 1 << 61
#: earlier than 2001 is no time since 1970, but one of a clock that counts from the start of the machine
_UNIX_FROM_NS = 1_000_000_000_000_000_000
_ENTRY = r"^(\d{1,19}),([0-9.eE+-]{1,24})(?:,(\d{1,9}))?$"
_SHORT = r"([^/]*)$"
_GRADIENTS = "Gradients/"
_INPUT = r"input_\d+:([^;]*)"


def read_launches(path: Path, health: HealthLog) -> pl.DataFrame:
    """``cpu_op_execute_timestamp_<rank>.txt``: one row per launch, sorted by start.

    Returns:
        name (full scope name), start_ns, end_ns, worker.
    """
    lines = _lines(path, health)
    fields = lines.str.splitn(";", 3).struct.unnest()
    fields.columns = ["name", "side", "launches"]
    whole = fields.drop_nulls("launches")
    exploded = whole.select("name", entry=pl.col("launches").str.strip_chars().str.split(" ")).explode("entry")
    exploded = exploded.filter(pl.col("entry").str.len_bytes() > 0)
    parts = exploded["entry"].str.extract_groups(_ENTRY).struct.unnest()
    parts.columns = ["start", "length", "worker"]
    rows = exploded.select("name").with_columns(
        start_ns=parts["start"].cast(pl.Int64, strict=False),
        length=_length_ns(parts["length"]),
        worker=parts["worker"].cast(pl.Int64, strict=False).fill_null(0),
    )
    known = rows.drop_nulls(["start_ns", "length"]).filter(pl.col("start_ns").is_between(0, _LATEST_NS))
    if lost := (fields.height - whole.height) + (rows.height - known.height):
        message = f"launches in {path.name} are damaged and were left out"
        health.add("damaged_records", ERROR, lost, message, (OPERATOR_CALLS, OPERATOR_TIMES))
    return known.select("name", "start_ns", end_ns=pl.col("start_ns") + pl.col("length"), worker="worker").sort("start_ns")


def _length_ns(text: pl.Series) -> pl.Series:
    """Ms as text to ns; small ones are written with an exponent."""
    exact = ms_text_ns(text)
    number = text.cast(pl.Float64, strict=False)
    rounded = (number.set(~number.is_between(0, 1e12), None) * 1e6).round().cast(pl.Int64, strict=False)
    return pl.select(pl.coalesce(exact, rounded)).to_series()


def read_shapes(path: Path, health: HealthLog) -> pl.DataFrame:
    """``cpu_framework_<rank>.txt``: one row per launch in order: type, short (name), shapes (``;`` between inputs)."""
    lines = _lines(path, health)
    # a line is the same in every step, so that few have to be taken apart
    distinct = lines.unique(maintain_order=True)
    fields = distinct.str.splitn(";", 4).struct.unnest()
    fields.columns = ["type", "short", "graph", "inputs"]
    inputs = (
        pl.col("inputs")
        .fill_null("")
        .str.extract_all(_INPUT)
        .list.eval(pl.element().str.replace(r"^input_\d+:", "").str.replace_all(r"[\[\] ]", "").str.replace("NoShape", ""))
    )
    parsed = fields.with_columns(distinct, short=pl.col("short").str.extract(_SHORT), shapes=inputs.list.join(";"))
    known = parsed.drop_nulls("graph")
    rows = lines.to_frame().join(known.select("line", "type", "short", "shapes"), on="line", how="inner", maintain_order="left")
    if lost := len(lines) - rows.height:
        health.add("damaged_records", WARNING, lost, f"lines of {path.name} are damaged", KERNEL_DETAILS)
    return rows.drop("line")


def read_tables(
    launches_path: Path, shapes_path: Path | None, rank: int, health: HealthLog, *, pid: int | None = None
) -> dict[str, pl.DataFrame]:
    """Launches as ``ops`` and, since the CPU is the device, as ``kernels`` of core CPU.

    Args:
        launches_path: ``cpu_op_execute_timestamp_<rank>.txt``.
        shapes_path: ``cpu_framework_<rank>.txt``, None where there is none.
        rank: the device; also the process id, which the files do not have, where none is given.
        health: gets what is wrong.
        pid: the process that recorded them.
    """
    launches = read_launches(launches_path, health)
    if not launches.height:
        return {}
    if launches["start_ns"][0] < _UNIX_FROM_NS:
        message = f"times in {launches_path.name} count from the start of the machine, as MindSpore before 2.3 wrote them"
        health.add("monotonic_times", INFO, 1, message, RANK_COMPARISON)
    full = pl.col("name")
    launches = launches.with_columns(
        short=full.str.extract(_SHORT),
        module=pl.when(full.str.contains("/")).then(full.str.replace(r"/[^/]*$", "")),
    )
    launches = launches.with_columns(type=pl.col("short").str.replace(r"-[^-]*$", ""))
    launches = _with_shapes(launches, read_shapes(shapes_path, health) if shapes_path is not None else None, health)
    scope = pl.when(full.str.starts_with(_GRADIENTS)).then(SCOPE_BACKWARD).otherwise(SCOPE_FUNCTION).cast(pl.UInt8)
    ops = launches.select(
        "name",
        "start_ns",
        "end_ns",
        "module",
        pid=pl.lit(rank if pid is None else pid, dtype=pl.Int64),
        tid="worker",
        scope=scope,
        input_shapes="shapes",
    )
    kernels = launches.select(
        "name",
        "type",
        "start_ns",
        "end_ns",
        stream="worker",
        device=pl.lit(rank, dtype=pl.Int32),
        core=pl.lit(CORE_CPU),
        kind=pl.lit(KIND_COMPUTE),
        input_shapes="shapes",
        launch_ns="start_ns",
        launch_pid=pl.lit(rank if pid is None else pid, dtype=pl.Int64),
        launch_tid="worker",
    )
    return {"ops": ops, "kernels": kernels}


def _with_shapes(launches: pl.DataFrame, shapes: pl.DataFrame | None, health: HealthLog) -> pl.DataFrame:
    """Launches with their shapes: the k-th launch of a short name has the k-th line of that name.

    Short names are not unique, but lines stand in the order of launching. A name with another number of lines than launches
    gets shapes only if all of its lines agree.
    """
    if shapes is None:
        return launches.with_columns(shapes=pl.lit(None, dtype=pl.String))
    place = pl.int_range(pl.len()).over("short")
    lines = shapes.filter(pl.col("short") != "").with_columns(place=place)
    counts = launches.group_by("short").len("launched").join(lines.group_by("short").len("listed"), on="short", how="left")
    equal = counts.filter(pl.col("launched") == pl.col("listed")).select("short")
    agreed = lines.group_by("short").agg(pl.col("shapes").n_unique().alias("kinds"), common=pl.col("shapes").first())
    agreed = agreed.filter(pl.col("kinds") == 1).select("short", "common")
    found = (
        launches.with_columns(place=place)
        .join(lines.join(equal, on="short", how="semi").select("short", "place", "shapes"), on=["short", "place"], how="left")
        .join(agreed, on="short", how="left")
        .with_columns(shapes=pl.coalesce("shapes", "common"))
        .sort("start_ns", maintain_order=True)
    )
    if without := int(found["shapes"].null_count()):
        message = "launches have no shapes: they are not listed, or listed another number of times than launched"
        health.add("missing_shapes", INFO, without, message, KERNEL_DETAILS)
    return found.drop("place", "common")


def read_memory(path: Path, rank: int, health: HealthLog) -> pl.DataFrame:
    """``cpu_ms_memory_record_<rank>.txt``: totals of the memory pool after each of its events; rows of ``memory``."""
    table = read_table([path], health, MEMORY)
    if not required(table, path.name, health, MEMORY, ("Timestamp(ns)",), ("Total Allocated(Byte)",)):
        return pl.DataFrame()
    frame = pl.DataFrame(
        {
            "time_ns": table.integer("Timestamp(ns)"),
            "allocated": table.bytes("Total Allocated"),
            "reserved": table.bytes("Total Reserved"),
            "active": table.bytes("Total Active"),
        }
    )
    known = complete_rows(frame, ["time_ns", "allocated"], path.name, health, MEMORY)
    return known.filter(pl.col("time_ns").is_between(0, _LATEST_NS)).with_columns(
        device_type=pl.lit(CORE_CPU),
        device=pl.lit(rank, dtype=pl.Int32),
        component=pl.lit("MindSpore"),
        **{name: pl.lit(None, dtype=pl.Int64) for name in ("bytes", "address", "pid", "tid")},
    )


def _lines(path: Path, health: HealthLog) -> pl.Series:
    """The lines of a text file that are not blank."""
    try:
        with path.open("rb") as handle:
            data = read_up_to(handle, _SIZE_LIMIT_BYTES)
    except OSError as error:
        health.add("unreadable_file", ERROR, 1, f"{path.name} cannot be read ({error.strerror or error})", OPERATOR_CALLS)
        data = b""
    whole = pl.Series("line", [data.decode("utf-8", errors="replace")], dtype=pl.String)
    lines = whole.str.split("\n").explode()
    kept: pl.Series = lines.filter(lines.str.contains(r"\S"))
    return kept
