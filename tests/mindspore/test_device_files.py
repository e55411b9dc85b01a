"""``steplens analyse`` on raw device logs: MindSpore's own files, equal to those that its parser made of the same logs."""

from __future__ import annotations

import csv
import json
import re
import shutil
import struct
from pathlib import Path

import pytest
from typer.testing import CliRunner

import steplens
from steplens.cli.main import app
from steplens.common import rundir

from ..shared_data import shared


def job(tmp_path: Path, *parts: str) -> Path:
    """A writable copy of a folder of the shared test data."""
    folder = tmp_path / parts[0]
    shutil.copytree(shared("mindspore", *parts), folder, copy_function=shutil.copyfile)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o750 if path.is_dir() else 0o640)
    return folder


def analyse(folder: Path, *arguments: str) -> str:
    result = CliRunner().invoke(app, ["analyse", str(folder), *arguments])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize(("name", "device"), [("JOB1", 0), ("ERROR_JOB", 10)])
def test_step_trace_equals_the_golden_one(tmp_path: Path, name: str, device: int) -> None:
    """(T3, T5) cell by cell: also the row of means, which mixes in the zeros of absent collectives."""
    folder = job(tmp_path, name)
    analyse(folder)
    written = (folder / "profiler" / f"step_trace_raw_{device}_detail_time.csv").read_text().splitlines()
    assert written == shared("mindspore", "profiler", f"step_trace_raw_{device}_detail_time.csv").read_text().splitlines()


def test_ai_cpu_equals_the_golden_one(tmp_path: Path) -> None:
    """(O12) byte by byte"""
    folder = job(tmp_path, "JOB_AICPU")
    analyse(folder)
    written = (folder / "profiler" / "output_data_preprocess_aicpu_0.txt").read_text()
    assert written == shared("mindspore", "JOB_AICPU", "expect", "output_data_preprocess_aicpu_0.txt").read_text()
    with (folder / "profiler" / "aicpu_intermediate_0.csv").open() as handle:
        rows = list(csv.DictReader(handle))
    assert next(iter(rows[0])) == "serial_num"
    assert [(row["kernel_type"], row["total_time"], row["dispatch_time"]) for row in rows] == [
        ("InitData", "1.567", "0.1"), ("GetNext", "0.989", "0.087"), ("TruncatedNormal", "1.566", "0.105"),
    ]  # fmt: skip


def test_framework_equals_the_golden_one(tmp_path: Path) -> None:
    """(O13) the four operators of JOB1 with what goes in and comes out."""
    folder = job(tmp_path, "JOB1")
    analyse(folder)

    def table(path: Path) -> list[dict[str, object]]:
        with path.open() as handle:
            return [{**row, "op_info": json.loads(row["op_info"])} for row in csv.DictReader(handle)]

    assert table(folder / "profiler" / "framework_raw_0.csv") == table(shared("mindspore", "profiler", "framework_raw_0.csv"))


@pytest.mark.parametrize("name", ["JOB1", "JOB2"])
def test_pipeline_equals_the_golden_one(tmp_path: Path, name: str) -> None:
    """(M6) an operation without a queue is left out, and its child belongs to its parent."""
    folder = job(tmp_path, name)
    if name == "JOB1":
        analyse(folder)
        written = folder / "profiler" / "minddata_pipeline_raw_0.csv"
    else:
        analyse(folder, "--output", str(tmp_path / "made"))
        (written,) = (tmp_path / "made").glob(f"*/{rundir.OUTPUT_DIRECTORY}/minddata_pipeline_raw_0.csv")

    def table(path: Path) -> list[tuple[object, ...]]:
        with path.open() as handle:
            rows = list(csv.DictReader(handle))
        # an operation without a queue has no usage, where the golden file has 0
        return [
            (*(row[key] for key in ("op_id", "op_type", "num_workers", "output_queue_size", "output_queue_length",
                                    "sample_interval", "parent_id", "children_id")),
             float(row["output_queue_average_size"] or 0), float(row["output_queue_usage_rate"] or 0))
            for row in rows
        ]  # fmt: skip

    assert table(written) == table(shared("mindspore", "profiler", "minddata_pipeline_raw_0.csv"))


def raw_of_run_2(folder: Path) -> None:
    """Write the binary logs that the texts of run_2 were made of: the scheduler's marks and the framework's list of tasks."""
    source = shared("mindspore", "run_2", "normal_run", "profiler")
    folder.mkdir()
    records = []
    for line in (source / "output_format_data_hwts_1.txt").read_text().splitlines():
        fields = re.match(r"^(Start|End) of task\s+(\d+)\s+(\d+)\s+(\d+)\s+(\S+)\s+(\d+)\s+(\d+)\s*$", line)
        if fields is None:
            continue
        kind = 0 if fields[1] == "Start" else 1
        task = int(fields[5].rpartition("_")[2])
        head = kind | (int(fields[2]) & 15) << 4
        values = (head, int(fields[3]), 27603, int(fields[4]), task, int(fields[6]), int(fields[7]))
        records.append(struct.pack("<BBHHHQI", *values).ljust(64, b"\0"))
    assert len(records) == 268
    # cut inside a record, as the logs are
    data = b"".join(records)
    name = "hwts.log.data.45.dev.profiler_default_tag.1.slice_"
    (folder / f"{name}0").write_bytes(data[:1000])
    (folder / f"{name}1").write_bytes(data[1000:])
    tasks, graph = [], []
    with (source / "framework_raw_1.csv").open() as handle:
        for row in csv.DictReader(handle):
            tasks.append(f"{row['full_op_name']} {row['block_dim']} {row['task_id']} {row['stream_id']}\n")
            graph.append(f"op_name:{row['full_op_name']} op_type:{row['op_type']}\n")
    (folder / "Framework.host.vm.task_desc_info.1.slice_0").write_text("".join(tasks))
    (folder / "Framework.host.vm.graph_desc_info.1.slice_0").write_text("".join(graph))


def test_compute_times_equal_those_of_mindspore(tmp_path: Path) -> None:
    """(O4) all 105 operators of run_2 from the raw log, and the sums of their 21 types."""
    folder = tmp_path / "run_2"
    raw_of_run_2(folder)
    analyse(folder)

    def times(path: Path) -> dict[str, float]:
        lines = path.read_text().splitlines()[3:-1]
        return {line.split()[0]: float(line.split()[1]) for line in lines}

    expected = times(shared("mindspore", "run_2", "normal_run", "profiler", "output_op_compute_time_1.txt"))
    own = times(folder / "profiler" / "output_op_compute_time_1.txt")
    assert list(own) == list(expected) and len(own) == 105
    assert own == pytest.approx(expected, rel=1e-12)

    def types(path: Path) -> dict[str, tuple[float, int, float]]:
        text = path.read_text().split("\nDetail:")[0].splitlines()[2:]
        return {row[0]: (float(row[1]), int(row[2]), float(row[3])) for row in (line.split() for line in text) if len(row) == 4}

    golden = types(shared("mindspore", "run_2", "normal_run", "profiler", "output_op_compute_time_detail_1.txt"))
    made = types(folder / "profiler" / "output_op_compute_time_detail_1.txt")
    assert list(made) == list(golden) and len(made) == 21
    for name, (ms, count, percent) in golden.items():
        assert made[name] == (pytest.approx(ms, rel=1e-9), count, percent)
    with (folder / "profiler" / "aicore_intermediate_1_type.csv").open() as handle:
        rows = {row["kernel_type"]: row for row in csv.DictReader(handle)}
    assert rows["MatMul"] == {"kernel_type": "MatMul", "task_time": "20.65774", "execution_frequency": "9", "percent": "89.47"}


def test_written_files_are_read_again(tmp_path: Path) -> None:
    """What was written of the raw log of run_2 says the same as the raw log."""
    folder = tmp_path / "run_2"
    raw_of_run_2(folder)
    analyse(folder)
    (raw,) = steplens.open(folder).traces
    written = tmp_path / "written"
    shutil.copytree(folder / "profiler", written)
    (flat,) = steplens.open(written).traces
    wanted = ("name", "type", "stream", "start_ns", "end_ns")
    frames = [trace.required("kernels").select(wanted).sort("start_ns").collect() for trace in (raw, flat)]
    assert frames[0].height == 107
    assert frames[0].equals(frames[1])


def test_steps_are_read_again(tmp_path: Path) -> None:
    """Steps stand in two files of the result; they count once, and exactly."""
    folder = job(tmp_path, "JOB1")
    analyse(folder)
    written = tmp_path / "written"
    shutil.copytree(folder / "profiler", written)
    frames = [
        steplens.open(path).trace().required("steps").select("id", "start_ns", "end_ns").collect() for path in (folder, written)
    ]
    assert frames[0].height == 20 and frames[0].equals(frames[1])


def test_names_are_no_formulas(tmp_path: Path) -> None:
    """A hostile name of an operator ends as text in a table, and one with a separator in a field of its own."""
    folder = tmp_path / "job"
    raw_of_run_2(folder)
    listed = folder / "Framework.host.vm.task_desc_info.1.slice_0"
    text = listed.read_text()
    first = text.split()[0]
    for file in folder.glob("Framework*"):
        file.write_text(file.read_text().replace(first, '=cmd|"/c'))
    analyse(folder)
    with (folder / "profiler" / "aicore_intermediate_1_detail.csv").open() as handle:
        names = [row["full_kernel_name"] for row in csv.DictReader(handle)]
    assert len(names) == 105 and names[0] == "'=cmd|\"/c"


def test_a_second_analysis_leaves_complete_results_alone(tmp_path: Path) -> None:
    folder = job(tmp_path, "JOB1")
    analyse(folder)
    info = folder / "profiler" / "profiler_info_0.json"
    before = info.stat().st_mtime_ns
    assert "complete already" in analyse(folder)
    assert info.stat().st_mtime_ns == before
    (folder / "profiler" / "framework_raw_0.csv").unlink()
    analyse(folder)
    assert (folder / "profiler" / "framework_raw_0.csv").is_file()


def test_several_devices_have_files_of_their_own(tmp_path: Path) -> None:
    folder = job(tmp_path, "JOB1")
    shutil.copyfile(
        shared("mindspore", "ERROR_JOB", "training_trace.46.dev.profiler_default_tag.10.slice_0"),
        folder / "training_trace.46.dev.profiler_default_tag.10.slice_0",
    )
    analyse(folder)
    there = {path.name for path in (folder / "profiler").iterdir()}
    assert {"step_trace_raw_0_detail_time.csv", "step_trace_raw_10_detail_time.csv", "profiler_info_10.json"} <= there
    assert steplens.open(folder).steps().height == 60


def test_results_of_others_stay(tmp_path: Path) -> None:
    folder = job(tmp_path, "run_2")
    before = sorted((path.name, path.stat().st_mtime_ns) for path in folder.rglob("*"))
    assert "stay as they are" in analyse(folder)
    assert sorted((path.name, path.stat().st_mtime_ns) for path in folder.rglob("*")) == before
    analyse(folder, "--output", str(tmp_path / "made"))
    (made,) = (tmp_path / "made").iterdir()
    assert {"kernel_details.csv", "step_trace_time.csv", "trace_view.json"} <= {
        path.name for path in (made / rundir.OUTPUT_DIRECTORY).iterdir()
    }
