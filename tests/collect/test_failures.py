"""Whatever fails in the profiler, the training goes on, one line says so and the run's health records it."""

import errno
import json
import os
import subprocess

import pytest

from steplens import profile, schedule, tensorboard_trace_handler
from steplens.collect.torch_internals import modules

TWO_WINDOWS = schedule(wait=0, warmup=1, active=1, repeat=2)


def handler(folder="out"):
    return tensorboard_trace_handler(str(folder), analyse_flag=False)


def errors(capfd):
    return [line for line in capfd.readouterr().err.splitlines() if "[ERROR]" in line]


def test_folder_that_cannot_be_made(train, capfd, tmp_path):
    (tmp_path / "out").write_text("a file")
    with profile(schedule=TWO_WINDOWS, on_trace_ready=handler()) as prof:
        train(5, prof)
    (line,) = errors(capfd)
    assert "Nothing is recorded, the training goes on: " in line and "is a file" in line


def test_handler_that_raises(train, look, capfd):
    def fail(_):
        raise RuntimeError("no\nspace")

    with profile(schedule=TWO_WINDOWS, on_trace_ready=fail) as prof:
        train(5, prof)
    assert [line.split("profiler.py: ")[1] for line in errors(capfd)] == [
        "Call on_trace_ready failed. Exception: RuntimeError: no space"
    ] * 2
    for run in look.runs("."):
        assert look.state(run)["state"] == "collected"
        assert look.checks(run) == ["call_failed"]


def test_schedule_that_raises(train, look, capfd):
    def fail(step):
        if step == 3:
            raise KeyError(step)
        return TWO_WINDOWS(step)

    with profile(schedule=fail, on_trace_ready=handler()) as prof:
        train(6, prof)
    assert len(errors(capfd)) == 1
    assert look.state(look.runs("out")[0])["state"] == "collected"


def test_schedule_that_raises_at_the_start(train, capfd):
    with profile(schedule=lambda _: 1 / 0, on_trace_ready=handler()) as prof:
        train(2, prof)
    assert errors(capfd)


def test_texts_that_are_half_a_pair_reach_the_state(train, look, capfd):
    lone, one_window = os.fsdecode(b"caf\xe9"), schedule(wait=0, warmup=1, active=1, repeat=1)

    def fail(step):
        if step == 2:
            raise RuntimeError(lone)
        return one_window(step)

    def ready(_):
        raise RuntimeError(f"handler of {lone}")

    with profile(schedule=fail, on_trace_ready=ready) as prof:
        prof.add_metadata("file", lone)
        train(3, prof)
    assert len(errors(capfd)) == 2
    (run,) = look.runs(".")
    assert look.state(run)["state"] == "collected"
    said = [finding["message"] for finding in look.state(run)["health"] if finding["check"] == "call_failed"]
    assert said == ["schedule failed: RuntimeError: caf\\udce9", "on_trace_ready failed: RuntimeError: handler of caf\\udce9"]
    assert json.loads((run / "profiler_metadata.json").read_bytes())["file"] == lone
    done = look.python("import sys; from steplens.cli.main import main; sys.exit(main())", "summary", run, cwd=".")
    assert done.returncode == 0, done.stderr
    assert "caf\\udce9" in done.stdout


def test_another_profiler_is_not_disturbed(train, look, capfd, with_kineto):
    torch_profiler = pytest.importorskip("torch.profiler")
    with torch_profiler.profile(activities=[torch_profiler.ProfilerActivity.CPU]) as other:
        with profile(schedule=TWO_WINDOWS, on_trace_ready=handler()) as prof:
            train(5, prof)
        train(1)
    assert len(other.events()) > 100
    lines = errors(capfd)
    assert len(lines) == 2
    assert all("another profiler is recording" in line for line in lines)
    for run in look.runs("out"):
        assert look.state(run)["state"] == "failed"
        assert look.checks(run) == ["call_failed"]
    with profile(on_trace_ready=handler("after")):
        train(1)
    assert look.state(look.runs("after")[0])["state"] == "collected"


def test_hooks_that_fail(train, look, monkeypatch, capfd):
    monkeypatch.setattr(modules.ModuleHooks, "_name", lambda *_: 1 / 0)
    with profile(on_trace_ready=handler(), with_modules=True):
        train(3)
    assert len(errors(capfd)) == 1
    assert look.checks(look.runs("out")[0]) == ["modules_incomplete"]


def test_run_directory_that_disappears(train, capfd):
    with profile(on_trace_ready=handler()) as prof:
        train(1)
        subprocess.run(["rm", "-r", "out"], check=True)
    prof.step()
    assert errors(capfd)


def test_programming_errors_are_raised():
    with pytest.raises(TypeError):
        profile(profile_everything=True)


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("a small file system cannot be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_full_disk(train, look, small_disk, capfd, each_recorder):
    torch = pytest.importorskip("torch")
    plan = schedule(wait=0, warmup=0, active=1, repeat=2)
    with profile(schedule=plan, on_trace_ready=handler(small_disk)) as prof:
        for _ in range(10_000):
            torch.ones(2)
        prof.step()
        train(1, prof)
    full, small = look.runs(small_disk)
    assert look.state(full)["state"] == "failed"
    assert look.checks(full) == ["disk_space", "save_failed"]
    assert not [path for path in (full / "KINETO").iterdir() if "trace" in path.name]
    if each_recorder != "off":
        # half of what fitted is kept, and the rest of the room given back
        assert 400_000 < look.raw_bytes(full) < 600_000
        assert look.names(full).count("aten::ones") > 2000
    assert look.state(small)["state"] == "collected"
    assert "ProfilerStep#1" in look.names(small)
    err = capfd.readouterr().err
    lines = [line for line in err.splitlines() if "[ERROR]" in line]
    assert len(lines) == 1
    assert os.strerror(errno.ENOSPC) in lines[0]
    assert "KiB are free" in err


# with a buffer, what could not be written would make Python end with code 120
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_closed_stderr(look, tmp_path, unbuffered):
    code = """
import os, torch, steplens
os.close(2)
with steplens.profile(on_trace_ready=steplens.tensorboard_trace_handler("out", analyse_flag=False), record_shapes=1) as prof:
    torch.ones(2)
prof.step()
"""
    assert look.python(code, cwd=tmp_path, env={"PYTHONUNBUFFERED": unbuffered}).returncode == 0
    assert len(look.runs(tmp_path / "out")) == 1


TWO_OF_OURS = """
import sys, threading, torch
import steplens

def train(*stepped):
    for _ in range(24):
        model(torch.ones(4, 8)).sum().backward()
        for one in stepped:
            one.step()

def recorder(folder, **plan):
    ready = steplens.tensorboard_trace_handler(folder, analyse_flag=False)
    return steplens.profile(schedule=steplens.schedule(**plan), on_trace_ready=ready)

model, how = torch.nn.Linear(8, 2), sys.argv[1]
if how == "black box":
    # its windows change inside of what the profiler calls a step
    with steplens.BlackBox("box", keep_steps=3, on_slow_step=False, analyse_flag=False) as box:
        with recorder("first", wait=3, warmup=1, active=2) as profiler:
            train(box, profiler)
            box.capture()
            train(box, profiler)
elif how == "threads":
    def in_thread(number):
        with recorder("first", wait=number, warmup=1, active=2) as profiler:
            train(profiler)
    threads = [threading.Thread(target=in_thread, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
else:
    wait = 0 if how == "same" else 1
    with recorder("first", wait=0, warmup=1, active=2) as first, recorder("second", wait=wait, warmup=1, active=2) as second:
        train(first, second)
print("trained to the end")
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["same", "one step later", "threads", "black box"])
def test_of_two_profilers_at_a_time_one_records(look, tmp_path, how, each_recorder):
    pytest.importorskip("torch")
    done = look.warm_python(TWO_OF_OURS, how, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "trained to the end"
    refused = [line for line in done.stderr.splitlines() if "[ERROR]" in line]
    taken = "another profiler is recording in this process, or warms up for it" if each_recorder == "off" else "and has another"
    assert all(taken in line for line in refused)
    if how == "black box":
        assert refused
        kept = [run for event in (tmp_path / "box").iterdir() for run in look.runs(event)]
        assert kept and {look.state(run)["state"] for run in kept} == {"collected"}
        return
    first, second = ([look.state(run)["state"] for run in look.runs(tmp_path / folder)] for folder in ("first", "second"))
    if how == "threads":
        assert "collected" in first
    elif each_recorder != "off" and how == "one step later":
        # whichever begins to record when the other does not; a warmup holds nothing
        assert refused and set(first) == set(second) == {"collected", "failed"}
    else:
        assert refused
        assert first == ["collected"] * 8
        assert set(second) == {"failed"}


def test_a_recording_that_could_not_be_ended_for_lack_of_memory_costs_one_window(train, look, monkeypatch, with_kineto):
    profiler = pytest.importorskip("torch.autograd.profiler")
    original = profiler._disable_profiler

    def lacks_memory():
        monkeypatch.setattr(profiler, "_disable_profiler", original)
        original()
        raise MemoryError("std::bad_alloc")

    monkeypatch.setattr(profiler, "_disable_profiler", lacks_memory)
    with profile(schedule=TWO_WINDOWS, on_trace_ready=handler()) as prof:
        train(5, prof)
    assert [look.state(run)["state"] for run in look.runs("out")] == ["failed", "collected"]


def test_a_profiler_in_warmup_that_is_given_up_lets_others_record(train, look, with_kineto):
    pytest.importorskip("torch")
    first = profile(schedule=schedule(wait=0, warmup=3, active=1), on_trace_ready=handler("first"))
    first.start()
    train(1, first)
    with profile(on_trace_ready=handler("refused")):
        train(1)
    assert look.checks(look.runs("refused")[0]) == ["call_failed"]
    first.stop()
    assert not look.runs("first")
    with profile(on_trace_ready=handler("after")):
        train(1)
    assert look.state(look.runs("after")[0])["state"] == "collected"


@pytest.mark.parametrize("call", ["step", "start"])
def test_calls_out_of_a_handler_have_no_effect_and_say_so(train, look, capfd, call):
    def ready(prof):
        getattr(prof, call)()

    with profile(schedule=TWO_WINDOWS, on_trace_ready=ready) as prof:
        train(5, prof)
    said = capfd.readouterr().err
    assert said.count(f"{call}() has no effect in a function that the profiler calls, such as on_trace_ready.") == 2
    assert [look.state(run)["state"] for run in look.runs(".")] == ["collected"] * 2
    assert [look.state(run)["first_step"] for run in look.runs(".")] == [1, 3]


@pytest.mark.parametrize("follows", ["warmup", "record", "nothing"])
def test_a_handler_that_stops_the_profiler_gets_no_other_window(train, look, capfd, follows):
    wanted = schedule(wait=follows == "nothing", warmup=follows == "warmup", active=1, repeat=0)
    with profile(schedule=wanted, on_trace_ready=lambda prof: prof.stop()) as prof:
        train(6, prof)
    (run,) = look.runs(".")
    assert look.state(run)["state"] == "collected" and not look.checks(run)
    said = capfd.readouterr().err
    assert said.count("step() has no effect, the profiler is not running.") == 6 - look.state(run)["first_step"] - 1
    assert "ERROR" not in said


def test_a_schedule_that_calls_the_profiler(train, look, capfd):
    def ask(step):
        if step == 2:
            prof.step()
            prof.start()
        if step == 3:
            prof.stop()
        return TWO_WINDOWS(step)

    prof = profile(schedule=ask, on_trace_ready=handler())
    with prof:
        train(5, prof)
    (run,) = look.runs("out")
    assert look.state(run)["state"] == "collected"
    assert prof.step_num == 2
    said = capfd.readouterr().err
    assert said.count("has no effect in a function that the profiler calls") == 2
    assert said.count("step() has no effect, the profiler is not running.") == 2


class Unspeakable(Exception):
    """An exception whose text cannot be made."""

    def __str__(self):
        raise Unspeakable


@pytest.mark.parametrize("where", ["handler", "schedule", "trace id", "observer", "name of an action"])
def test_exceptions_without_a_text_stay_with_the_profiler(train, look, capfd, where):
    def fail(*_):
        raise Unspeakable

    def wanted(step):
        if step == 3 and where == "schedule":
            fail()
        if step == 3 and where == "name of an action":
            return type("Action", (), {"name": property(fail)})()
        return schedule(wait=0, warmup=1, active=2, repeat=1)(step)

    more = {"custom_trace_id_callback": fail} if where == "trace id" else {}
    if where == "observer":
        more["execution_trace_observer"] = type("Observer", (), {"start": fail, "stop": fail, "cleanup": fail})()
    with profile(schedule=wanted, on_trace_ready=fail if where == "handler" else handler("."), **more) as prof:
        train(5, prof)
    assert prof.step_num == 5
    (run,) = look.runs(".")
    assert look.state(run)["state"] == "collected" and look.state(run)["last_step"] == 2
    assert all("Exception: Unspeakable: it has no text, making it raises Unspeakable" in line for line in errors(capfd))


def test_metadata_of_hostile_texts(train, look, capfd):
    class Hostile(str):
        def _no(self, *_):
            raise RuntimeError("no")

        __hash__ = __len__ = __str__ = __repr__ = __format__ = __sizeof__ = encode = _no

    with profile(on_trace_ready=handler(), custom_trace_id_callback=lambda: Hostile("id")) as prof:
        prof.add_metadata(Hostile("key"), Hostile("value"))
        prof.add_metadata_json(Hostile("list"), Hostile("[1]"))
        prof.preset_metadata_json(Hostile("preset"), Hostile("2"))
        train(1)
    (run,) = look.runs("out")
    assert look.state(run)["state"] == "collected"
    content = json.loads((run / "profiler_metadata.json").read_bytes())
    assert (content["key"], content["list"], content["preset"], content["trace_id"]) == ("value", [1], 2, "id")
    assert len(errors(capfd)) == 0
