"""Samples and allocator events in a database: those of the host, of AI cores, and the graph engine's own table."""

from __future__ import annotations

import json
import sqlite3
import time
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import steplens
from steplens.common import rundir
from steplens.readers.ascend.database import ascend_db
from steplens.trace.health import HealthLog
from steplens.writers.common.output import LEVEL1, Output, time_base_ns
from steplens.writers.database import database

from ..shared_data import shared
from .ascend import ascend_run, ns

HOST = [
    ("CPU Usage", "CPU Usage", "%", 180.0),
    ("CPU Usage", "CPU 3", "%", 12.5),
    ("CPU Usage", "CPU 11", "%", 99.0),
    ("Memory Usage", "Memory Usage", "%", 7.25),
    ("Memory Usage", "Memory/Resident", "KB", 4096.0),
    ("Disk Usage", "Disk/Read", "KB/s", 1.5),
    ("Disk Usage", "Disk/Write", "KB/s", 2.5),
    ("Network Usage", "Network/Speed", "KB/s", 30.0),
    ("Network Usage", "Network/Receive", "KB/s", 10.0),
    ("AI Core Utilization", "AIC 2/usage", "%", 55.0),
    ("AI Core Utilization", "AIC 2/freq", "MHz", 1800.0),
]


def counters(at: float) -> list[dict[str, Any]]:
    return [
        {"group": group, "name": name, "unit": unit, "time_ns": ns(at), "value": value + at, "device": 0}
        for group, name, unit, value in HOST
    ]


def written(trace: Any, path: Path) -> sqlite3.Connection:
    database.write(Output(trace, time_base_ns(trace), LEVEL1), path)
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True)


def test_samples_of_the_host(tmp_path: Path) -> None:
    connection = written(ascend_run(counters=[*counters(3), *counters(4)]), tmp_path / "ascend_pytorch_profiler_0.db")

    def rows(query: str) -> list[tuple[Any, ...]]:
        return connection.execute(query).fetchall()

    assert rows("SELECT * FROM CPU_USAGE ORDER BY 1, 2") == [
        (ns(3), 3, 15.5), (ns(3), 11, 102), (ns(4), 3, 16.5), (ns(4), 11, 103),
    ]  # fmt: skip
    assert rows("SELECT * FROM HOST_MEM_USAGE ORDER BY 1") == [(ns(3), 10.25), (ns(4), 11.25)]
    assert rows("SELECT timestampNs, readRate, writeRate, usage FROM HOST_DISK_USAGE ORDER BY 1") == [
        (ns(3), 4.5, 5.5, None), (ns(4), 5.5, 6.5, None),
    ]  # fmt: skip
    assert rows("SELECT timestampNs, usage, speed FROM HOST_NETWORK_USAGE ORDER BY 1") == [(ns(3), None, 33), (ns(4), None, 34)]
    texts = dict(rows("SELECT id, value FROM STRING_IDS"))
    cores = rows("SELECT deviceId, timestampNs, usage, freq, totalCycle, coreId, coreType FROM SAMPLE_PMU_TIMELINE ORDER BY 2")
    assert [(*row[:6], texts[row[6]]) for row in cores] == [
        (0, ns(3), 58, 1803, None, 2, "aic"), (0, ns(4), 59, 1804, None, 2, "aic"),
    ]  # fmt: skip
    connection.close()
    # and read back they are the same counters, but for those that CANN has no column for
    found = ascend_db.read_database(tmp_path / "ascend_pytorch_profiler_0.db", HealthLog())["counters"]
    stored = {"CPU 3", "CPU 11", "Memory Usage", "Disk/Read", "Disk/Write", "Network/Speed"}
    assert Counter(found.select("name", "time_ns", "value").rows()) == Counter(
        (row["name"].replace("AIC", "aic"), row["time_ns"], row["value"])
        for row in [*counters(3), *counters(4)]
        if row["name"] in stored or row["name"].startswith("AIC")
    )


def test_a_run_without_them_has_no_such_tables(tmp_path: Path) -> None:
    connection = written(ascend_run(), tmp_path / "ascend_pytorch_profiler_0.db")
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    connection.close()
    assert not tables & {"CPU_USAGE", "HOST_MEM_USAGE", "HOST_DISK_USAGE", "HOST_NETWORK_USAGE", "SAMPLE_PMU_TIMELINE"}


def test_events_of_the_graph_engine_are_those_of_the_capture(tmp_path: Path) -> None:
    capture = shared("ascend_pytorch", "db_level2", "rank0_ascend_pt")
    own = capture / rundir.OUTPUT_DIRECTORY / "ascend_pytorch_profiler_0.db"
    # read here and not opened: opening would write its cache beside the data
    trace = ascend_db.read_trace(own.parent, capture)
    tables = []
    for connection in (sqlite3.connect(f"file:{own}?mode=ro&immutable=1", uri=True), written(trace, tmp_path / own.name)):
        texts = dict(connection.execute("SELECT id, value FROM STRING_IDS"))
        tables.append(
            Counter(
                (texts[name], address, texts[kind], *numbers, texts[component], device)
                for name, address, kind, *numbers, component, device in connection.execute("SELECT * FROM NPU_OP_MEM")
            )
        )
        connection.close()
    assert tables[1] == tables[0]
    assert tables[0].total() == 114
    # the totals that the framework repeats are counted once
    again = ascend_db.read_database(tmp_path / own.name, HealthLog())
    for table in ("memory", "allocations"):
        assert again[table].height == trace.required(table).collect().height


def test_samples_of_this_machine_are_the_same_in_both_forms(tmp_path: Path) -> None:
    """Recorded on a machine without an NPU: the tracks of the timeline, and the tables of CANN for the host."""
    psutil = pytest.importorskip("psutil")
    torch = pytest.importorskip("torch")
    systems = [steplens.HostSystem.CPU, steplens.HostSystem.MEM, steplens.HostSystem.DISK, steplens.HostSystem.NETWORK]
    with steplens.profile(
        schedule=steplens.schedule(wait=0, warmup=1, active=4, repeat=1),
        on_trace_ready=steplens.tensorboard_trace_handler(str(tmp_path / "runs"), analyse_flag=False),
        experimental_config=steplens._ExperimentalConfig(host_sys=systems, export_type=["text", "db"]),
    ) as profiler:
        for step in range(5):
            if step == 1:
                # recording has begun; a busy machine may take longer to start what samples than the steps are long
                (own,) = [one for one in psutil.Process().children() if "steplens.collect.host.host_sampling" in one.cmdline()]
                sampler = profiler._session.window.recorders._sampler._process
                assert sampler.pid == own.pid and sampler.stdout.readline() == b"ready\n"
                enough = own.num_ctx_switches().voluntary + 10
            until = time.monotonic() + 0.15
            # it waits once before every sample
            while time.monotonic() < until or (step == 4 and own.num_ctx_switches().voluntary < enough):
                assert time.monotonic() < until + 60, "nothing is sampled"
                torch.randn(64, 64) @ torch.randn(64, 64)
                # thousands of these would be recorded, and take most of the time of the test
                time.sleep(0.005)
            profiler.step()
    (done,) = steplens.analyse(tmp_path / "runs")
    assert done.ok and done.written_to is not None
    folder = done.written_to / rundir.OUTPUT_DIRECTORY
    events = json.loads((folder / "trace_view.json").read_bytes(), parse_float=Decimal)
    base_ns = events[0]["args"]["base_time_ns"]
    tracks: dict[str, list[tuple[int, float]]] = {}
    for event in events:
        if event["ph"] == "C":
            (value,) = event["args"].values()
            tracks.setdefault(event["name"], []).append((base_ns + int(event["ts"] * 1000), float(value)))
    connection = sqlite3.connect(f"file:{next(folder.glob('ascend_pytorch_profiler*.db'))}?mode=ro", uri=True)
    compared = set()
    for table, columns in {
        "CPU_USAGE": {},
        "HOST_MEM_USAGE": {"usage": "Memory Usage"},
        "HOST_DISK_USAGE": {"readRate": "Disk/Read", "writeRate": "Disk/Write", "usage": "Disk Usage"},
        "HOST_NETWORK_USAGE": {"usage": "Network Usage", "speed": "Network/Speed"},
    }.items():
        if not connection.execute(f"SELECT 1 FROM sqlite_master WHERE name = '{table}'").fetchall():
            continue
        for column, track in columns.items():
            found = connection.execute(
                f"SELECT timestampNs, {column} FROM {table} WHERE {column} IS NOT NULL ORDER BY 1"
            ).fetchall()
            assert found == sorted(tracks.get(track, [])), (table, column)
            compared.add((table, column, bool(found)))
    for (processor,) in connection.execute("SELECT DISTINCT cpuId FROM CPU_USAGE").fetchall():
        found = connection.execute(f"SELECT timestampNs, usage FROM CPU_USAGE WHERE cpuId = {processor} ORDER BY 1").fetchall()
        assert found == sorted(tracks[f"CPU {processor}"])
        compared.add(("CPU_USAGE", "usage", bool(found)))
    connection.close()
    assert {("CPU_USAGE", "usage", True), ("HOST_MEM_USAGE", "usage", True), ("HOST_NETWORK_USAGE", "speed", True)} <= compared
