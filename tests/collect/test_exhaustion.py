"""Out of open files, of memory, of disk, at each stage of a window: it is kept, or the true reason is said."""

import contextlib
import errno
import json
import os
import resource
import subprocess
import threading
from types import SimpleNamespace

import pytest

from steplens import BlackBox, profile, schedule, tensorboard_trace_handler
from steplens.collect.common import exception_text
from steplens.collect.pytorch import kineto, saving
from steplens.collect.recorder import recorder_library
from steplens.common import partial, rundir
from steplens.common.errors import InputError
from steplens.readers.steplens_run import run_directory

ONE_WINDOW = schedule(wait=0, warmup=1, active=1, repeat=1)
TWO_WINDOWS = schedule(wait=0, warmup=0, active=1, repeat=2)


def handler(folder="out"):
    return tensorboard_trace_handler(str(folder), analyse_flag=False)


def errors(capfd):
    return [line.partition("profiler.py: ")[2] for line in capfd.readouterr().err.splitlines() if "[ERROR]" in line]


@contextlib.contextmanager
def no_more_files():
    """A program that has opened as many files as it may."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 40, before[1]))
    try:
        with contextlib.suppress(OSError):
            while True:
                opened.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_no_files_at_the_start(train, look, capfd):
    with no_more_files():
        prof = profile(schedule=ONE_WINDOW, on_trace_ready=handler())
        prof.start()
    train(3, prof)
    prof.stop()
    (line,) = errors(capfd)
    assert line.startswith("Nothing is recorded, the training goes on: ") and os.strerror(errno.EMFILE) in line
    assert look.runs("out") == []


def test_no_files_when_a_window_opens(train, look, capfd):
    with profile(schedule=schedule(wait=1, warmup=0, active=1, repeat=2), on_trace_ready=handler()) as prof:
        with no_more_files():
            prof.step()
        train(4, prof)
    (run,) = look.runs("out")
    assert look.state(run)["state"] == "collected" and look.state(run)["first_step"] == 3
    (line,) = errors(capfd)
    assert line.startswith("Call init_trace failed. ") and os.strerror(errno.EMFILE) in line


def test_no_files_when_a_window_is_saved(train, look, capfd):
    with profile(schedule=ONE_WINDOW, on_trace_ready=handler()) as prof:
        train(2)
        prof.step()
        with no_more_files():
            prof.step()
    (run,) = look.runs("out")
    assert look.state(run)["state"] == "collected" and look.state(run)["health"] == []
    assert "aten::linear" not in look.names(run)  # the steps were empty
    assert run_directory.read(run) is not None
    assert errors(capfd) == []


def test_no_files_and_none_kept(train, look, capfd, monkeypatch, with_kineto):
    monkeypatch.setattr(kineto.KinetoSession, "_keeps_spare_files", False)
    with profile(schedule=ONE_WINDOW, on_trace_ready=handler()) as prof:
        train(1, prof)
        train(1)
        with no_more_files():
            prof.step()
    (run,) = look.runs("out")
    lines = errors(capfd)
    assert any("could not be saved" in line and os.strerror(errno.EMFILE) in line for line in lines)
    with pytest.raises(InputError) as raised:
        run_directory.read(run)
    assert "still open" not in str(raised.value) and "Record it again" in str(raised.value)


STAGES = {
    "the trace": (saving, "save_trace", "failed"),
    "what is beside it": (saving, "write_side_files", "collected"),
    "a small file": (saving.metadata, "software_versions", "collected"),
    "the name": (saving.rundir, "publish_file", "failed"),
}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("error", [MemoryError(), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))], ids=["memory", "disk"])
def test_nothing_left_while_saving(stage, error, train, look, monkeypatch, capfd, each_recorder):
    module, name, state = STAGES[stage]
    if each_recorder != "off" and state == "failed":
        # the recorder writes all the time; what it adds in the end can be missed
        module, name, state = recorder_library, "finish_recorder", ""
    original, left = getattr(module, name), [error]

    def fail_once(*arguments, **named):
        if left:
            raise left.pop()
        return original(*arguments, **named)

    with profile(schedule=ONE_WINDOW, on_trace_ready=handler()) as prof:
        train(1, prof)
        train(1)
        with monkeypatch.context() as patched:
            patched.setattr(module, name, fail_once)
            prof.step()
    (run,) = look.runs("out")
    if not state:
        assert look.state(run)["state"] == "collected" and not look.checks(run) and not errors(capfd)
        assert "aten::linear" in look.names(run)
        return
    assert look.state(run)["state"] == state
    (line,) = errors(capfd)
    assert (os.strerror(errno.ENOSPC) if isinstance(error, OSError) else "MemoryError") in line
    assert look.state(run)["health"][0]["message"] == line
    if state == "failed":
        with pytest.raises(InputError) as raised:
            run_directory.read(run)
        assert line.rstrip(".") in str(raised.value)
        assert "still open" not in str(raised.value) and "Record it again" in str(raised.value)
    else:
        assert run_directory.read(run) is not None


def test_no_memory_when_the_recording_ends(train, look, monkeypatch, capfd, each_recorder):
    def fail(window, stop):
        stop()
        raise MemoryError

    with profile(schedule=ONE_WINDOW, on_trace_ready=handler()) as prof:
        train(1, prof)
        train(1)
        with monkeypatch.context() as patched:
            patched.setattr(kineto.child_threads, "close_window", fail)
            prof.step()
    (run,) = look.runs("out")
    if each_recorder != "off":
        # it is on the disk
        assert look.state(run)["state"] == "collected" and "aten::linear" in look.names(run)
        return
    assert look.state(run)["state"] == "failed"
    assert any("given up when the window ended: MemoryError" in line for line in errors(capfd))


def test_a_state_file_is_written_in_its_place(tmp_path, monkeypatch):
    """A full disk has no room for a second file, but for the first one."""
    path = tmp_path / "state.json"
    rundir.write_json(path, {"state": "recording", "health": [], "padding": "x" * 500})
    monkeypatch.setattr(rundir, "publish_file", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
    findings = [{"severity": severity, "message": severity} for severity in ("info", "error")]
    saving.write_state(path, {"state": "failed", "health": findings})
    assert json.loads(path.read_bytes()) == {"state": "failed", "health": findings[1:]}


def test_a_state_file_that_cannot_be_written_says_nothing(tmp_path, monkeypatch):
    path = tmp_path / "run" / "KINETO" / "state.json"
    path.parent.mkdir(parents=True)
    path.symlink_to(tmp_path / "missing" / "file")
    monkeypatch.setattr(rundir, "publish_file", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
    with pytest.raises(OSError, match="No such file"):
        saving.write_state(path, {"state": "failed", "health": []})
    assert not path.is_symlink()
    with pytest.raises(InputError, match="no state file that says why"):
        run_directory.read(tmp_path / "run")


def lost_run(folder, name="host_7_20260101000000000_ascend_pt", **state):
    raw = folder / name / "KINETO"
    raw.mkdir(parents=True)
    (raw / "state.json").write_text(json.dumps({"state": "recording", "pid": 7, "first_step": 3, "health": [], **state}))
    return folder / name


def ended_process():
    """The number of a process that lives no longer."""
    return int(subprocess.run(["sh", "-c", "echo $$"], capture_output=True, text=True, check=True).stdout)


def said(run):
    with pytest.raises(InputError) as raised:
        run_directory.read(run)
    return str(raised.value)


def test_a_window_of_a_killed_process(tmp_path):
    run = lost_run(tmp_path, pid=ended_process(), machine=partial.machine_identity())
    assert "the window that began at step 3 was still open when its process ended (pid" in said(run)
    assert "Record it again" in said(run) and "other" not in said(run)


@pytest.mark.parametrize(
    ("count", "words"), [(1, "1 other window of the same process is"), (2, "2 other windows of the same process are")]
)
def test_other_windows_are_counted(tmp_path, count, words):
    run = lost_run(tmp_path)
    lost_run(tmp_path, "host_7_20260101000000001_ascend_pt", state="failed")
    lost_run(tmp_path, "host_8_20260101000000002_ascend_pt", pid=8).joinpath("KINETO", "trace.json").write_text("{}")
    for number in range(count):
        lost_run(tmp_path, f"host_7_2026010100000001{number}_ascend_pt").joinpath("KINETO", "trace.json").write_text("{}")
    assert f"{words}" in said(run) and said(run).rstrip(".").endswith("complete; record this one again")


def test_a_window_that_is_open(train, look):
    with profile(on_trace_ready=handler()):
        train(1)
        text = said(look.runs("out")[0])
    assert f"is open, or is being saved (process {os.getpid()} runs)" in text and "Wait" in text


def test_a_trace_that_was_saved_and_taken_away_is_not_said_to_have_failed(tmp_path):
    run = lost_run(tmp_path, state="collected")
    assert "holds no trace: it was saved, and is not there any more" in said(run)


def test_a_failure_without_a_reason_is_said_without_one(tmp_path):
    run = lost_run(tmp_path, state="failed")
    assert "holds no trace: saving it failed (see the log of the run)" in said(run)


def test_a_process_of_another_machine_may_have_the_same_number(tmp_path):
    assert partial.machine_identity() != "000000000000"
    for pid in (os.getpid(), ended_process()):
        run = lost_run(tmp_path / str(pid), pid=pid, machine="000000000000")
        text = said(run)
        # it may run there: nobody here can tell that it has ended
        assert (
            f"whether process {pid} still runs cannot be told here" in text
            and "was open when this was written" in text
            and "process ended" not in text
        )
        assert "If it has ended" in text


UNUSABLE = {
    "a file": (lambda folder: folder / "file", "is a file"),
    "below a file": (lambda folder: folder / "file" / "below", "is a file"),
    "a long name": (lambda folder: folder / ("n" * 300), os.strerror(errno.ENAMETOOLONG)),
    "a link to nothing": (lambda folder: folder / "dangling", "dangling is a link to a place that does not exist"),
    "below a loop": (lambda folder: folder / "loop" / "below", "loop is a link that leads round in circles"),
    "a file system for nobody": (lambda folder: "/proc/new", "cannot hold what is recorded"),
}


@pytest.mark.parametrize("kind", UNUSABLE)
@pytest.mark.parametrize("plan", [None, TWO_WINDOWS], ids=["without steps", "with steps"])
def test_a_folder_that_cannot_be_used_is_said_once(kind, plan, train, capfd, tmp_path):
    place, why = UNUSABLE[kind]
    (tmp_path / "file").write_text("x")
    (tmp_path / "dangling").symlink_to("nothing")
    (tmp_path / "loop").symlink_to("loop")
    with profile(schedule=plan, on_trace_ready=handler(place(tmp_path))) as prof:
        train(4, prof)
    assert prof.run_directory is None
    lines = [
        line
        for line in capfd.readouterr().err.splitlines()
        if "[ERROR]" in line or ("[WARNING]" in line and "warmup" not in line)
    ]
    (line,) = lines
    assert "Nothing is recorded, the training goes on: " in line and why in line
    assert (tmp_path / "file").read_text() == "x"


def test_a_home_that_nobody_has_is_a_name_like_any_other(train, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ready = tensorboard_trace_handler("~nobody-is-called-so/x", analyse_flag=False)
    with profile(schedule=TWO_WINDOWS, on_trace_ready=ready) as prof:
        train(4, prof)
    assert prof.run_directory.parent == tmp_path / "~nobody-is-called-so" / "x"


def test_a_deleted_working_directory_costs_the_recording_and_nothing_else(train, capfd, tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with profile(schedule=TWO_WINDOWS, on_trace_ready=tensorboard_trace_handler("relative", analyse_flag=False)) as prof:
        train(4, prof)
    lines = [line for line in capfd.readouterr().err.splitlines() if "[ERROR]" in line]
    assert len(lines) == 1 and "Nothing is recorded, the training goes on: " in lines[0]
    assert BlackBox(directory="relative") is not None


def test_no_space_is_said_once(train, capfd, monkeypatch):
    def full(folder):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(rundir, "try_to_write", full)
    with profile(schedule=TWO_WINDOWS, on_trace_ready=handler()) as prof:
        train(4, prof)
    (line,) = errors(capfd)
    assert os.strerror(errno.ENOSPC) in line


def test_a_folder_that_is_mended_is_used(train, look, capfd, tmp_path):
    (tmp_path / "out").write_text("x")
    prof = profile(on_trace_ready=handler())
    prof.start()
    prof.stop()
    (tmp_path / "out").unlink()
    prof.start()
    train(1)
    prof.stop()
    assert look.state(look.runs("out")[0])["state"] == "collected"
    assert len(errors(capfd)) == 1


def test_an_export_of_nothing_does_not_ask_for_stop(train, capfd, tmp_path):
    (tmp_path / "out").write_text("x")
    with profile(on_trace_ready=handler()) as prof:
        train(1)
    prof.export_chrome_trace(str(tmp_path / "trace.json"))
    assert errors(capfd)[1:] == ["export_chrome_trace: there is no recorded window."]


def test_a_black_box_without_a_folder_is_off(train, capfd, tmp_path):
    (tmp_path / "box").write_text("x")
    with BlackBox(tmp_path / "box", keep_steps=1) as box:
        train(3, box)
        box.capture()
    (line,) = errors(capfd)
    assert line == f"The black box is off, the training goes on: {tmp_path / 'box'} is a file, and run directories need a folder."
    assert box.captures == []


def test_a_window_of_a_thread_that_has_ended(train, look, capfd, with_kineto):
    prof = profile(on_trace_ready=handler())
    thread = threading.Thread(target=prof.start)
    thread.start()
    thread.join()
    prof.stop()
    (run,) = look.runs("out")
    assert look.state(run)["state"] == "failed"
    assert "is given up, because the thread in which it began has ended." in errors(capfd)[0]


def test_a_recording_that_is_ended_from_outside(train, look, capfd, with_kineto):
    torch = pytest.importorskip("torch")
    with profile(on_trace_ready=handler()):
        train(1)
        torch.autograd._disable_profiler()
    (run,) = look.runs("out")
    assert look.state(run)["state"] == "failed"
    assert "is given up, because something else, such as another profiler, ended it." in errors(capfd)[0]


def test_kineto_that_does_not_say_why(tmp_path, monkeypatch):
    results = SimpleNamespace(save=lambda path: None)
    with pytest.raises(OSError, match=r"Kineto wrote no file; .* are free now, and Kineto does not say why"):
        saving.save_trace(results, tmp_path / "x.partial", tmp_path / "trace.json")


def test_a_limit_on_the_size_of_files_is_named(train, look, capfd, with_kineto):
    before, limit = resource.getrlimit(resource.RLIMIT_FSIZE), 20_000
    with profile(schedule=ONE_WINDOW, on_trace_ready=handler()) as prof:
        train(1, prof)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
        try:
            train(1, prof)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    (run,) = look.runs("out")
    line = next(line for line in errors(capfd) if "The raw data" in line)
    assert f"Kineto wrote no file: a file of this process may have {limit} bytes (ulimit -f)" in line
    assert look.state(run)["state"] == "failed"
    assert not list((run / "KINETO").glob("*.partial*"))


def test_a_limit_on_the_size_of_files_ends_the_recorders(train, look, capfd):
    torch = pytest.importorskip("torch")
    before, limit = resource.getrlimit(resource.RLIMIT_FSIZE), 20_000
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        with profile(schedule=TWO_WINDOWS, on_trace_ready=handler()) as prof:
            train(1)
            for _ in range(1000):
                torch.ones(2)
            prof.step()
            train(1, prof)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    large, small = look.runs("out")
    line = next(line for line in errors(capfd) if "The raw data" in line)
    assert "the recorder could not write all of it" in line
    assert f"a file of this process may have {limit} bytes (ulimit -f)" in line
    assert [look.state(run)["state"] for run in (large, small)] == ["failed", "collected"]
    # what was written before that is there
    assert run_directory.read(large).required("ops").select("id").collect().height > 100


def test_a_small_file_beyond_the_limit_names_it(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(OSError, match=os.strerror(errno.EFBIG)) as raised:
            saving.rundir.write_bytes(tmp_path / "x", bytes(101))
        text = exception_text.text_of(raised.value)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert text == f"[Errno {errno.EFBIG}] {os.strerror(errno.EFBIG)}: a file of this process may have 100 bytes (ulimit -f)"
