"""A trace written as text files and as a database, and read back from either: the same tables.

Compared are, per table, the columns in ``COLUMNS``: rows in a fixed order, every value equal. ``ONLY`` has the columns that
one format holds and the other does not.

Neither format holds the module path of an operator (the timeline writes it, and its count of floating-point operations, for
people), the generation of a collection, the address, size, thread and operator of an allocator event (both keep the
allocator's totals after each event, and pairs of allocation and release with the operator's name), the peer of a
point-to-point operation, or arrows that no other table implies.

The text files do not hold a group's own name where communication.json has its number, the elapsed times of collectives whose
library measured nothing, sizes of copies, or RDMA types of a collective's inner tasks.

The database does not hold wait times (its readers compute them from the gaps between tasks), callers of Python calls (they
follow from the times), streams of collectives without tasks of their own, names of a GPU's copies, layers of a GPU's runtime
calls, transports that moved nothing, a start of a measured operation finer than a quarter of a µs, names of metrics that are
no identifiers, numbers of the task queue (they become connection ids), or counters that CANN has no table for.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from steplens.analysis.memory.memory_categories import CREATE, DESTROY, PREEXISTING, uncategorised_events
from steplens.analysis.steps.ascend_step_times import ascend_step_times
from steplens.common import rundir
from steplens.readers.kineto import kineto
from steplens.run import open_run
from steplens.trace.trace import Trace
from steplens.writers.common.metrics import metric_rows
from steplens.writers.result import DATABASE, TEXT, Settings, write_result

from ..readers.ascend_fixture import write_golden
from ..shared_data import shared
from .ascend import ascend_run, ns
from .builder import BASE_NS, MAIN, PID, build, kernel, op
from .small_training import recorded_on_the_cpu

#: table -> columns that both formats hold; the first ones tell rows apart and order them
COLUMNS: dict[str, tuple[str, ...]] = {
    "ops": (
        "start_ns", "end_ns", "tid", "name", "pid", "parent", "depth", "self_ns", "step", "scope", "sequence", "input_shapes",
        "input_types", "stack", "device_self_ns", "device_total_ns",
    ),
    "python": ("start_ns", "end_ns", "tid", "name", "pid"),
    "task_queue": (
        "enqueue_start_ns", "enqueue_end_ns", "enqueue_tid", "dequeue_start_ns", "dequeue_end_ns", "dequeue_tid", "name", "pid",
    ),
    "kernels": (
        "start_ns", "end_ns", "name", "device", "type", "kind", "core", "step", "op", "blocks", "mix_blocks", "hf32",
        "input_shapes", "input_types", "input_formats", "output_shapes", "output_types", "output_formats", "context_id",
    ),
    "communication": ("start_ns", "end_ns", "name", "kind", "ranks", "device", "step", "op"),
    "api": ("start_ns", "end_ns", "name", "layer", "tid"),
    "steps": ("id", "start_ns", "end_ns"),
    "gc": ("start_ns", "end_ns", "pid"),
    "marks": ("start_ns", "end_ns", "message", "domain", "tid", "kind"),
    "memory": ("time_ns", "component", "allocated", "reserved", "active", "device", "device_type", "stream"),
    "allocations": (
        "allocation_ns", "bytes", "release_ns", "active_release_ns", "name", "component", "allocation_allocated",
        "allocation_reserved", "allocation_active", "release_allocated", "release_reserved", "release_active", "stream",
    ),
    "counters": ("group", "name", "time_ns", "value", "device"),
    "communication_times": (
        "name", "step", "group", "kind", "elapse_ms", "transit_ms", "wait_ms", "synchronization_ms", "idle_ms",
    ),
    "communication_matrix": (
        "selection", "source", "destination", "op_name", "name", "group", "kind", "step", "transport", "size_mb", "transit_ms",
        "bandwidth_gbps",
    ),
}  # fmt: skip

ONLY: dict[str, dict[str, tuple[str, ...]]] = {
    TEXT: {
        "kernels": ("wait_ns", "correlation", "stream"),
        "python": ("parent",),
        "task_queue": ("correlation",),
        "communication_times": ("start_ns",),
        "communication": ("correlation",),
    },
    DATABASE: {"communication": ("group", "algorithm", "elements", "dtype", "correlation"), "kernels": ("stream",)},
}

#: what each format leaves out of a table
_LISTED = ["compute", "communication"]


@pytest.fixture
def reread(tmp_path: Path) -> Callable[..., Trace]:
    def make(trace: Trace, export: str, level: str = "Level1") -> Trace:
        folder = tmp_path / f"{export}{rundir.RUN_SUFFIX}"
        folder.mkdir(exist_ok=True)
        activity = "NPU" if str(trace.meta_values().get("source_format")).startswith("ascend") else "CPU"
        config = {"activities": ["ProfilerActivity.CPU", f"ProfilerActivity.{activity}"]}
        info = {"rank_id": 0, "config": {"common_config": config, "experimental_config": {"_profiler_level": level}}}
        (folder / f"{rundir.INFO_PREFIX}_0.json").write_text(json.dumps(info))
        statuses = write_result(trace, folder, Settings(level=level), export_types=[export])
        assert not [status for status in statuses.values() if status.status == "failed"]
        return open_run(folder).trace()

    return make


def rows(trace: Trace, table: str, columns: tuple[str, ...]) -> list[dict[str, Any]]:
    """The table in a fixed order, names as text; numbers of calls as the names and times of the calls."""
    frame = trace.required(table).collect()
    if table == "kernels":
        frame = frame.filter(pl.col("kind").cast(pl.String).is_in(_LISTED))
        # the row of a collective has no blocks in a database, and the stream of its first task, if it has any
        own = pl.col("kind").cast(pl.String) == "compute"
        frame = frame.with_columns(pl.when(own).then(pl.col("stream", "blocks")))
    if table == "counters":
        # the database has bytes where the text files have KB
        kb = (pl.col("group").cast(pl.String) == "npu_module_mem") & (pl.col("unit").cast(pl.String) == "KB")
        frame = frame.with_columns(value=pl.when(kb).then(pl.col("value") * 1024).otherwise("value"))
    texts = [column for column in columns if frame[column].dtype == pl.Categorical]
    frame = frame.select(columns).cast(dict.fromkeys(texts, pl.String))
    if table == "counters":
        # CANN's database has no sum of the two kinds of memory
        frame = frame.filter(~pl.col("name").str.ends_with("/Memory"))
    return frame.sort(columns, nulls_last=True).to_dicts()


def assert_same(source: Trace, found: Trace, export: str, *, without: dict[str, tuple[str, ...]] | None = None) -> set[str]:
    """Compare every table that the source has; returns the names of those compared."""
    compared = set()
    for table, always in COLUMNS.items():
        left_out = (without or {}).get(table, ())
        columns = tuple(column for column in always + ONLY[export].get(table, ()) if column not in left_out)
        if source.table(table) is None or not columns:
            continue
        expected, actual = rows(source, table, columns), rows(found, table, columns)
        for row in expected + actual:
            for column, value in row.items():
                if isinstance(value, float):
                    row[column] = pytest.approx(value, rel=1e-12)
        assert len(actual) == len(expected), table
        for one, other in zip(expected, actual, strict=True):
            assert one == other, table
        compared.add(table)
    return compared


def measured(trace: Trace) -> list[tuple[Any, ...]]:
    """The metrics of each task as a database names them, by the task's start."""
    starts = trace.required("kernels").select("id", "start_ns").collect()
    joined = metric_rows(trace).join(starts, left_on="kernel", right_on="id")
    return sorted((start, name, round(value, 6)) for value, name, start in joined.select("value", "name", "start_ns").iter_rows())


INNER = ("taskType", "planeId", "notifyId", "srcRank", "dstRank", "transportType", "size", "dataType", "linkType")
#: the largest number of 64 bits means none in a text, that of 63 bits in a database
NO_NOTIFY = {str((1 << 64) - 1): None, str((1 << 63) - 1): None}


def inner_tasks(trace: Trace) -> list[tuple[Any, ...]]:
    """What is known of the tasks that collectives consist of, by the task's start."""
    details = trace.source_table("COMMUNICATION_TASK_INFO")
    if details is None:
        return []
    starts = dict(trace.required("kernels").select("id", "start_ns").collect().iter_rows())
    return sorted(
        (starts[int(row["kernel"])], *(NO_NOTIFY.get(row[column], row[column]) or "" for column in INNER))
        for row in details.iter_rows(named=True)
    )


@pytest.mark.parametrize("export", [TEXT, DATABASE])
def test_a_hand_built_ascend_run(reread: Callable[..., Trace], export: str) -> None:
    source = ascend_run()
    found = reread(source, export)
    without = {
        # pairs: the source has them of the graph engine only, the results of every allocator
        "allocations": COLUMNS["allocations"],
        # the source has a row per operation, the results what was selected of them
        "communication_matrix": COLUMNS["communication_matrix"],
        # which step an operation belongs to is found by its time
        "communication_times": ("step",),
    }
    if export == DATABASE:
        # CANN's database has no table for the counters of QoS that a timeline names
        source = ascend_run(counters=[row for row in source.required("counters").collect().to_dicts() if row["group"] != "QoS"])
    compared = assert_same(source, found, export, without=without)
    assert compared == set(COLUMNS) - {"allocations", "communication_matrix"}
    assert measured(found) == measured(source)
    assert inner_tasks(found) == inner_tasks(source) != []
    # what was derived once stays as it is: the second generation has the same selection and pairs
    again = reread(found, export)
    assert assert_same(found, again, export) == compared | {"allocations", "communication_matrix"}
    links = rows(found, "communication_matrix", COLUMNS["communication_matrix"])
    selected = {(row["name"], row["selection"], row["bandwidth_gbps"]) for row in links}
    assert ("allreduce", "total", 10.6667) in selected


@pytest.mark.parametrize("export", [TEXT, DATABASE])
def test_calls_of_the_operating_system(reread: Callable[..., Trace], tmp_path: Path, export: str) -> None:
    calls = ascend_run().required("api").collect().to_dicts()
    of_system = [
        {"name": name, "layer": "os_runtime", "start_ns": ns(at), "end_ns": ns(at + 0.5), "pid": PID, "tid": MAIN}
        for name, at in (("read", 60), ("futex", 70))
    ]
    source = ascend_run(api=[*calls, *of_system])
    found = reread(source, export)
    assert rows(found, "api", COLUMNS["api"]) == rows(source, "api", COLUMNS["api"])
    if export == TEXT:
        folder = tmp_path / f"{export}{rundir.RUN_SUFFIX}" / rundir.OUTPUT_DIRECTORY
        events = json.loads((folder / "trace_view.json").read_bytes())
        (process,) = (event for event in events if event.get("args", {}).get("name") == "OS Runtime API")
        assert [event["name"] for event in events if event["pid"] == process["pid"] and event["ph"] == "X"] == ["read", "futex"]


@pytest.mark.parametrize("export", [TEXT, DATABASE])
def test_kinds_of_marks(reread: Callable[..., Trace], export: str) -> None:
    kinds = [
        ("point", 30, 30, "marker"),
        ("outer", 31, 39, "push/pop"),
        ("inner", 32, 32, "push/pop"),
        ("free", 33, 50, "start/end"),
    ]
    marks = [
        {"domain": "d", "message": name, "start_ns": ns(start), "end_ns": ns(end), "pid": PID, "tid": MAIN, "kind": kind}
        for name, start, end, kind in kinds
    ]
    source = ascend_run(marks=marks)
    found = reread(source, export)
    assert rows(found, "marks", COLUMNS["marks"]) == rows(source, "marks", COLUMNS["marks"])
    # of a source that does not say it, the length tells a point from a range
    unknown = reread(ascend_run(marks=[{**mark, "kind": None} for mark in marks]), export)
    assert [row["kind"] for row in rows(unknown, "marks", COLUMNS["marks"])] == ["marker", "start/end", "marker", "start/end"]


def test_text_and_database_lead_to_the_same_tables(reread: Callable[..., Trace]) -> None:
    source = ascend_run()
    text, database = reread(source, TEXT), reread(source, DATABASE)
    for table, columns in COLUMNS.items():
        if table == "counters":
            continue
        one, other = rows(text, table, columns), rows(database, table, columns)
        assert len(one) == len(other) > 0, table
        for left, right in zip(one, other, strict=True):
            near = {key: pytest.approx(value) if isinstance(value, float) else value for key, value in left.items()}
            assert near == right, table


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """A training run on the CPU, recorded here."""
    return recorded_on_the_cpu(tmp_path_factory.mktemp("recorded"), steps=2)


@pytest.mark.parametrize("export", [TEXT, DATABASE])
def test_a_run_recorded_on_the_cpu(recorded: Trace, reread: Callable[..., Trace], export: str) -> None:
    # a task of the CPU waits for nothing and needs no connection; an empty list of shapes is none
    without = {"kernels": ("wait_ns", "correlation", "input_shapes"), "ops": ("input_shapes",), "memory": ("device",)}
    found = reread(recorded, export)
    assert assert_same(recorded, found, export, without=without) >= {"ops", "kernels", "python", "memory", "steps"}
    for table, lane in (("ops", "tid"), ("kernels", "stream")):
        shapes = ("start_ns", lane, "name", "input_shapes")
        empty = [{**row, "input_shapes": row["input_shapes"] or None} for row in rows(recorded, table, shapes)]
        assert rows(found, table, shapes) == empty
    assert found.rank == 0
    assert not found.has_accelerator


@pytest.mark.parametrize("export", [TEXT, DATABASE])
def test_memory_over_time_from_results(recorded: Trace, reread: Callable[..., Trace], export: str) -> None:
    """Results hold pairs of allocation and release: the same events, but for releases of what was there before."""
    one, other = (
        uncategorised_events(trace).select("time_ns", "action", "bytes").rows() for trace in (recorded, reread(recorded, export))
    )
    begun = [[row for row in events if row[1] == CREATE] for events in (one, other)]
    assert begun[1] == begun[0] != []
    assert not Counter(row for row in other if row[1] == DESTROY) - Counter(row for row in one if row[1] == DESTROY)
    before = [sum(row[2] for row in events if row[1] == PREEXISTING) for events in (one, other)]
    assert before[1] == before[0]


@pytest.mark.parametrize("export", [TEXT, DATABASE])
@pytest.mark.parametrize("sample", ["text_level0", "text_level1", "db_level0", "db_level2"])
def test_a_recorded_ascend_run(reread: Callable[..., Trace], sample: str, export: str) -> None:
    source_folder = shared("ascend_pytorch", sample, "rank0_ascend_pt")
    from steplens.readers.ascend.database import ascend_db
    from steplens.readers.ascend.text import ascend_text

    # read here and not opened: opening would write its cache beside the data
    reader = ascend_text if sample.startswith("text") else ascend_db
    source = reader.read_trace(source_folder / rundir.OUTPUT_DIRECTORY, source_folder)
    level = sample.rpartition("_")[2].replace("level", "Level")
    without: dict[str, tuple[str, ...]] = {
        "counters": COLUMNS["counters"],
        # in the profiler's own timeline five copies share their arrow with the kernel before them, here they have their own
        "ops": ("device_self_ns", "device_total_ns"),
    }
    if level == "Level0" and export == TEXT:
        # as in the files of the Ascend profiler: no runtime calls, and the short layout of kernel_details.csv
        without |= {"api": COLUMNS["api"], "kernels": ("mix_blocks", "hf32", "context_id")}
    found = reread(source, export, level)
    compared = assert_same(source, found, export, without=without)
    assert compared >= {"ops", "python", "task_queue", "kernels", "communication", "memory", "allocations", "steps"}
    assert measured(found) == measured(source)
    # at Level0 nothing is known of a collective's tasks but that they are its own, which only a database says
    known = inner_tasks(source)
    assert level == "Level0" or inner_tasks(found) == known
    assert (len(known) > 200) == (level != "Level0")


@pytest.mark.parametrize("export", [TEXT, DATABASE])
def test_a_raw_ascend_capture(reread: Callable[..., Trace], tmp_path: Path, export: str) -> None:
    source = open_run(write_golden(tmp_path / "source")).trace()
    without: dict[str, tuple[str, ...]] = {
        # scopes follow from names; here the step's own range has the scope of an operator
        "ops": ("scope",),
        # neither form holds memory of the CPU, a database none of the whole process, and both have all pairs
        **{table: COLUMNS[table] for table in ("memory", "allocations", "communication_matrix")},
        "communication_times": ("step",),
        "communication": ("correlation",),
    }
    compared = assert_same(source, reread(source, export), export, without=without)
    assert compared >= {"ops", "python", "task_queue", "kernels", "communication", "api", "steps", "gc", "communication_times"}


@pytest.mark.parametrize("export", [TEXT, DATABASE])
@pytest.mark.parametrize("sample", ["cuda_alexnet", "cuda_nccl_distributed", "cuda_ns_resolution_rank0"])
def test_a_recorded_cuda_trace(reread: Callable[..., Trace], sample: str, export: str) -> None:
    files = sorted(shared("kineto").glob(f"{sample}*"))
    source = kineto.read(files[0])
    found = reread(source, export)
    without: dict[str, tuple[str, ...]] = {
        # what results write of a GPU's collectives is read back as measured
        "communication_times": COLUMNS["communication_times"],
        "communication_matrix": COLUMNS["communication_matrix"],
        # annotations as the device saw them: nobody recorded how, and they have no thread
        "marks": ("tid", "kind"),
        # an arrow begins at the start of the call; of two that start together the inner one gets the collective
        **({"ops": ("device_self_ns", "device_total_ns"), "communication": ("op",)} if export == TEXT else {}),
        "kernels": ("op",) if export == TEXT else ("type",),
    }
    if export == DATABASE:
        # names of layers of a GPU's runtime; threads have 32 bits
        without["api"] = ("layer", "tid")
        without["communication"] = ("dtype",)
    compared = assert_same(source, found, export, without=without)
    assert compared >= {"ops", "kernels", "api"}
    assert [found.required(table).collect().height for table in ("kernels", "communication")] == [
        source.required(table).collect().height for table in ("kernels", "communication")
    ]
    assert found.has_accelerator
    times = [ascend_step_times(trace, whole_trace_without_steps=True).rows() for trace in (found, source)]
    assert times[0] == times[1]


@pytest.mark.parametrize("export", [TEXT, DATABASE])
def test_collectives_of_a_cpu_keep_their_names(reread: Callable[..., Trace], export: str) -> None:
    names = ("gloo:all_reduce", "gloo:broadcast", "gloo:all_reduce")
    spans = [(10 * number, 10 * number + 5) for number in range(1, 4)]
    source = build(
        meta={"rank": 0, "world_size": 2},
        ops=[op("aten::mm", 1, 6), *(op(name, *span) for name, span in zip(names, spans, strict=True))],
        kernels=[kernel("aten::mm", 1, 6, op=0)],
        communication=[
            {
                "name": name, "kind": "collective", "operation": name.partition(":")[2].replace("_", ""), "device": 0,
                "stream": MAIN, "start_ns": BASE_NS + start * 1000, "end_ns": BASE_NS + end * 1000, "op": number,
            }
            for number, (name, (start, end)) in enumerate(zip(names, spans, strict=True), 1)
        ],
    )  # fmt: skip
    found = reread(source, export)
    assert not found.has_accelerator
    columns = ("start_ns", "end_ns", "name", "kind", "device")
    assert rows(found, "communication", columns) == rows(source, "communication", columns)
