"""The text files and the databases of one result hold the same rows: every table that is in both, cell by cell.

Each run is written as both; the texts are then compared with what SQL says. What is allowed to differ: texts are µs with three
digits and MB, the database ns and bytes; averages and shares of a text are rounded to three digits; an unknown value is ``N/A``,
an empty cell, NULL or the largest number of its column; the samples of component APP are in the text only.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from steplens.common import rundir
from steplens.readers.kineto import kineto
from steplens.run import open_run
from steplens.trace.trace import Trace
from steplens.writers.common.output import NPU, device_kind
from steplens.writers.result import DATABASE, TEXT, Settings, write_result

from ..readers.ascend_fixture import write_golden
from ..shared_data import shared
from .ascend import ascend_run
from .small_training import recorded_on_the_cpu

NONE = 4294967295


class Both:
    """One result in both forms.

    Attributes:
        folder: ``ASCEND_PROFILER_OUTPUT``.
        base_ns: what the times of the texts are relative to.
        events: those of trace_view.json, with ``process``, the name of their process.
    """

    def __init__(self, trace: Trace, run: Path) -> None:
        statuses = write_result(trace, run, Settings(level="Level1"), export_types=(TEXT, DATABASE))
        assert not [status for status in statuses.values() if status.status == "failed"], statuses
        self.folder = run / rundir.OUTPUT_DIRECTORY
        self.trace = trace
        self.base_ns = json.loads((self.folder / rundir.STATUS_FILE).read_bytes())["base_time_ns"]
        events = json.loads((self.folder / "trace_view.json").read_bytes(), parse_float=Decimal)
        names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
        self.lanes = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
        self.events = [{**event, "process": names.get(event["pid"])} for event in events if event["ph"] in "XC"]
        self.connection = sqlite3.connect(f"file:{next(self.folder.glob('ascend_pytorch_profiler*.db'))}?mode=ro", uri=True)
        self.analysis = sqlite3.connect(f"file:{self.folder / 'analysis.db'}?mode=ro", uri=True)
        self.texts = dict(self.rows("SELECT id, value FROM STRING_IDS"))

    def has(self, table: str) -> bool:
        return bool(self.rows(f"SELECT 1 FROM sqlite_master WHERE name = '{table}'"))

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(query).fetchall()

    def cells(self, name: str) -> list[dict[str, str]]:
        text = (self.folder / name).read_bytes().decode()
        return [{key: cell.strip("\t") for key, cell in row.items()} for row in csv.DictReader(io.StringIO(text, newline=""))]

    def drawn(self, process: str, category: str | None = None) -> list[dict[str, Any]]:
        """The complete events of a layer, times in Unix ns."""
        return [
            {**event, "start": whole(event["ts"] * 1000) + self.base_ns, "length": whole(event["dur"] * 1000)}
            for event in self.events
            if event["ph"] == "X" and event["process"] == process and event.get("cat") == category
        ]

    def text(self, number: int | None) -> str | None:
        return None if number is None or number == NONE else self.texts[number]

    def ns(self, cell: str, *, since_base: bool = True) -> int | None:
        return whole(Decimal(cell) * 1000) + (self.base_ns if since_base else 0) if cell and cell != "N/A" else None

    def length(self, cell: str) -> int | None:
        return self.ns(cell, since_base=False)

    def cell(self, title: str, value: int | None) -> int | str | None:
        """A value of the database as the cell of kernel_details.csv with this title has it."""
        if value == NONE or value is None:
            return None
        return value if COMPUTED[title].endswith(("Num", "Id")) else known(self.texts[value])


def whole(value: Decimal | int) -> int:
    """A number that must be whole: no text holds less than a ns."""
    assert value == int(value), value
    return int(value)


def known(cell: str) -> str | None:
    return None if cell in ("", "N/A") else cell


def number(cell: str) -> int | None:
    return None if known(cell) is None or int(cell) == NONE else int(cell)


def megabytes(cell: str) -> int | None:
    """Bytes of a cell in MB, which is a double's shortest text: a byte's exact share of a MB may have more digits."""
    if not known(cell):
        return None
    exact = Decimal(cell) * (1 << 20)
    assert abs(exact - round(exact)) < Decimal("1e-6"), cell
    return round(exact)


def sample_trace(name: str) -> Trace:
    files = sorted(shared("kineto").glob(f"{name}*"))
    return kineto.read(files[0])


def ascend_sample(name: str) -> Trace:
    folder = shared("ascend_pytorch", name, "rank0_ascend_pt")
    from steplens.readers.ascend.database import ascend_db
    from steplens.readers.ascend.text import ascend_text

    # read here and not opened: opening would write its cache beside the data
    reader = ascend_text if name.startswith("text") else ascend_db
    return reader.read_trace(folder / rundir.OUTPUT_DIRECTORY, folder)


SOURCES = {
    "recorded on the CPU": lambda folder: recorded_on_the_cpu(folder, steps=3),
    "golden Ascend capture": lambda folder: open_run(write_golden(folder)).trace(),
    "hand-built Ascend run": lambda folder: ascend_run(),
    "Ascend database, Level2": lambda folder: ascend_sample("db_level2"),
    "Ascend text, Level1": lambda folder: ascend_sample("text_level1"),
    "CUDA": lambda folder: sample_trace("cuda_alexnet"),
    "CUDA with NCCL": lambda folder: sample_trace("cuda_nccl_distributed"),
}


@pytest.fixture(scope="module", params=SOURCES)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    folder = tmp_path_factory.mktemp("both")
    trace = SOURCES[request.param](folder / "source")
    run = folder / f"result{rundir.RUN_SUFFIX}"
    run.mkdir()
    result = Both(trace, run)
    yield result
    result.connection.close()
    result.analysis.close()


def test_step_times(both: Both) -> None:
    cells = [[number(row["Device_id"]), row["Step"], *(Decimal(cell) for cell in list(row.values())[2:])]
             for row in both.cells("step_trace_time.csv")]  # fmt: skip
    rows = both.analysis.execute("SELECT * FROM StepTraceTime").fetchall()
    assert [[row[0], row[1], *(Decimal(str(cell)) for cell in row[2:])] for row in rows] == cells
    assert cells
    # and the host's range of every step
    steps = Counter(
        (event["name"], event["start"], event["length"])
        for event in both.drawn("Python", "cpu_op")
        if event["name"].startswith("ProfilerStep#")
    )
    if both.trace.table("steps") is not None:
        found = Counter((f"ProfilerStep#{number}", a, b - a) for number, a, b in both.rows("SELECT * FROM STEP_TIME"))
        assert found == steps or not steps


COMPUTED = {
    "Block Num": "blockNum", "Mix Block Num": "mixBlockNum", "Context ID": "contextId", "Model ID": "modelId",
    "Task ID": "taskId", "Stream ID": "streamId", "Name": "name", "Accelerator Core": "taskType", "Type": "opType",
    "OP State": "opState", "HF32 Eligible": "hf32Eligible", "Input Shapes": "inputShapes", "Input Data Types": "inputDataTypes",
    "Input Formats": "inputFormats", "Output Shapes": "outputShapes", "Output Data Types": "outputDataTypes",
    "Output Formats": "outputFormats",
}  # fmt: skip


def test_device_tasks(both: Both) -> None:
    """kernel_details.csv is TASK with COMPUTE_TASK_INFO, column by column, and COMMUNICATION_OP, and a GPU's copies."""
    npu = device_kind(both.trace) == NPU
    # what is no NPU's task has the number of the call that launched it in the text, and its own in the database
    titles = [title for title in COMPUTED if npu or title != "Task ID"]
    columns = ", ".join(
        ("t." if title in ("Context ID", "Model ID", "Task ID", "Stream ID") else "c.") + COMPUTED[title] for title in titles
    )
    found = Counter(
        (device, start, length, *(both.cell(title, value) for title, value in zip(titles, values, strict=True)))
        for device, start, length, *values in both.rows(
            f"SELECT t.deviceId, t.startNs, t.endNs - t.startNs, {columns} FROM COMPUTE_TASK_INFO c "
            "JOIN TASK t USING (globalTaskId)"
        )
    )
    listed = both.cells("kernel_details.csv")
    expected = Counter(
        (
            int(row["Device_id"]), both.ns(row["Start Time(us)"]), both.length(row["Duration(us)"]),
            *(number(row[title]) if COMPUTED[title].endswith(("Num", "Id")) else known(row[title]) for title in titles),
        )
        for row in listed
    )  # fmt: skip
    assert not found - expected
    others = expected - found
    spans = "SELECT t.deviceId, t.startNs, t.endNs - t.startNs FROM"
    elsewhere = Counter(both.rows(f"{spans} MEMCPY_INFO JOIN TASK t USING (globalTaskId)") if both.has("MEMCPY_INFO") else ())
    collectives = Counter(both.rows(f"{spans} COMMUNICATION_OP t") if both.has("COMMUNICATION_OP") else ())
    if not npu:
        types = {both.text(kind) for (kind,) in both.rows("SELECT DISTINCT taskType FROM TASK")}
        elsewhere += Counter(
            (device, start, length)
            for device, start, length, kind in both.rows(f"{spans.replace(' FROM', ', t.taskType FROM')} TASK t")
            if str(both.text(kind)).startswith(("Memset", "MEMCPY"))
        )
        assert types
    left = Counter({key[:3]: 0 for key in others}) + Counter(key[:3] for key in others.elements())
    assert not left - (elsewhere + collectives)
    # an Ascend capture lists only those collectives whose first task it knows
    assert not Counter() - collectives if not npu else not (left - elsewhere) - collectives
    assert sum(found.values()) > 0


def test_measurements_of_device_tasks(both: Both) -> None:
    """The columns behind those of kernel_details.csv are the rows of TASK_PMU_INFO."""
    fixed = {*COMPUTED, "Step Id", "Device_id", "Start Time(us)", "Duration(us)", "Wait Time(us)"}
    called = {"aicore_time(us)": "aic_total_time", "aiv_time(us)": "aiv_total_time", "cube_utilization(%)": "cube_utilization"}
    expected: list[Any] = []
    for row in both.cells("kernel_details.csv"):
        for title in set(row) - fixed:
            if known(row[title]) is not None:
                name = called.get(title, title.removesuffix("(us)"))
                value = float(row[title]) * (1000 if title.endswith("(us)") else 1)
                expected.append((both.ns(row["Start Time(us)"]), re.sub(r"\W+", "_", name).strip("_"), value))
    found: list[Any] = []
    if both.has("TASK_PMU_INFO"):
        query = "SELECT t.startNs, p.name, p.value FROM TASK_PMU_INFO p JOIN TASK t USING (globalTaskId)"
        found = [(start, both.text(name), value) for start, name, value in both.rows(query)]
    assert [row[:2] for row in sorted(found)] == [row[:2] for row in sorted(expected)]
    assert [row[2] for row in sorted(found)] == pytest.approx([row[2] for row in sorted(expected)], rel=1e-9)


def test_timeline_of_the_device(both: Both) -> None:
    tasks = Counter(
        (start, length, device, stream, connection)
        for start, length, device, stream, connection in both.rows(
            "SELECT startNs, endNs - startNs, deviceId, streamId, connectionId FROM TASK"
        )
    )
    events = both.drawn("Ascend Hardware")
    # a task without a connection in the source has a number of its own in the database
    free = {key[4] for key in tasks} - {event["args"].get("connection_id") for event in events}
    assert Counter((*key[:4], None if key[4] in free else key[4]) for key in tasks.elements()) == Counter(
        (event["start"], event["length"], event["pid"] % 32, event["tid"], event["args"].get("connection_id")) for event in events
    )
    lanes = {"Computing": 0, "Communication": 1, "Communication(Not Overlapped)": 2, "Free": 3}
    overlap = Counter((lanes[event["name"]], event["start"], event["length"]) for event in both.drawn("Overlap Analysis"))
    assert Counter(both.rows("SELECT type, startNs, endNs - startNs FROM OVERLAP_ANALYSIS")) == overlap


def test_timeline_of_the_host(both: Both) -> None:
    """PYTORCH_API, CANN_API, OSRT_API, MSTX_EVENTS and GC_RECORD are the layers of the timeline, with the arguments of calls."""
    queue = [*both.drawn("Python", "enqueue"), *both.drawn("Python", "dequeue")]
    api = "SELECT name, startNs, endNs - startNs, globalTid & 4294967295 FROM PYTORCH_API WHERE type"
    for number_of_type, events in ((50003, both.drawn("Python", "python_function")), (50002, queue)):
        assert Counter((both.text(name), *more) for name, *more in both.rows(f"{api} = {number_of_type}")) == Counter(
            (event["name"], event["start"], event["length"], event["tid"]) for event in events
        )
    stacks: dict[int, list[str]] = {}
    for chain, frame, _ in (
        both.rows("SELECT id, stack, stackDepth FROM PYTORCH_CALLCHAINS ORDER BY id, stackDepth")
        if both.has("PYTORCH_CALLCHAINS")
        else ()
    ):
        stacks.setdefault(chain, []).append(both.texts[frame])
    found = Counter(
        (
            both.text(name), start, length, thread, sequence, forward, both.text(types), both.text(shapes),
            ";\r\n".join(stacks[chain]) if chain is not None else None,
        )
        for name, start, length, thread, sequence, forward, types, shapes, chain in both.rows(
            "SELECT name, startNs, endNs - startNs, globalTid & 4294967295, sequenceNumber, fwdThreadId, inputDtypes, "
            "inputShapes, callchainId FROM PYTORCH_API WHERE type IN (50001, 50004)"
        )
    )  # fmt: skip
    assert found == Counter(
        (
            event["name"], event["start"], event["length"], event["tid"], event["args"]["Sequence number"],
            event["args"]["Fwd thread id"],
            *(event["args"].get(title) or None for title in ("Input type", "Input Dims", "Call stack")),
        )
        for event in both.drawn("Python", "cpu_op")
    )  # fmt: skip
    if both.has("CANN_API"):
        calls = "SELECT startNs, endNs - startNs, globalTid & 4294967295, name FROM"
        rows = both.rows(f"{calls} CANN_API") + (both.rows(f"{calls} OSRT_API") if both.has("OSRT_API") else [])
        events = both.drawn("CANN") + both.drawn("OS Runtime API")
        # where the CPU is the device, the database has a launch of no length for each of its tasks
        launches = [row for row in rows if both.text(row[3]) != "launch" or row[1] or device_kind(both.trace) == NPU]
        assert Counter((*row[:3], both.text(row[3])) for row in launches) == Counter(
            # threads have 32 bits in the database
            (event["start"], event["length"], event["tid"] % (1 << 32), event["name"].rpartition("@")[2])
            for event in events
        )
    collections = Counter(both.rows("SELECT startNs, endNs - startNs FROM GC_RECORD") if both.has("GC_RECORD") else ())
    assert collections == Counter((event["start"], event["length"]) for event in both.drawn("Python GC", "GC"))
    marks = "SELECT startNs, endNs - startNs, message, domainId FROM MSTX_EVENTS"
    assert Counter(
        (start, length, both.text(message), both.text(domain))
        for start, length, message, domain in (both.rows(marks) if both.has("MSTX_EVENTS") else ())
    ) == Counter(
        (event["start"], event["length"], event["name"], event["args"]["domain"]) for event in both.drawn("MSTX", "mstx")
    )


def test_operator_details(both: Both) -> None:
    """Host and device times of every operator call, the device's by the connections of the database.

    A call has the time of the tasks that it launched and that compute or copy; a collective counts as a whole.
    """
    lengths: dict[int, int] = {}
    npu = device_kind(both.trace) == NPU
    collectives = both.rows("SELECT connectionId, endNs - startNs FROM COMMUNICATION_OP") if both.has("COMMUNICATION_OP") else []
    useful = [f"SELECT globalTaskId FROM {table}" for table in ("COMPUTE_TASK_INFO", "MEMCPY_INFO") if both.has(table)]
    tasks = "SELECT connectionId, endNs - startNs FROM TASK"
    copies = "taskType = (SELECT id FROM STRING_IDS WHERE value = 'MEMCPY_ASYNC')"
    rows = both.rows(f"{tasks} WHERE globalTaskId IN ({' UNION '.join(useful)}) OR {copies}" if npu else tasks)
    rows += collectives if npu else []
    if both.trace.meta_values().get("source_format") == "ascend_text":
        # of several tasks that share a connection that timeline has an arrow to the first one only
        rows = list({connection: (connection, length) for connection, length in reversed(rows)}.values())
    for connection, length in rows:
        lengths[connection] = lengths.get(connection, 0) + length
    launched: dict[int, int] = {}
    linked = "SELECT p.rowid, c.connectionId FROM PYTORCH_API p JOIN CONNECTION_IDS c ON p.connectionId = c.id"
    for row, connection in both.rows(linked) if both.has("CONNECTION_IDS") else ():
        launched[row] = launched.get(row, 0) + lengths.get(connection, 0)
    found = Counter(
        (both.text(name), both.text(shapes), length, launched.get(row, 0))
        for row, name, shapes, length in both.rows(
            "SELECT rowid, name, inputShapes, endNs - startNs FROM PYTORCH_API WHERE type IN (50001, 50004)"
        )
        if not str(both.text(name)).startswith("ProfilerStep#")
    )
    assert found == Counter(
        (
            row["Name"], row["Input Shapes"] or None, both.length(row["Host Total Duration(us)"]),
            both.length(row["Device Self Duration(us)"]),
        )
        for row in both.cells("operator_details.csv")
    )  # fmt: skip


def test_memory(both: Both) -> None:
    if not (both.folder / "memory_record.csv").exists():
        assert not both.has("MEMORY_RECORD") and not both.has("OP_MEMORY")
        return
    totals = ("Allocated", "Reserved", "Active")
    record = "SELECT component, timestamp, totalAllocated, totalReserved, totalActive, streamPtr, deviceId FROM MEMORY_RECORD"
    assert [(both.text(component), *more) for component, *more in both.rows(record)] == [
        (
            row["Component"], both.ns(row["Timestamp(us)"]), *(megabytes(row[f"Total {total}(MB)"]) for total in totals),
            number(row["Stream Ptr"]), int(row["Device Type"].removeprefix("NPU:").replace("CPU", "0")),
        )
        for row in both.cells("memory_record.csv")
        if row["Component"] != "APP"
    ]  # fmt: skip
    times = ("Allocation Time", "Release Time", "Active Release Time", "Duration", "Active Duration")
    sums = [f"{when} Total {total}(MB)" for when in ("Allocation", "Release") for total in totals]
    assert [(both.text(name), *more) for name, *more in both.rows("SELECT * FROM OP_MEMORY")] == [
        (
            row["Name"].removeprefix("cann::") or None, whole(Decimal(row["Size(KB)"]) * 1024),
            *(both.ns(row[f"{time}(us)"], since_base="Time" in time) for time in times),
            *(megabytes(row[title]) for title in sums), number(row["Stream Ptr"]),
            int(row["Device Type"].removeprefix("NPU:").replace("CPU", "0")),
        )
        for row in both.cells("operator_memory.csv")
    ]  # fmt: skip


def test_memory_of_modules(both: Both) -> None:
    if not (both.folder / "npu_module_mem.csv").exists():
        assert not both.has("NPU_MODULE_MEM")
        return
    modules = dict(both.rows("SELECT id, name FROM ENUM_MODULE"))
    rows = both.rows("SELECT deviceId, moduleId, timestampNs, totalReserved FROM NPU_MODULE_MEM")
    assert [(device, modules[module], *more) for device, module, *more in rows] == [
        (int(row["Device_id"]), row["Component"], both.ns(row["Timestamp(us)"]), megabytes(row["Total Reserved(MB)"]))
        for row in both.cells("npu_module_mem.csv")
    ]


def rounded(row: dict[str, str], titles: list[str]) -> list[float]:
    return [float(row[title]) for title in titles]


def test_statistic_of_device_tasks(both: Both) -> None:
    """op_statistic.csv is what SQL adds up of COMPUTE_TASK_INFO, and of a GPU's copies."""
    titles = ["Count", "Total Time(us)", "Min Time(us)", "Avg Time(us)", "Max Time(us)", "Ratio(%)"]
    cells = {(row["OP Type"], row["Core Type"]): rounded(row, titles) for row in both.cells("op_statistic.csv")}
    spans: dict[tuple[str | None, str | None], list[int]] = {}
    for kind, core, length in both.rows(
        "SELECT c.opType, c.taskType, t.endNs - t.startNs FROM COMPUTE_TASK_INFO c JOIN TASK t USING (globalTaskId)"
    ):
        spans.setdefault((both.text(kind), both.text(core)), []).append(length)
    copies = {key for key in cells if key not in spans}
    assert all(key[0].startswith(("Memcpy", "Memset", "gpu_mem")) for key in copies)
    total = sum(map(sum, spans.values())) + sum(cells[key][1] for key in copies) * 1000
    assert {key: values for key, values in cells.items() if key not in copies} == {
        key: pytest.approx(
            [len(of), sum(of) / 1000, min(of) / 1000, sum(of) / len(of) / 1000, max(of) / 1000, sum(of) / total * 100], abs=6e-4
        )
        for key, of in spans.items()
    }


def test_statistic_of_runtime_calls(both: Both) -> None:
    if both.trace.table("api") is None or both.trace.source_table("api_statistic") is not None:
        # none, or as the source has it: then it may count calls that its timeline does not show
        return
    titles = ["Count", "Time(us)", "Min(us)", "Avg(us)", "Max(us)", "Variance"]
    lengths: dict[str, list[int]] = {}
    rows = both.rows("SELECT name, endNs - startNs FROM CANN_API")
    rows += both.rows("SELECT name, endNs - startNs FROM OSRT_API") if both.has("OSRT_API") else []
    for name, length in rows:
        lengths.setdefault(both.texts[name], []).append(length)
    cells = both.cells("api_statistic.csv")
    by_name = Counter(row["API Name"] for row in cells)
    assert set(by_name) == set(lengths)
    for row in cells:
        if by_name[row["API Name"]] == 1:
            of = lengths[row["API Name"]]
            mean = sum(of) / len(of)
            variance = sum((length - mean) ** 2 for length in of) / len(of) / 1e6
            expected = [len(of), sum(of) / 1000, min(of) / 1000, mean / 1000, max(of) / 1000, variance]
            assert rounded(row, titles) == pytest.approx(expected, rel=1e-5, abs=6e-4), row["API Name"]


def test_collectives(both: Both) -> None:
    if not both.has("COMMUNICATION_OP"):
        assert not both.drawn("Communication")
        return
    planes = [event for event in both.drawn("Communication") if "plane" in event["args"]]
    groups = [event for event in both.drawn("Communication") if "plane" not in event["args"]]
    types = dict(both.rows("SELECT id, name FROM ENUM_HCCL_DATA_TYPE"))
    rows = both.rows(
        "SELECT opName, startNs, endNs - startNs, deviceId, groupName, algType, count, rankSize, dataType FROM COMMUNICATION_OP"
    )
    found = Counter((both.text(name), *more[:3], *map(_known, map(both.text, more[3:5])), *more[5:7]) for name, *more in rows)
    assert found == Counter(
        (
            event["name"], event["start"], event["length"], event["pid"] % 32, event["args"].get("group"),
            event["args"].get("alg_type"), event["args"].get("count"), event["args"].get("ranks"),
        )
        for event in groups
    )  # fmt: skip
    texts = {event["args"].get("data_type") for event in groups}
    numbers = {types[row[-1]] for row in rows}
    # element types have CANN's names in the database
    assert len(numbers - {"N/A", "INVALID_TYPE"}) <= len(texts - {None})
    if planes:
        inner = both.rows(
            "SELECT i.taskType, t.startNs, t.endNs - t.startNs, i.planeId, i.srcRank, i.dstRank, i.size "
            "FROM COMMUNICATION_TASK_INFO i JOIN TASK t USING (globalTaskId)"
        )
        found = Counter((both.text(name), *more) for name, *more in inner)
        drawn = Counter(
            (
                event["name"], event["start"], event["length"], event["args"]["plane"], event["args"].get("src rank"),
                event["args"].get("dst rank"), event["args"].get("size(Byte)"),
            )
            for event in planes
        )  # fmt: skip
        assert found == drawn


def _known(text: str | None) -> str | None:
    return None if text in ("N/A", "") else text


def _communication(both: Both, name: str) -> Iterator[tuple[str, str, str, str, dict[str, Any]]]:
    """step, class, operation, group and content of every entry of a file of communication."""
    for step, classes in json.loads((both.folder / name).read_bytes()).items():
        for kind, entries in classes.items():
            for key, entry in entries.items():
                if key != "Total Op Info":
                    operation, _, group = key.rpartition("@")
                    yield step, kind, operation, group, entry


def test_all_texts_count_from_one_base_which_three_files_state(both: Both) -> None:
    """The clients join the files by time, so none may have a clock of its own; the other tests compare every cell."""
    stated = json.loads((both.folder.parent / rundir.METADATA_FILE).read_bytes())["base_time_ns"]
    first = json.loads((both.folder / "trace_view.json").read_bytes())[0]
    assert stated == first["args"]["base_time_ns"] == both.base_ns
    drawn = {event["ts"] for event in both.events}
    starts = {Decimal(row["Start Time(us)"]) for row in both.cells("kernel_details.csv")}
    # a task of the CPU begins with its call; a device's tasks are drawn themselves
    assert starts and starts <= drawn


def test_what_was_measured_of_collectives(both: Both) -> None:
    if not (both.folder / "communication.json").exists():
        return
    parts = ("Elapse", "Transit", "Wait", "Synchronization", "Idle")
    found = both.analysis.execute(
        "SELECT step, type, hccl_op_name, group_name, start_timestamp, elapse_time, transit_time, wait_time, "
        "synchronization_time, idle_time FROM CommAnalyzerTime ORDER BY 1, 2, 3, 4, 5"
    ).fetchall()
    expected = []
    bandwidth: Counter[Any] = Counter()
    for step, kind, name, group, entry in _communication(both, "communication.json"):
        info = entry["Communication Time Info"]
        times = [info.get(f"{part} Time(ms)") for part in parts]
        start = info["Start Timestamp(us)"]
        expected.append([step, kind, name, group, start if start is None else start + both.base_ns / 1000, *times])
        for transport, moved in entry["Communication Bandwidth Info"].items():
            values = [moved.get(title, 0) for title in ("Transit Size(MB)", "Transit Time(ms)", "Bandwidth(GB/s)")]
            sizes = moved.get("Size Distribution") or ({0: [0, 0]} if any(values) else {})
            for size, (count, duration) in sizes.items():
                bandwidth[(step, kind, name, group, transport, *map(float, values), float(size), count, float(duration))] += 1
    expected.sort(key=lambda row: [str(cell) for cell in row[:4]] + [row[4]])
    assert len(found) == len(expected) > 0
    for row, wanted in zip(sorted(found, key=lambda row: [*row[:4], row[4]]), expected, strict=True):
        # the start is a floating-point number of µs since the epoch: a quarter of a µs
        assert list(row[:4]) == wanted[:4] and row[4] == pytest.approx(wanted[4], abs=0.3, rel=0)
        # a text says 0 where the database says NULL
        assert [value or 0 for value in row[5:]] == [value or 0 for value in wanted[5:]]
    query = (
        "SELECT step, type, hccl_op_name, group_name, transport_type, transit_size, transit_time, bandwidth, package_size, "
        "count, total_duration FROM CommAnalyzerBandwidth"
    )
    rows = both.analysis.execute(query).fetchall()
    # what a text leaves out is NULL here
    numbers = [(*row[:5], *(float(value or 0) for value in row[5:9]), row[9], float(row[10])) for row in rows]
    assert Counter(numbers) == bandwidth


def test_links_between_ranks(both: Both) -> None:
    if not (both.folder / "communication_matrix.json").exists():
        return
    query = (
        "SELECT step, type, hccl_op_name, group_name, src_rank, dst_rank, transport_type, transit_size, transit_time, bandwidth, "
        "op_name FROM CommAnalyzerMatrix"
    )
    found = Counter((*row[:7], *(value or 0 for value in row[7:10]), row[10]) for row in both.analysis.execute(query))
    expected = Counter(
        (
            step, kind, name, group, *link.split("-"), info["Transport Type"],
            *(info.get(title, 0) for title in ("Transit Size(MB)", "Transit Time(ms)", "Bandwidth(GB/s)")),
            info.get("Op Name", ""),
        )
        for step, kind, name, group, links in _communication(both, "communication_matrix.json")
        for link, info in links.items()
    )  # fmt: skip
    assert found == expected
    assert all(math.isfinite(value) for row in found for value in row[7:10])


#: table -> process of the timeline; column -> its track (other columns of the row in braces), and a divisor of its values
SAMPLES: dict[str, tuple[str, dict[str, tuple[str, float]]]] = {
    "AICORE_FREQ": ("AI Core Freq", {"freq": ("AI Core Freq", 1)}),
    "HBM": ("HBM", {"bandwidth": ("HBM {hbmId}/{type}", 1 << 20)}),
    "LLC": (
        "LLC",
        {"throughput": ("LLC {llcId} {mode}/Throughput", 1 << 20), "hitRate": ("LLC {llcId} {mode}/Hit Rate", 1)},
    ),
    "NPU_MEM": ("NPU MEM", {"ddr": ("{type}/DDR", 1024), "hbm": ("{type}/HBM", 1024)}),
    "SOC_BANDWIDTH_LEVEL": (
        "Stars Soc Info",
        {"l2BufferBwLevel": ("L2 Buffer Bw Level", 1), "mataBwLevel": ("Mata Bw Level", 1)},
    ),
    "ACC_PMU": (
        "Acc PMU",
        {
            "readBwLevel": ("read_bandwidth {accId}", 1),
            "writeBwLevel": ("write_band_width {accId}", 1),
            "readOstLevel": ("read_ost {accId}", 1),
            "writeOstLevel": ("write_ost {accId}", 1),
        },
    ),
}


@pytest.mark.parametrize("table", SAMPLES)
def test_samples(both: Both, table: str) -> None:
    """Tracks of the timeline are the rows of the tables of samples; names of directions differ in upper and lower case."""
    process, columns = SAMPLES[table]
    drawn = sorted(
        (event["name"].lower(), whole(event["ts"] * 1000) + both.base_ns, float(value))
        for event in both.events
        if event["ph"] == "C" and event["process"] == process
        for value in event["args"].values()
        # no column has a sum of the two kinds of memory
        if not event["name"].endswith("/Memory")
    )
    stored = []
    if both.has(table):
        cursor = both.connection.execute(f"SELECT * FROM {table}")
        titles = [column[0] for column in cursor.description]
        for values in cursor:
            row = dict(zip(titles, values, strict=True))
            words = {key: both.texts.get(value, value) if key in ("type", "mode") else value for key, value in row.items()}
            for column, (track, divisor) in columns.items():
                if row[column] is not None:
                    name = track.format(**words).removesuffix(" None").lower()
                    stored.append((name, row["timestampNs"], row[column] / divisor))
    assert [row[:2] for row in sorted(stored)] == [row[:2] for row in drawn]
    # a database has whole bytes
    assert [row[2] for row in sorted(stored)] == pytest.approx([row[2] for row in drawn], abs=2e-6, rel=1e-9)
