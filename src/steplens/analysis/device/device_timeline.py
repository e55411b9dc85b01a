"""The whole time line of the devices in parts: computing, exposed communication, exposed copies, idle."""

from __future__ import annotations

import polars as pl

from steplens.analysis.tools.overlap import Intervals, merged, subtract, union
from steplens.analysis.tools.schemas import table_schema
from steplens.trace.building.classify import MEMSET
from steplens.trace.schema import KIND_COMMUNICATION, KIND_COMPUTE, KIND_COPY
from steplens.trace.trace import Trace

COMPUTING, EXPOSED_COMMUNICATION, EXPOSED_COPY = "computing", "exposed communication", "exposed copy"
BUSY, IDLE, TOTAL, COMMUNICATION, COPY = "busy", "idle", "total", "communication", "copy"

COLUMNS = table_schema("part: String, time_ns, percent: Float64")


def device_timeline(trace: Trace) -> pl.DataFrame:
    """How long the devices of a process did what, from the first start of a task to the last end, one row per part.

    The definitions are those of TraceLens' ``gpu_timeline``, so that the figures can be compared. With C, M and X the unions over
    all streams and devices of the tasks that compute, communicate and copy, in ns of the device clock:

    * computing = |C|; memory sets compute here (in ``device_time`` and the parts of a step they are copies);
    * exposed communication = |M outside C|; exposed copy = |X outside C and M|;
    * busy = |C or M or X|, the sum of these three; idle = total - busy;
    * total = last end - first start; communication = |M| and copy = |X|, exposed or not.

    Tasks whose launch was not recorded do not count: nothing says that they are of what was recorded. Of a source that tells the
    launch of no task, all count. ``percent``: share of the total, null where that is 0.

    Source: ``kernels``, and ``communication`` where that is no device task, as on a CPU.

    Args:
        trace: one rank.

    Returns:
        part, time_ns, percent; no rows where nothing counts.
    """
    tasks = _counted_tasks(trace)
    if not tasks.height:
        return pl.DataFrame(schema=COLUMNS)
    computing, communication, copy = (_of_kind(tasks, kind) for kind in (KIND_COMPUTE, KIND_COMMUNICATION, KIND_COPY))
    first, last = tasks.select(pl.col("start_ns").min(), pl.col("end_ns").max()).row(0)
    total = last - first
    exposed_communication = subtract(communication, computing).length_ns
    exposed_copy = subtract(copy, union(computing, communication)).length_ns
    busy = computing.length_ns + exposed_communication + exposed_copy
    parts = {
        COMPUTING: computing.length_ns,
        EXPOSED_COMMUNICATION: exposed_communication,
        EXPOSED_COPY: exposed_copy,
        BUSY: busy,
        IDLE: total - busy,
        TOTAL: total,
        COMMUNICATION: communication.length_ns,
        COPY: copy.length_ns,
    }
    rows = [(part, int(time), 100 * time / total if total else None) for part, time in parts.items()]
    return pl.DataFrame(rows, schema=COLUMNS, orient="row")


def _counted_tasks(trace: Trace) -> pl.DataFrame:
    """What counts: start_ns, end_ns and kind, of which memory sets compute."""
    kind = pl.col("kind").cast(pl.String)
    is_set = (kind == KIND_COPY) & (pl.col("category").cast(pl.String) == MEMSET).fill_null(False)
    columns = ["start_ns", "end_ns", "launch_ns"]
    kernels = trace.required("kernels").select(*columns, kind=pl.when(is_set).then(pl.lit(KIND_COMPUTE)).otherwise(kind))
    tasks = kernels.filter(pl.col("kind").is_in([KIND_COMPUTE, KIND_COMMUNICATION, KIND_COPY])).collect()
    if not (tasks["kind"] == KIND_COMMUNICATION).any():
        operations = trace.required("communication").select(*columns, kind=pl.lit(KIND_COMMUNICATION)).collect()
        tasks = pl.concat([tasks, operations])
    tasks = tasks.drop_nulls(["start_ns", "end_ns"])
    return tasks if tasks["launch_ns"].null_count() == tasks.height else tasks.drop_nulls("launch_ns")


def _of_kind(tasks: pl.DataFrame, kind: str) -> Intervals:
    return merged(tasks.filter(pl.col("kind") == kind))
