"""Recorded data is written to a local folder and moved to its target afterwards."""

import json
import os
import tempfile
import threading
from pathlib import Path

import pytest

from steplens import profile, schedule, tensorboard_trace_handler
from steplens.collect.handoff import upload

torch = pytest.importorskip("torch")
fsspec = pytest.importorskip("fsspec")

from fsspec.implementations.memory import MemoryFileSystem  # noqa: E402


class Flaky(MemoryFileSystem):
    """A remote file system whose connection breaks with the third file, or that loses the end of files."""

    protocol = "flaky"
    cachable = False
    breaks = True
    puts = 0

    def put_file(self, lpath, rpath, *args, **kwargs):
        type(self).puts += 1
        if self.breaks and type(self).puts == 3:
            raise ConnectionError("broken at //user:secret@host/bucket")
        super().put_file(lpath, rpath, *args, **kwargs)
        if not self.breaks:
            with self.open(rpath, "wb") as handle:
                handle.write(b"cut")


fsspec.register_implementation("flaky", Flaky, clobber=True)


@pytest.fixture(autouse=True)
def empty_memory():
    MemoryFileSystem.store.clear()
    Flaky.puts, Flaky.breaks = 0, True
    yield
    MemoryFileSystem.store.clear()


def record(on_trace_ready, windows=1):
    with profile(schedule=schedule(wait=0, warmup=0, active=1, repeat=windows), on_trace_ready=on_trace_ready) as prof:
        for _ in range(windows + 1):
            torch.ones(2)
            prof.step()
    upload.wait_for_moves()
    return prof


def files(folder):
    return {str(path.relative_to(folder)): path.stat().st_size for path in folder.rglob("*") if path.is_file()}


def test_a_folder_as_target(look, tmp_path):
    local, target = tmp_path / "local", tmp_path / "target"
    prof = record(tensorboard_trace_handler(target, analyse_flag=False, local_dir=local), windows=3)
    assert list(local.iterdir()) == []
    runs = look.runs(target)
    assert len(runs) == 3
    assert all(look.state(run)["state"] == "collected" for run in runs)
    # the object knows where its last window went
    assert prof.run_directory == runs[-1]
    prof.export_chrome_trace(tmp_path / "trace.json")
    assert json.loads((tmp_path / "trace.json").read_text())


def test_another_file_system(look, tmp_path):
    shared = Path("/dev/shm")
    if not shared.is_dir() or shared.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system")
    with tempfile.TemporaryDirectory(dir=shared) as local:
        record(tensorboard_trace_handler(tmp_path / "target", analyse_flag=False, local_dir=local))
        assert os.listdir(local) == []
    (run,) = look.runs(tmp_path / "target")
    assert "aten::ones" in look.names(run)
    assert [path.name for path in (tmp_path / "target").iterdir()] == [run.name]
    assert run.stat().st_mode & 0o777 == 0o750


@pytest.mark.slow
@pytest.mark.parametrize("async_mode", [False, True])
def test_the_analysis_is_moved_with_the_rest(look, tmp_path, async_mode):
    code = """
import sys, torch, steplens
handler = steplens.tensorboard_trace_handler("target", local_dir="local", async_mode=sys.argv[1] == "True")
with steplens.profile(schedule=steplens.schedule(0, 1, repeat=1), on_trace_ready=handler) as prof:
    torch.ones(2)
    prof.step()
"""
    done = look.warm_python(code, async_mode, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (run,) = look.runs(tmp_path / "target")
    assert (run / "ASCEND_PROFILER_OUTPUT" / "analyse.done").exists()
    assert list((tmp_path / "local").iterdir()) == []


def test_a_url_as_target(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    handler = tensorboard_trace_handler("memory://bucket/runs", analyse_flag=False)
    assert Path(handler.dir_name).stat().st_mode & 0o777 == 0o700
    record(handler, windows=2)
    remote = fsspec.filesystem("memory")
    runs = remote.ls("/bucket/runs", detail=False)
    assert len(runs) == 2
    for run in runs:
        names = {name.removeprefix(run + "/") for name in remote.find(run)}
        assert {"KINETO/operators.rec", "KINETO/state.json", "KINETO/host_events.json", "profiler_metadata.json"} <= names
        recorded = remote.cat(run + "/KINETO/operators.rec")
        assert recorded.startswith(b"STPLREC\n") and b'{"name":"aten::ones"' in recorded
    assert list(Path(handler.dir_name).iterdir()) == []
    assert capfd.readouterr().err.count("is in memory://bucket/runs.") == 2


def test_markers_arrive_last(tmp_path):
    run = tmp_path / "x_ascend_pt"
    for name in (
        "KINETO/state.json",
        "KINETO/trace.json",
        "ASCEND_PROFILER_OUTPUT/analyse.done",
        "ASCEND_PROFILER_OUTPUT/z.csv",
        "a",
        ".steplens/steplens_run/ops.parquet",
        ".steplens/steplens_run/timeline_0.bin",
    ):
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text(name)
    order = []

    class Watched(MemoryFileSystem):
        protocol = "watched"

        def put_file(self, lpath, rpath, *args, **kwargs):
            order.append(Path(rpath).name)
            super().put_file(lpath, rpath, *args, **kwargs)

    fsspec.register_implementation("watched", Watched, clobber=True)
    upload.move_run(run, "watched://there")
    assert set(order[-2:]) == {"state.json", "analyse.done"}
    # what knows its sources by their times is of no use where times are not kept
    assert sorted(order) == ["a", "analyse.done", "state.json", "trace.json", "z.csv"]
    assert not run.exists()


@pytest.mark.parametrize("breaks", [True, False])
def test_what_does_not_arrive_stays_and_is_said(look, tmp_path, capfd, breaks):
    Flaky.breaks = breaks
    local = tmp_path / "local"
    record(tensorboard_trace_handler("flaky://user:secret@host/bucket", analyse_flag=False, local_dir=local))
    (run,) = look.runs(local)
    assert "aten::ones" in look.names(run)
    (finding,) = [item for item in look.state(run)["health"] if item["check"] == "landing"]
    assert str(run) in finding["message"]
    err = capfd.readouterr().err
    (line,) = [line for line in err.splitlines() if "[ERROR]" in line]
    assert f"{run} could not be moved to flaky://***@host/bucket and stays where it is" in line
    assert "secret" not in err + finding["message"]
    # no half of it is left there
    assert not [name for name in MemoryFileSystem.store if "ascend_pt" in name]


@pytest.mark.parametrize(
    ("target", "said"),
    [("nosuchprotocol://bucket", "Protocol not known"), ("/proc/nothing/here", "No such file"), ("{file}", "")],
)
def test_a_target_that_is_not_there(look, tmp_path, capfd, target, said):
    (tmp_path / "file").write_text("")
    target = target.format(file=tmp_path / "file")
    record(tensorboard_trace_handler(target, analyse_flag=False, local_dir=tmp_path / "local"), windows=2)
    assert len(look.runs(tmp_path / "local")) == 2
    err = capfd.readouterr().err
    assert err.count("[ERROR]") == 2
    assert said in err
    assert "Traceback" not in err


def test_an_existing_run_directory_is_not_replaced(tmp_path):
    run = tmp_path / "local" / "x_ascend_pt"
    run.mkdir(parents=True)
    (tmp_path / "target" / run.name).mkdir(parents=True)
    with pytest.raises(FileExistsError):
        upload.move_run(run, str(tmp_path / "target"))
    assert run.is_dir()


@pytest.mark.parametrize(
    ("dir_name", "local_dir", "expected"),
    [
        (None, None, (None, None)),
        ("/a/b", None, ("/a/b", None)),
        ("/a/b", "/c", ("/c", "/a/b")),
        ("/a/b", "/a/b", ("/a/b", None)),
        ("file:///a/b%20c", None, ("/a/b c", None)),
        ("file:///a", "/c", ("/c", "/a")),
        ("s3://bucket/x", "/c", ("/c", "s3://bucket/x")),
        ("simplecache::s3://bucket", "/c", ("/c", "simplecache::s3://bucket")),
        ("C:dir", None, (os.path.join(os.getcwd(), "C:dir"), None)),
    ],
)
def test_split(monkeypatch, dir_name, local_dir, expected):
    monkeypatch.chdir("/")
    expected = tuple("/C:dir" if isinstance(item, str) and item.endswith("C:dir") else item for item in expected)
    assert upload.split_target(dir_name, local_dir) == expected


def test_without_fsspec_it_says_what_is_missing(look, tmp_path):
    code = """
import sys; sys.modules["fsspec"] = None
import torch, steplens
handler = steplens.tensorboard_trace_handler("s3://bucket", analyse_flag=False, local_dir="local")
with steplens.profile(on_trace_ready=handler):
    torch.ones(2)
"""
    done = look.warm_python(code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "a URL needs fsspec: pip install fsspec" in done.stderr
    assert len(look.runs(tmp_path / "local")) == 1


def test_the_training_does_not_wait(tmp_path):
    begun, go = threading.Event(), threading.Event()

    class Slow(MemoryFileSystem):
        protocol = "slow"

        def put_file(self, lpath, rpath, *args, **kwargs):
            begun.set()
            assert go.wait(120)
            super().put_file(lpath, rpath, *args, **kwargs)

    fsspec.register_implementation("slow", Slow, clobber=True)
    handler = tensorboard_trace_handler("slow://there", analyse_flag=False, local_dir=tmp_path)
    with profile(schedule=schedule(wait=0, warmup=0, active=1, repeat=1), on_trace_ready=handler) as prof:
        torch.ones(2)
        prof.step()
        # the window is closed and on its way, and the loop is here
        assert begun.wait(120)
        assert not go.is_set()
        go.set()
    upload.wait_for_moves()
    assert list(tmp_path.iterdir()) == []
