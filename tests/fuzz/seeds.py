"""Good captures of every format, small, made by writers that share nothing with the readers (or by steplens' own writers)."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from steplens.formats import recorder as layout

from ..readers import ascend_database, ascend_fixture, recorder_files
from ..shared_data import find_shared
from ..trace import gpu_run
from . import mindspore_seeds
from .mutations import Files

RUN = ascend_fixture.RUN_NAME


@dataclass(frozen=True)
class Seed:
    """One good capture.

    Attributes:
        files: path below the folder that is opened -> content.
        targets: the files that are damaged.
    """

    files: Files
    targets: tuple[str, ...]


def files_of(folder: Path) -> Files:
    """Every file below a folder, but no cache."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found if ".steplens" not in path.parts}


def _seed(folder: Path, wanted: Callable[[str], bool]) -> Seed:
    files = files_of(folder)
    targets = tuple(name for name in files if wanted(name))
    assert targets, f"nothing to damage in {sorted(files)}"
    return Seed(files, targets)


def _kineto_document() -> dict[str, object]:
    """The hand-made GPU run as Kineto writes it."""
    tables = gpu_run.raw_tables(steps=2, kernels_per_step=4)
    base = gpu_run.START_NS // 1_000_000_000 * 1_000_000_000
    events: list[dict[str, object]] = []

    def us(time_ns: int) -> float:
        return round((time_ns - base) / 1000, 3)

    for row in tables["ops"].iter_rows(named=True):
        category = "cpu_op" if row["scope"] == 0 else "user_annotation"
        args: dict[str, object] = {"External id": row["external_id"] or 0, "Ev Idx": 1}
        if category == "cpu_op":
            args |= {"Input Dims": [[8, 16], [16, 4], []], "Input type": ["float", "float", "Scalar"], "Sequence number": 3}
        times = {"ts": us(row["start_ns"]), "dur": round((row["end_ns"] - row["start_ns"]) / 1000, 3)}
        events.append(
            {"ph": "X", "cat": category, "name": row["name"], "pid": row["pid"], "tid": row["tid"], **times, "args": args}
        )
    for table, category in (("api", "cuda_runtime"), ("kernels", "kernel")):
        for row in tables[table].iter_rows(named=True):
            lane = {"pid": row.get("pid", 0), "tid": row.get("tid", 7)}
            args = {"correlation": row["correlation"], "External id": row["correlation"]}
            if category == "kernel":
                args |= {
                    "device": 0,
                    "stream": 7,
                    "registers per thread": 32,
                    "grid": [4, 1, 1],
                    "block": [128, 1, 1],
                    "queued": 0,
                }
            times = {"ts": us(row["start_ns"]), "dur": round((row["end_ns"] - row["start_ns"]) / 1000, 3)}
            events.append({"ph": "X", "cat": category, "name": row["name"], **lane, **times, "args": args})
    for row in tables["flows"].iter_rows(named=True):
        arrow = {"id": row["flow_id"], "cat": "ac2g", "name": "ac2g"}
        events.append({"ph": "s", **arrow, "pid": row["from_pid"], "tid": row["from_tid"], "ts": us(row["from_ns"])})
        events.append({"ph": "f", **arrow, "pid": row["to_pid"], "tid": row["to_tid"], "ts": us(row["to_ns"]), "bp": "e"})
    collective = {
        "Collective name": "allreduce",
        "In msg nelems": 64,
        "dtype": "Float",
        "Group size": 2,
        "Process Group Name": "0",
    }
    last = events[-1]["ts"]
    lane = {"pid": 0, "tid": 20}
    events.append(
        {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", **lane, "ts": last, "dur": 9.5, "args": collective}
    )
    memory = {"Total Reserved": 2048, "Total Allocated": 512, "Bytes": 512, "Device Id": -1, "Device Type": 0, "Addr": 94}
    events.append({"ph": "i", "name": "[memory]", "pid": 4000, "tid": 4001, "ts": last, "s": "t", "args": memory})
    frame = {"Python id": 1, "Python parent id": None, "Python module id": 0}
    call = {"ph": "X", "cat": "python_function", "name": "nn.Module: Linear_0", "pid": 4000, "tid": 4001}
    events.append({**call, "ts": last, "dur": 3, "args": frame})
    events.append({"ph": "M", "name": "thread_name", "pid": 4000, "tid": 4001, "ts": 0, "args": {"name": "thread 4001 (python)"}})
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "Made", "totalGlobalMem": 1 << 34, "computeMajor": 9}],
        "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2, "pg_config": [{"pg_name": "0", "ranks": [0, 1]}]},
        "traceEvents": events,
        "traceName": "made.json",
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": base,
    }


def kineto_text(*, absolute: bool = False) -> bytes:
    """A Kineto trace; ``absolute`` as older versions write it, in microseconds since 1970."""
    document = _kineto_document()
    base = document["baseTimeNanoseconds"]
    if absolute:
        del document["baseTimeNanoseconds"]
        assert isinstance(base, int)
    lines = []
    for event in document["traceEvents"]:  # type: ignore[attr-defined]
        text = json.dumps(event)
        if absolute:
            text = text.replace(
                f'"ts": {event["ts"]}', f'"ts": {base // 1000 + int(event["ts"])}.{round(event["ts"] % 1 * 1000):03d}'
            )
        lines.append(text)
    rest = {key: value for key, value in document.items() if key != "traceEvents"}
    head = json.dumps(rest)[:-1]
    return (head + ',\n"traceEvents": [\n  ' + ",\n  ".join(lines) + "\n]}\n").encode()


def kineto(folder: Path) -> list[Seed]:
    """Kineto traces, plain and compressed, with and without a time base."""
    made = [
        ("trace.json", kineto_text()),
        ("old.json", kineto_text(absolute=True)),
        ("trace.json.gz", gzip.compress(kineto_text(), 1)),
    ]
    return [Seed({name: data}, (name,)) for name, data in made]


def run_directory(folder: Path) -> list[Seed]:
    """A run directory of steplens: the raw trace and what lies beside it."""
    from steplens.common import rundir

    run = folder / "host_1_20260101000000000_ascend_pt"
    raw = run / rundir.RAW_DIRECTORY
    raw.mkdir(parents=True)
    (raw / rundir.RAW_TRACE).write_bytes(gzip.compress(kineto_text()) if rundir.RAW_TRACE.endswith(".gz") else kineto_text())
    (raw / rundir.HOST_EVENTS).write_text(json.dumps({"gc": [[gpu_run.START_NS, gpu_run.START_NS + 9, 2, 4000, 4001]]}))
    collective = {
        "is_p2p": False, "process_group": ["0", "default_pg"], "profiling_name": "gloo:all_reduce", "input_sizes": [[3]],
        "input_dtypes": ["Float"], "time_created_ns": gpu_run.START_NS,
    }  # fmt: skip
    (raw / rundir.COLLECTIVES).write_text(json.dumps({"entries": [collective]}))
    finding = {"check": "not_collected", "severity": "warning", "message": "no memory", "unsafe": "memory", "count": 2}
    (raw / rundir.STATE_FILE).write_text(json.dumps({"state": "complete", "rank": 0, "pid": 4000, "health": [finding]}))
    ascend_fixture.write_json(run / f"{rundir.INFO_PREFIX}_0.json", ascend_fixture.profiler_info())
    ascend_fixture.write_json(
        run / rundir.METADATA_FILE, {"world_size": 2, "parallel_group_info": {"g": {"global_ranks": [0, 1]}}}
    )
    return [_seed(folder, lambda name: True)]


def framework(folder: Path) -> list[Seed]:
    """The binary files of FRAMEWORK, without device data."""
    run = ascend_fixture.write_golden(folder, cpu_only=True)
    assert run.is_dir()
    return [_seed(folder, lambda name: "FRAMEWORK" in name)]


def raw(folder: Path) -> list[Seed]:
    """FRAMEWORK and the exports of CANN, as text and as a database: everything about the device is damaged."""
    seeds = []
    for export in ("text", "db"):
        ascend_fixture.write_golden(folder / export, export=export)
        seeds.append(_seed(folder / export, lambda name: "FRAMEWORK" not in name))
    return seeds


def _results(folder: Path) -> Path:
    """A run directory with the results that steplens writes from raw data, text and database."""
    from steplens import offline

    run = ascend_fixture.write_golden(folder)
    offline.analyse(folder, export_type=["text", "db"])
    shutil.rmtree(run / "FRAMEWORK")
    for prof in run.glob("PROF_*"):
        shutil.rmtree(prof)
    return run


def _shared(name: str) -> list[Path]:
    folder = find_shared("ascend_pytorch")
    return sorted(folder.glob(f"{name}*/rank0*")) if folder else []


def text(folder: Path) -> list[Seed]:
    """Result files: CSV and communication JSON are damaged."""
    run = _results(folder / "made")
    for database in run.rglob("*.db"):
        database.unlink()
    return [_seed(folder / "made", lambda name: name.endswith(".csv") or "communication" in name)]


def recorder(folder: Path) -> list[Seed]:
    """Files of the recorder of operators: one that was ended, and one of a process that was killed."""
    texts = recorder_files.signatures(
        {"name": "aten::mm", "shapes": [[2, 3], [3, 4]], "types": ["float", "float"], "flops": 48},
        {"name": "aten::conv2d", "arguments": ["", "[1, 1]"]},
        {"name": "ProfilerStep#1"},
    )
    rows = [
        recorder_files.call(20, 30, 0, sequence=4),
        recorder_files.call(10, 40, 1, sequence=4),
        recorder_files.call(50, 60, 0, sequence=4, forward_thread=1),
        recorder_files.call(0, 90, 2, scope=7),
    ]
    memory = recorder_files.memory((1, 64, 100), (2, 128, 50), (3, 64, -1), (4, 64, 7))
    begun = [
        recorder_files.metadata({"rank": 0, "world_size": 2}),
        recorder_files.clocks(0, 1000, 2000),
        recorder_files.thread(1, 7, 1),
        texts,
    ]
    ended = [*begun, recorder_files.calls(*rows), memory, recorder_files.end(4, 4)]
    open_calls = recorder_files.calls(*rows[:1:-1], kind=layout.OPEN_CALLS)
    killed = [*begun, recorder_files.calls(*rows[:2]), memory, open_calls]
    made = {"ended.rec": ended, "killed.rec": killed}
    return [Seed({name: b"".join([recorder_files.header(), *blocks])}, (name,)) for name, blocks in made.items()]


def timeline(folder: Path) -> list[Seed]:
    """trace_view.json, and the timeline that CANN exports."""
    run = _results(folder / "made")
    view = (run / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").read_bytes()
    cann = json.dumps(ascend_fixture.golden_timeline()).encode()
    return [Seed({"trace_view.json": view}, ("trace_view.json",)), Seed({"msprof_1.json": cann}, ("msprof_1.json",))]


def database(folder: Path) -> list[Seed]:
    """Result databases: our own, and both layouts of an independent writer."""
    run = _results(folder / "made")
    for file in (run / "ASCEND_PROFILER_OUTPUT").iterdir():
        if file.suffix in (".csv", ".json"):
            file.unlink()
    seeds = [_seed(folder / "made", lambda name: name.endswith(".db"))] if list(run.rglob("*.db")) else []
    for old in (False, True):
        made = ascend_database.golden(old=old)
        output = folder / f"old_{old}" / RUN / "ASCEND_PROFILER_OUTPUT"
        output.mkdir(parents=True)
        made.write(output / "ascend_pytorch_profiler_0.db")
        seeds.append(_seed(folder / f"old_{old}", lambda name: name.endswith(".db")))
    return seeds


def cann_database(folder: Path) -> list[Seed]:
    """msprof_*.db alone."""
    seeds = []
    for old in (False, True):
        path = folder / f"old_{old}" / "msprof_20260101000000.db"
        path.parent.mkdir(parents=True)
        ascend_database.golden(old=old).write(path)
        seeds.append(_seed(path.parent, lambda name: True))
    return seeds


def store(folder: Path) -> list[Seed]:
    """The cache beside a trace: tables and manifest."""
    from steplens.readers import detect

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "trace.json").write_bytes(kineto_text())
    detect.load(detect.find_one(folder / "trace.json"))
    files = {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    return [Seed(files, tuple(name for name in files if name != "trace.json"))]


def side_files(folder: Path) -> list[Seed]:
    """Only what lies beside the data: profiler_info, metadata, start_info, host_start.log, info.json."""
    ascend_fixture.write_golden(folder / "raw")
    names = ("profiler_info", "profiler_metadata", "start_info", "host_start", "info.json")
    return [_seed(folder / "raw", lambda name: any(word in name for word in names))]


def loaders(folder: Path) -> list[Seed]:
    """What a run directory holds of data loaders, with workers and without."""
    from ..readers import loader_files

    seeds = []
    for workers in (0, 2):
        (seed,) = run_directory(folder / str(workers))
        raw = next(path for path in (folder / str(workers)).rglob("KINETO"))
        loader_files.write(raw, workers=workers)
        files = files_of(folder / str(workers))
        seeds.append(Seed(files, tuple(name for name in files if "loaders." in name)))
        assert set(files) > set(seed.files)
    return seeds


def shared_samples(reader: str) -> list[Seed]:
    """Recorded captures, for long runs: larger than those made here, and as real as they get."""
    seeds = []
    if reader == "kineto":
        for name in ("rocm_mi250_minitoy", "cpu_only_rank34", "cuda_alexnet"):
            path = find_shared("kineto", f"{name}.json.gz")
            if path is not None:
                seeds.append(Seed({f"{name}.json": gzip.decompress(path.read_bytes())}, (f"{name}.json",)))
    for path in _shared({"database": "db", "text": "text", "timeline": "text"}.get(reader, "none")):
        files = {f"{RUN}/{name}": data for name, data in files_of(path).items()}
        wanted = {"database": (".db",), "text": (".csv", "communication.json"), "timeline": ("trace_view.json",)}[reader]
        seeds.append(Seed(files, tuple(name for name in files if name.endswith(wanted))))
    return seeds


#: reader -> what makes its seeds
SEEDS: dict[str, Callable[[Path], list[Seed]]] = {
    "kineto": kineto,
    "run_directory": run_directory,
    "recorder": recorder,
    "timeline": timeline,
    "text": text,
    "database": database,
    "cann_database": cann_database,
    "framework": framework,
    "raw": raw,
    "side_files": side_files,
    "loaders": loaders,
    "store": store,
    "mindspore_windows": mindspore_seeds.windows,
    "mindspore_logs": mindspore_seeds.logs,
    "mindspore_flat": mindspore_seeds.flat,
    "mindspore_prof": mindspore_seeds.prof,
}
