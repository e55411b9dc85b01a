"""Reads what MindSpore records of operators on a CPU: every launch with its time, name and shapes, and the memory pool.

The files tie launches to names, not to threads of the operating system: a launch has a worker of the actor pool.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from steplens.common.storage.files import open_file
from steplens.readers.common.ascend_csv_file import complete_rows, has_required_columns, read_table
from steplens.readers.common.microseconds import ms_text_ns
from steplens.readers.mindspore.legacy_files import read_up_to
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
from steplens.trace.schema import CORE_CPU, GRADIENTS_PREFIX, KIND_COMPUTE, NAME, SCOPE_BACKWARD, SCOPE_FUNCTION

_SIZE_LIMIT_BYTES = 4 << 30
_LATEST_NS = 1 << 61
#: earlier than 2001 is no time since 1970, but one of a clock that counts from the start of the machine
_UNIX_FROM_NS = 1_000_000_000_000_000_000
#: a double has every ns of a shorter time
_EXACT_MS = 1e8
_SHORT = r"([^/]*)$"
_INPUT = r"input_\d+:([^;]*)"
#: in no text
_SEPARATOR = "\0"
_NAMED = ("name", "short", "module", "type", "scope")


def read_launches(path: Path, health: HealthLog) -> pl.DataFrame:
    """``cpu_op_execute_timestamp_<rank>.txt``: one row per launch, sorted by start.

    Returns:
        name (full scope name), short, module, type (as text, from the name), scope; start_ns, end_ns, worker.
    """
    lines = _read_lines(path, health)
    fields = lines.str.splitn(";", 3).struct.unnest()
    fields.columns = ["name", "side", "launches"]
    complete = _parse_full_names(fields.drop_nulls("launches"))
    exploded = complete.select(*_NAMED, entry=pl.col("launches").str.strip_chars().str.split(" ")).explode("entry")
    exploded = exploded.filter(pl.col("entry").str.len_bytes() > 0)
    parts = exploded["entry"].str.splitn(",", 3).struct.unnest()
    parts.columns = ["start", "length", "worker"]
    worker = parts["worker"].cast(pl.Int64, strict=False)
    rows = exploded.select(_NAMED).with_columns(
        start_ns=parts["start"].cast(pl.Int64, strict=False),
        length=_length_ns(parts["length"]),
        # before 2.3 there is none
        worker=worker.fill_null(0),
        damaged=worker.is_null() & parts["worker"].is_not_null(),
    )
    possible = rows.filter(pl.col("length").is_not_null() & pl.col("start_ns").is_between(0, _LATEST_NS) & ~pl.col("damaged"))
    if lost := (fields.height - complete.height) + (rows.height - possible.height):
        message = f"launches in {path.name} are damaged and were left out"
        health.add("damaged_records", ERROR, lost, message, (OPERATOR_CALLS, OPERATOR_TIMES))
    return possible.select(*_NAMED, "start_ns", "worker", end_ns=pl.col("start_ns") + pl.col("length")).sort("start_ns")


def _parse_full_names(lines: pl.DataFrame) -> pl.DataFrame:
    """Lines of one operator each, with what its full name says; done before there is a row per launch."""
    full = pl.col("name")
    with_names = lines.with_columns(
        short=full.str.extract(_SHORT),
        module=pl.when(full.str.contains("/")).then(full.str.replace(r"/[^/]*$", "")),
        scope=pl.when(full.str.starts_with(GRADIENTS_PREFIX)).then(SCOPE_BACKWARD).otherwise(SCOPE_FUNCTION).cast(pl.UInt8),
    )
    with_names = with_names.with_columns(type=pl.col("short").str.replace(r"-[^-]*$", ""))
    return with_names.with_columns(pl.col("name", "short", "module", "type").cast(NAME))


def _length_ns(text: pl.Series) -> pl.Series:
    """Ms as text to ns; small ones are written with an exponent."""
    number = text.cast(pl.Float64, strict=False)
    rounded: pl.Series = (number.set(~number.is_between(0, 1e12), None) * 1e6).round().cast(pl.Int64, strict=False)
    if not (number > _EXACT_MS).any():
        return rounded
    return pl.select(pl.coalesce(ms_text_ns(text), rounded)).to_series()


def read_shapes(path: Path, health: HealthLog) -> pl.DataFrame:
    """``cpu_framework_<rank>.txt``: one row per launch in order: type, short (name), shapes (``;`` between inputs)."""
    # a line is the same in every step, so that few have to be taken apart
    lines: pl.Series = _read_lines(path, health).cast(NAME)
    distinct: pl.Series = lines.unique(maintain_order=True)
    fields = distinct.cast(pl.String).str.splitn(";", 4).struct.unnest()
    fields.columns = ["type", "short", "graph", "inputs"]
    inputs = (
        pl.col("inputs")
        .fill_null("")
        .str.extract_all(_INPUT)
        .list.eval(pl.element().str.replace(r"^input_\d+:", "").str.replace_all(r"[\[\] ]", "").str.replace("NoShape", ""))
    )
    parsed = fields.with_columns(distinct, short=pl.col("short").str.extract(_SHORT), shapes=inputs.list.join(";"))
    complete = parsed.drop_nulls("graph").with_columns(pl.col("type", "short", "shapes").cast(NAME))
    rows: pl.DataFrame = lines.to_frame().join(
        complete.select("line", "type", "short", "shapes"), on="line", how="inner", maintain_order="left"
    )
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
    own_health = HealthLog()
    # both files at once: taking text apart is native code outside the interpreter lock
    with ThreadPoolExecutor(1) as beside:
        reading = beside.submit(read_shapes, shapes_path, own_health) if shapes_path is not None else None
        launches = read_launches(launches_path, health)
        shapes = reading.result() if reading is not None else None
    if not launches.height:
        return {}
    health.extend(own_health.findings)
    if launches["start_ns"][0] < _UNIX_FROM_NS:
        message = f"times in {launches_path.name} count from the start of the machine, as MindSpore before 2.3 wrote them"
        health.add("monotonic_times", INFO, 1, message, RANK_COMPARISON)
    launches = _with_shapes(launches, shapes, health)
    ops = launches.select(
        "name",
        "start_ns",
        "end_ns",
        "module",
        pid=pl.lit(rank if pid is None else pid, dtype=pl.Int64),
        tid="worker",
        scope="scope",
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
        return launches.with_columns(shapes=pl.lit(None, dtype=NAME))
    lines = shapes.filter(pl.col("short").cast(pl.String) != "")
    # both in the order of their short names: the k-th launch of a name stands as far behind its first as its line does
    launched, launch_order = _by_name(launches["short"])
    listed, line_order = _by_name(lines["short"])
    texts = lines["shapes"].gather(line_order)
    codes = texts.to_physical().to_numpy()
    begins = listed["first"].to_numpy()
    agreed = np.minimum.reduceat(codes, begins) == np.maximum.reduceat(codes, begins) if len(codes) else np.empty(0, dtype=bool)
    listed = listed.rename({"first": "first_listed", "count": "count_listed"}).with_columns(agreed=pl.Series(agreed))
    groups = launched.join(listed, on="short", how="left", maintain_order="left")
    first, count = groups["first"].to_numpy(), groups["count"].to_numpy()
    equal = (groups["count"] == groups["count_listed"]).fill_null(False).to_numpy()
    has_shape = equal | groups["agreed"].fill_null(False).to_numpy()
    place = np.where(equal, 1, 0).repeat(count) * (np.arange(launches.height) - first.repeat(count))
    row = np.where(has_shape.repeat(count), groups["first_listed"].fill_null(0).to_numpy().repeat(count) + place, -1)
    of_launch = np.empty(launches.height, dtype=np.int64)
    of_launch[launch_order] = row
    with_shapes = launches.with_columns(shapes=texts.gather(pl.Series(of_launch).set(pl.Series(of_launch < 0), None)))
    if without := int(with_shapes["shapes"].null_count()):
        message = "launches have no shapes: they are not listed, or listed another number of times than launched"
        health.add("missing_shapes", INFO, without, message, KERNEL_DETAILS)
    return with_shapes


def _by_name(short: pl.Series) -> tuple[pl.DataFrame, npt.NDArray[np.int64]]:
    """The rows of each short name, in their order, one name after the other.

    Returns:
        short, first (its place among the sorted rows) and count per name; and the rows in that order.
    """
    codes = short.to_physical().to_numpy()
    counts = np.bincount(codes)
    used = np.flatnonzero(counts)
    # renumbered, few names fit into sixteen bits, which are sorted by counting
    number = np.zeros(len(counts), dtype=np.uint16 if len(used) <= 1 << 16 else np.uint32)
    number[used] = np.arange(len(used))
    order = np.argsort(number[codes], kind="stable")
    count = counts[used]
    first = np.cumsum(count) - count
    names = short.gather(order[first])
    return pl.DataFrame({"short": names, "first": first, "count": count}), order


def read_memory(path: Path, rank: int, health: HealthLog) -> pl.DataFrame:
    """``cpu_ms_memory_record_<rank>.txt``: totals of the memory pool after each of its events; rows of ``memory``."""
    table = read_table([path], health, MEMORY)
    if not has_required_columns(table, path.name, health, MEMORY, ("Timestamp(ns)",), ("Total Allocated(Byte)",)):
        return pl.DataFrame()
    frame = pl.DataFrame(
        {
            "time_ns": table.integer("Timestamp(ns)"),
            "allocated": table.bytes("Total Allocated"),
            "reserved": table.bytes("Total Reserved"),
            "active": table.bytes("Total Active"),
        }
    )
    table.report(path.name, health, {}, MEMORY, needed=("Timestamp(ns)", "Total Allocated(Byte)"))
    complete = complete_rows(frame, ["time_ns", "allocated"], path.name, health, MEMORY)
    return complete.filter(pl.col("time_ns").is_between(0, _LATEST_NS)).with_columns(
        device_type=pl.lit(CORE_CPU),
        device=pl.lit(rank, dtype=pl.Int32),
        component=pl.lit("MindSpore"),
        **{name: pl.lit(None, dtype=pl.Int64) for name in ("bytes", "address", "pid", "tid")},
    )


def _read_lines(path: Path, health: HealthLog) -> pl.Series:
    """The lines of a text file that are not blank."""
    try:
        with open_file(path) as handle:
            data = read_up_to(handle, _SIZE_LIMIT_BYTES)
    except OSError as error:
        health.add("unreadable_file", ERROR, 1, f"{path.name} cannot be read ({error.strerror or error})", OPERATOR_CALLS)
        data = b""
    if _SEPARATOR.encode() not in data and data:
        try:
            # the CSV reader takes lines apart in place: with a separator that none of them has, each is one field
            table = pl.read_csv(data, has_header=False, separator=_SEPARATOR, quote_char=None, schema={"line": pl.String})
            return _not_blank(table["line"])
        except pl.exceptions.PolarsError:
            pass  # not UTF-8
    whole_text = pl.Series("line", [data.decode("utf-8", errors="replace")], dtype=pl.String)
    return _not_blank(whole_text.str.split("\n").explode())


def _not_blank(lines: pl.Series) -> pl.Series:
    not_blank: pl.Series = lines.filter(lines.str.contains(r"\S"))
    return not_blank
