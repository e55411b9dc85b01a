"""Where exports go, what each format gives, and what is left when writing fails."""

from __future__ import annotations

import gzip
import json
import os
import resource
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import steplens
from steplens.common.errors import InputError, SteplensError
from steplens.run import open_run
from steplens.trace.trace import Trace
from steplens.writers.exports.export import export
from steplens.writers.exports.formats import FORMATS
from steplens.writers.exports.subject import Subject, list_subjects

from ...readers.ascend_fixture import write_golden
from ...writers.builder import build, op, synthetic, training_step


def kineto_file(path: Path, *names: str, rank: int | None = None) -> Path:
    """A small Kineto trace."""
    events = [
        {"ph": "X", "cat": "cpu_op", "name": name, "pid": 7, "tid": 7, "ts": 10.0 * number, "dur": 5.0, "args": {}}
        for number, name in enumerate(names)
    ]
    job = {"distributedInfo": {"rank": rank, "world_size": 4}} if rank is not None else {}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"schemaVersion": 1, **job, "traceEvents": events}))
    return path


@pytest.fixture
def whole() -> Trace:
    """A trace with everything that any format shows."""
    trace = training_step()
    return Trace(Path("/data/host_1_20260101_ascend_pt"), {name: trace.table(name) for name in trace})


@pytest.mark.parametrize("to", FORMATS)
def test_every_format_by_its_default_name(whole: Trace, to: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (written,) = export(whole, to)
    folder = Path("exported") if FORMATS[to].is_run else Path()
    assert written == folder / f"host_1_20260101{FORMATS[to].suffix}"
    assert written.exists()
    assert [path.name for path in (tmp_path / folder).iterdir()] == [written.name]
    mode = written.stat().st_mode & 0o777
    assert mode == (0o750 if written.is_dir() else 0o640)


def test_times_before_1970_become_no_database(tmp_path: Path) -> None:
    path = kineto_file(tmp_path / "early.json", "aten::a", "aten::b")
    path.write_text(path.read_text().replace('"ts": 0.0', '"ts": -5000.0'))
    with pytest.raises(InputError, match=r"cannot be exported as db: its first event lies before 1970"):
        export(path, "db", tmp_path / "db")
    assert list((tmp_path / "db").rglob("*")) == []
    (written,) = export(path, "text", tmp_path / "text")
    assert open_run(written).traces[0].ops.height == 2
    # from then on they do
    path.write_text(path.read_text().replace("-5000.0", "0.0"))
    (written,) = export(path, "db", tmp_path / "db")
    assert open_run(written).traces[0].ops.height == 2


def test_compression_goes_by_the_name(whole: Trace, tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.json", tmp_path / "a.json.gz"
    for to in ("kineto", "chrome", "speedscope"):
        export(whole, to, plain)
        export(whole, to, packed)
        assert json.loads(gzip.decompress(packed.read_bytes())) == json.loads(plain.read_bytes())
    # pprof reads compressed profiles only
    export(whole, "pprof", tmp_path / "profile")
    assert gzip.decompress((tmp_path / "profile").read_bytes())


def test_tables(whole: Trace, tmp_path: Path) -> None:
    (folder,) = export(whole, "parquet", tmp_path / "tables")
    assert {path.stem for path in folder.iterdir()} == set(whole)
    ops = pl.read_parquet(folder / "ops.parquet")
    assert ops["name"].dtype == pl.String
    assert ops.select("name", "start_ns", "self_ns").rows() == whole.ops.select("name", "start_ns", "self_ns").rows()


def test_run_directories_are_what_an_analysis_writes(tmp_path: Path) -> None:
    run = write_golden(tmp_path / "in")
    steplens.analyse(run, output=tmp_path / "analysed")
    (analysed,) = (tmp_path / "analysed").iterdir()
    (written,) = export(run, "text", tmp_path / "out")
    assert written.parent == tmp_path / "out"
    assert written.name.endswith("_ascend_pt")
    every = {path.name for path in (analysed / "ASCEND_PROFILER_OUTPUT").iterdir()}
    # an analysis writes databases beside the text, an export what it is asked for
    databases = {name for name in every if name.endswith(".db")}
    files = every - databases
    assert {path.name for path in (written / "ASCEND_PROFILER_OUTPUT").iterdir()} == files
    for name in files - {"analyse_status.json"}:
        ours, theirs = (folder / "ASCEND_PROFILER_OUTPUT" / name for folder in (written, analysed))
        assert ours.read_bytes() == theirs.read_bytes(), name
    assert (written / "profiler_info_0.json").read_bytes() == (run / "profiler_info_0.json").read_bytes()
    export(run, "chrome", tmp_path / "view.json")
    assert (tmp_path / "view.json").read_bytes() == (analysed / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").read_bytes()
    (database,) = export(run, "db", tmp_path / "db")
    assert {path.name for path in (database / "ASCEND_PROFILER_OUTPUT").glob("*.db")} == databases
    assert "ascend_pytorch_profiler_0.db" in databases
    assert not (database / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv").exists()
    again = open_run(database).trace()
    assert again.ops.height == open_run(run).trace().ops.height


def test_several_traces(tmp_path: Path) -> None:
    for rank in (0, 2):
        kineto_file(tmp_path / "job" / f"trace{rank}.json", "aten::mm", rank=rank)
    kineto_file(tmp_path / "job" / "sub" / "trace0.json", "aten::mm")
    seen: list[Path] = []
    written = export(tmp_path / "job", "kineto", tmp_path / "out", on_written=seen.append)
    assert written == seen
    names = {path.name for path in written}
    assert len(names) == 3
    assert {"trace0_rank0.kineto.json.gz", "trace2_rank2.kineto.json.gz"} <= names
    ranks = {path.name: json.loads(gzip.decompress(path.read_bytes()))["distributedInfo"]["rank"] for path in written}
    assert ranks["trace2_rank2.kineto.json.gz"] == 2
    (one,) = export(tmp_path / "job", "speedscope", tmp_path / "one.json", rank=2)
    assert one == tmp_path / "one.json"
    with pytest.raises(InputError, match="holds no rank 5; its ranks are 0, 2"):
        export(tmp_path / "job", "kineto", rank=5)
    with pytest.raises(InputError, match="is a file, 3 traces need a folder"):
        export(tmp_path / "job", "kineto", tmp_path / "one.json")


def test_names(tmp_path: Path) -> None:
    names = {"trace.3.pt.trace.json.gz": "trace.3", "x_ascend_pt": "x", "a.db": "a", ".json": ".json", "plain": "plain"}
    for given, expected in names.items():
        assert Subject(build(), tmp_path / given).name == expected
    inside = Trace(tmp_path / "r_ascend_pt" / "KINETO" / "trace.json", {})
    assert [subject.path for subject in list_subjects(inside)] == [tmp_path / "r_ascend_pt"]


def test_refused(tmp_path: Path, whole: Trace) -> None:
    source = kineto_file(tmp_path / "trace.json", "a")
    before = source.read_bytes()
    with pytest.raises(SteplensError, match="'svg' is no export format; they are kineto, chrome, db, text, parquet, "):
        export(source, "svg")
    with pytest.raises(InputError, match="is what is exported"):
        export(source, "kineto", source)
    assert source.read_bytes() == before
    with pytest.raises(InputError, match=r"cannot be exported as kineto: the trace has no events"):
        export(build(meta={"rank": 0}), "kineto", tmp_path / "x.json")
    with pytest.raises(InputError, match="no memory events"):
        export(source, "memory", tmp_path / "x.json")
    full = tmp_path / "full"
    full.mkdir()
    (full / "kept").write_text("mine")
    linked = tmp_path / "results" / "host_1_20260101_ascend_pt"
    linked.parent.mkdir()
    linked.symlink_to(full)
    for target in (linked, linked.parent):
        with pytest.raises(InputError, match="exists already"):
            export(whole, "text", target)
    assert (full / "kept").read_text() == "mine"
    with pytest.raises(InputError, match="is a folder"):
        steplens.export_stacks(whole, full)
    assert not (tmp_path / "x.json").exists()
    assert not list(tmp_path.rglob("*.partial"))


def test_text_beside_databases_is_refused_with_the_way_to_do_it(whole: Trace, tmp_path: Path) -> None:
    (databases,) = export(whole, "db", tmp_path / "out")
    with pytest.raises(InputError, match="exists already") as refused:
        export(whole, "text", tmp_path / "out")
    way_out = f"--out {shlex.quote(str(tmp_path / 'out_text'))}, or remove it"
    assert databases.name in str(refused.value) and way_out in str(refused.value)
    (texts,) = export(whole, "text", tmp_path / "out_text")
    assert texts.name == databases.name
    assert len(steplens.open(tmp_path).traces) == 2


def test_public_functions(whole: Trace, tmp_path: Path) -> None:
    steplens.export_chrome_trace(whole, tmp_path / "view.json")
    assert isinstance(json.loads((tmp_path / "view.json").read_bytes()), list)
    steplens.export_memory_timeline(whole, tmp_path / "memory.json", device="cpu")
    assert len(json.loads((tmp_path / "memory.json").read_bytes())) == 2
    steplens.export_stacks(build(ops=[op("a", 0, 5, stack="f")]), tmp_path / "stacks.log")
    assert (tmp_path / "stacks.log").read_text() == "f 5\n"
    for rank in (0, 1):
        kineto_file(tmp_path / "job" / f"{rank}.json", "a", rank=rank)
    with pytest.raises(InputError, match="holds 2 traces, one is wanted here"):
        steplens.export_chrome_trace(tmp_path / "job", tmp_path / "x.json")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("a small file system cannot be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture(scope="module")
def large() -> Trace:
    """A trace that gives more than a megabyte in every format but "stacks", "pprof" and "memory"."""
    return synthetic(ops=40_000, kernels=20_000, memory_events=30_000, steps=3)


@pytest.mark.parametrize("to", ["kineto", "chrome", "speedscope", "parquet", "db", "text"])
def test_a_full_disk_leaves_nothing(large: Trace, to: str, small_disk: Path) -> None:
    (small_disk / "kept.json").write_text("mine")
    run_name = "run_ascend_pt" if FORMATS[to].is_run else "kept.json" if FORMATS[to].write else "run"
    filler = small_disk / "filler"
    # Parquet is small: leave it little room
    filler.write_bytes(b"x" * 700_000)
    with pytest.raises(SteplensError, match=r"No space left on device|disk is full"):
        export(large, to, small_disk / run_name)
    assert sorted(path.name for path in small_disk.iterdir()) == ["filler", "kept.json"]
    assert (small_disk / "kept.json").read_text() == "mine"


def test_a_file_that_may_not_grow(tmp_path: Path) -> None:
    """The same in a process whose files are limited, where no file system can be mounted."""
    source = kineto_file(tmp_path / "trace.json", *[f"aten::operator_{number}" for number in range(5000)])
    target = tmp_path / "out" / "twin.json"
    done = subprocess.run(
        [sys.executable, "-m", "steplens.writers.exports", "kineto", str(source), str(target)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(steplens.__file__).parents[1])},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000)),
    )
    assert done.returncode == 2
    assert "twin.json: cannot be written: File too large" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list((tmp_path / "out").iterdir()) == []


def test_a_target_that_is_read_only(whole: Trace, tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(folder)], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("a read-only file system cannot be mounted here")
    try:
        for to, name in (("kineto", "a.json"), ("parquet", "a"), ("db", "a_ascend_pt")):
            with pytest.raises(InputError, match=f"{name}: cannot be written: Read-only file system"):
                export(whole, to, folder / name)
            with pytest.raises(InputError, match="cannot be written: Read-only file system"):
                export(whole, to, folder / "new" / name)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
    below = tmp_path / "file"
    below.write_text("x")
    with pytest.raises(InputError, match="cannot be written: Not a directory"):
        export(whole, "chrome", below / "x.json")


def test_an_output_that_fails_fails_the_export(whole: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from steplens.writers import result

    def broken(output: Any, path: Path) -> None:
        path.write_bytes(b"half")
        raise ValueError("no good")

    files = [result.OutputFile("trace_view.json", broken, result.OUTPUT_FILES[0].levels), *result.OUTPUT_FILES[1:]]
    original = result.write_result
    monkeypatch.setattr(
        "steplens.writers.exports.result.write_result", lambda *given, **more: original(*given, files=tuple(files), **more)
    )
    with pytest.raises(
        SteplensError, match=r"1 of the result's files could not be written: trace_view.json \(ValueError: no good\)"
    ):
        export(whole, "text", tmp_path / "x_ascend_pt")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_million_events_in_bounded_memory(tmp_path: Path) -> None:
    """Text of hundreds of megabytes is written without being in memory; the tables themselves take 250 MB."""
    code = f"""
import importlib.util, resource, sys
from pathlib import Path
spec = importlib.util.spec_from_file_location("builder", {str(Path(__file__).parents[1] / "builder.py")!r})
builder = importlib.util.module_from_spec(spec)
spec.loader.exec_module(builder)
from steplens.writers.exports.export import export
trace = builder.synthetic()
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
before = peak()
for to in ("kineto", "chrome", "speedscope"):
    (path,) = export(trace, to, Path(to))
    print(to, path.stat().st_size, peak() - before)
"""
    # each thread has memory of its own, and polars starts one per processor
    environment = {**os.environ, "PYTHONPATH": str(Path(steplens.__file__).parents[1]), "POLARS_MAX_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = {to: (int(size), int(grown)) for to, size, grown in map(str.split, done.stdout.splitlines())}
    assert found["kineto"][0] > 380_000_000 and found["chrome"][0] > 350_000_000 and found["speedscope"][0] > 45_000_000
    assert all(grown < 250 for _, grown in found.values()), found
