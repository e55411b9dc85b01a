"""Recording a training: windows, files, state, restart."""

import gc
import gzip
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import steplens
from steplens import ProfilerAction, ProfilerActivity, profile, schedule, tensorboard_trace_handler
from steplens.collect.common.metadata import process_identity
from steplens.comparison.recordings import find_recordings


def handler(folder="out", **options):
    return tensorboard_trace_handler(str(folder), analyse_flag=False, **options)


def test_every_window_has_a_run_directory(train, look):
    with profile(schedule=schedule(wait=1, warmup=1, active=2, repeat=2), on_trace_ready=handler(worker_name="me")) as prof:
        train(9, prof)
    found = look.runs("out")
    assert [(look.state(run)["first_step"], look.state(run)["last_step"]) for run in found] == [(2, 3), (6, 7)]
    for run in found:
        assert run.name.startswith(f"me_{os.getpid()}_")
        content = look.state(run)
        assert content["state"] == "collected"
        assert content["health"] == []
        steps = [name for name in look.names(run) if name.startswith("ProfilerStep#")]
        assert steps == [f"ProfilerStep#{content['first_step']}", f"ProfilerStep#{content['last_step']}"]
        assert look.raw(run, "host_events.json")["gc"] == []
        assert look.raw(run, "host_events.json")["collection"]["save_ns"] > 0
        assert any(name.startswith("Optimizer.step#SGD") for name in look.names(run))


@pytest.mark.parametrize("name", ["n" * 219, "n" * 226, "梯" * 100, "team/ä\0b"], ids=["full", "long", "bytes", "separators"])
def test_worker_name_that_no_folder_can_have_is_mended_before_the_training(train, look, capfd, name):
    ready = handler(worker_name=name)
    said = capfd.readouterr().err.count("worker_name cannot begin a folder's name")
    with profile(on_trace_ready=ready):
        train(1)
    (run,) = look.runs("out")
    worker = run.name.rsplit("_", 4)[0]  # _<process>_<time>_ascend_pt
    assert said == (worker != name)
    assert 219 - 2 <= len(worker.encode()) <= 219 or worker == "team_ä_b"
    assert name.startswith(worker[:4]) and not capfd.readouterr().err.count("ERROR")


def test_without_a_schedule_there_are_no_steps(train, look, capfd):
    with profile(on_trace_ready=handler()) as prof:
        train(3, prof)
    (run,) = look.runs("out")
    assert not any(name.startswith("ProfilerStep") for name in look.names(run))
    assert look.checks(run) == []
    assert "WARNING" not in capfd.readouterr().err


def test_start_and_stop_again(train, look):
    prof = profile(schedule=schedule(wait=0, warmup=1, active=1, repeat=1), on_trace_ready=handler())
    for _ in range(2):
        prof.start()
        train(3, prof)
        prof.stop()
    assert [look.state(run)["first_step"] for run in look.runs("out")] == [1, 1]
    # of one process, though steps are counted anew
    (recording,) = find_recordings(steplens.open("out").traces)
    assert recording.steps.height == len(recording.traces) == 2


def test_window_cut_short_is_kept_and_marked(train, look, capfd):
    with profile(schedule=schedule(wait=0, warmup=0, active=5), on_trace_ready=handler()) as prof:
        train(2, prof)
    (run,) = look.runs("out")
    assert look.state(run)["state"] == "collected"
    assert look.checks(run) == ["stopped_inside_step"]
    assert look.state(run)["whole_steps"] is False
    told = capfd.readouterr().err
    assert "The profiler stopped in a" in told and "step: the window is shorter than the schedule says." in told


@pytest.mark.parametrize("wait", [0, 1])
def test_a_short_last_step_is_no_part_of_one(train, look, wait):
    """The middle one of three steps evaluates; the last one ends like any other, and counts in averages."""
    with profile(schedule=schedule(wait=wait, warmup=0, active=3, repeat=1), on_trace_ready=handler()) as prof:
        for step in range(wait + 3):
            train(300 if step == wait + 1 else 1)
            prof.step()
    (run,) = look.runs("out")
    assert look.state(run)["whole_steps"] is True
    opened = steplens.open(run)
    assert opened.steps()["complete"].to_list() == [True] * 3
    assert not set(opened.health()["check"]) & {"incomplete_first_step", "incomplete_last_step"}
    assert opened.traces[0].meta_value("process_identity") == look.state(run)["process_identity"] == process_identity()


def test_stop_during_warmup_leaves_nothing(train, look):
    prof = profile(schedule=schedule(wait=0, warmup=3, active=1), on_trace_ready=handler())
    with prof:
        train(1, prof)
        (run,) = look.runs("out")
        assert look.state(run)["state"] == "recording"
    assert look.runs("out") == []
    prof.start()
    train(4, prof)
    prof.stop()
    assert [look.state(run)["state"] for run in look.runs("out")] == ["collected"]


def test_state_while_recording(train, look):
    with profile(schedule=schedule(wait=1, warmup=1, active=2, repeat=1), on_trace_ready=handler()) as prof:
        train(3, prof)
        (run,) = look.runs("out")
        content = look.state(run)
        assert content["state"] == "recording"
        assert (content["first_step"], content["last_step"], content["pid"], content["rank"]) == (2, None, os.getpid(), -1)
        assert abs(content["start_ns"] - time.time_ns()) < 60e9
        assert not (run / "KINETO" / "trace.json").exists()


def test_step_after_stop_says_that_it_has_no_effect(train, capfd):
    prof = profile(schedule=schedule(wait=0, warmup=0, active=1, repeat=1), on_trace_ready=handler())
    with prof:
        train(1, prof)
    capfd.readouterr()
    prof.step()
    assert "step() has no effect" in capfd.readouterr().err


def test_schedule_of_torch_works(train, look):
    torch_profiler = pytest.importorskip("torch.profiler")
    plan = torch_profiler.schedule(wait=0, warmup=1, active=1, repeat=1)
    activities = [torch_profiler.ProfilerActivity.CPU]
    with profile(activities=activities, schedule=plan, on_trace_ready=handler()) as prof:
        train(3, prof)
    assert len(look.runs("out")) == 1


@pytest.mark.parametrize("bad", [{2: ProfilerAction.NONE}, {1: ProfilerAction.NONE}, {2: ProfilerAction.WARMUP}])
def test_incorrect_schedules_are_reported(bad, train, look, capfd):
    usual = [ProfilerAction.WARMUP, ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE]
    plan = {**dict(enumerate(usual)), **bad}
    with profile(schedule=lambda step: plan.get(step, ProfilerAction.NONE), on_trace_ready=handler()) as prof:
        train(5, prof)
    assert "Incorrect schedule" in capfd.readouterr().err
    assert all(look.state(run)["state"] == "collected" for run in look.runs("out"))


def test_modes_do_not_depend_on_the_umask(train, tmp_path):
    before = os.umask(0)
    try:
        with profile(on_trace_ready=handler("a/b/out"), with_modules=True) as prof:
            train(1, prof)
        prof.export_chrome_trace("x/trace.json.gz")
    finally:
        os.umask(before)
    for path in (tmp_path / "a", tmp_path / "x", *(tmp_path / "a").rglob("*"), *(tmp_path / "x").rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o750 if path.is_dir() else 0o640), path


def test_folder_of_the_environment_and_default(train, look, tmp_path, monkeypatch):
    monkeypatch.setenv("ASCEND_WORK_PATH", str(tmp_path / "work"))
    with profile(on_trace_ready=tensorboard_trace_handler(analyse_flag=False)):
        train(1)
    with profile() as prof:
        train(1)
    assert len(look.runs(tmp_path / "work" / "profiling_data")) == 2
    del prof
    assert len(look.runs(tmp_path / "work" / "profiling_data")) == 2
    monkeypatch.delenv("ASCEND_WORK_PATH")
    with profile(on_trace_ready=lambda _: None):
        train(1)
    assert len(look.runs(tmp_path)) == 1


def test_handler_called_by_a_function_moves_the_run(train, look, tmp_path):
    ready = handler("there")
    with profile(on_trace_ready=lambda prof: ready(prof)) as prof:
        train(1)
    assert look.runs(tmp_path) == []
    assert look.runs(tmp_path / "there") == [prof.run_directory]


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz", "new/folder/trace.json"])
def test_export_without_a_handler(name, train, tmp_path):
    prof = steplens._KinetoProfile(record_shapes=True)
    prof.start()
    train(1)
    prof.stop()
    run = prof.run_directory
    prof.export_chrome_trace(name)
    data = (tmp_path / name).read_bytes()
    content = json.loads(gzip.decompress(data) if name.endswith(".gz") else data)
    events = content if isinstance(content, list) else content["traceEvents"]
    assert any(event["name"] == "aten::addmm" for event in events)
    assert run.is_dir()
    del prof
    gc.collect()
    assert not run.parent.exists()


def test_export_before_a_window_is_an_error_line(capfd):
    profile().export_chrome_trace("x.json")
    assert "[ERROR]" in capfd.readouterr().err
    assert not Path("x.json").exists()


def test_shapes_flops_memory_and_stacks(train, look):
    with profile(on_trace_ready=handler(), record_shapes=True, profile_memory=True, with_stack=True, with_flops=True):
        train(1)
    (run,) = look.runs("out")
    events = look.raw(run)["traceEvents"]
    linear = next(event for event in events if event["name"] == "aten::addmm")
    assert linear["args"]["Input Dims"]
    assert any("[memory]" in event["name"] for event in events)
    assert any(event.get("cat") == "python_function" for event in events)


def test_garbage_collections(train, look):
    config = steplens._ExperimentalConfig(gc_detect_threshold=0)
    before = list(gc.callbacks)
    with profile(on_trace_ready=handler(), experimental_config=config):
        gc.collect(2)
    assert gc.callbacks == before
    (run,) = look.runs("out")
    records = [record for record in look.raw(run, "host_events.json")["gc"] if record[2] == 2]
    assert records
    start, end, _, pid, tid = records[0]
    assert look.state(run)["start_ns"] <= start < end
    assert (pid, tid) == (os.getpid(), threading.get_native_id())


def test_short_garbage_collections_are_left_out(look):
    with profile(on_trace_ready=handler(), experimental_config=steplens._ExperimentalConfig(gc_detect_threshold=60_000)):
        gc.collect()
    assert look.raw(look.runs("out")[0], "host_events.json")["gc"] == []


def test_data_loader_with_workers(look):
    torch = pytest.importorskip("torch")
    data = torch.utils.data.TensorDataset(torch.arange(64.0))
    loader = torch.utils.data.DataLoader(data, batch_size=8, num_workers=2)
    with profile(schedule=schedule(wait=1, warmup=1, active=2, repeat=1), on_trace_ready=handler(), with_modules=True) as prof:
        for (batch,) in loader:
            batch.mul(2)
            prof.step()
    (run,) = look.runs("out")
    assert sum(name.startswith("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__") for name in look.names(run)) == 2
    assert look.checks(run) == []


def test_what_this_machine_cannot_collect_is_said_once(train, look, capfd):
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    config = steplens._ExperimentalConfig(l2_cache=True, sys_io=True, profiler_level="Level1", aic_metrics="Memory")
    plan = schedule(wait=0, warmup=1, active=1, repeat=2)
    with profile(activities=list(ProfilerActivity), schedule=plan, on_trace_ready=handler(), experimental_config=config) as prof:
        train(5, prof)
    said = capfd.readouterr().err.splitlines()
    lines = [line for line in said if "Not collected on this device" in line]
    assert len(lines) == 2
    assert "ProfilerActivity.CUDA." in lines[0]
    assert "aic_metrics, l2_cache, sys_io" in lines[1]
    (line,) = [line for line in said if "No device data" in line]
    assert "set_env.sh" in line
    for run in look.runs("out"):
        assert look.checks(run) == ["not_collected", "device_data_missing", "not_collected"]
        assert [finding["severity"] for finding in look.state(run)["health"]] == ["info", "warning", "info"]


def test_only_unsupported_activities_mean_all_supported(train, look):
    with profile(activities=[ProfilerActivity.NPU], on_trace_ready=handler()):
        train(1)
    assert "aten::addmm" in look.names(look.runs("out")[0])


def test_observer_is_started_and_stopped(train):
    calls = []

    class Observer:
        def start(self):
            calls.append("start")

        def stop(self):
            calls.append("stop")
            raise RuntimeError("broken")

        def cleanup(self):
            calls.append("cleanup")

    with profile(on_trace_ready=handler(), execution_trace_observer=Observer()):
        train(1)
    assert calls == ["start", "stop", "cleanup"]


def test_stop_from_another_thread_ends_at_the_next_step(train, look, each_recorder):
    prof = profile(schedule=schedule(wait=0, warmup=0, active=100), on_trace_ready=handler())
    prof.start()
    train(2, prof)
    thread = threading.Thread(target=prof.stop)
    thread.start()
    thread.join()
    (run,) = look.runs("out")
    if each_recorder != "off":
        # any thread ends what the recorder records
        assert look.state(run)["state"] == "collected"
        assert look.state(run)["last_step"] == 2
        assert [name for name in look.names(run) if name.startswith("ProfilerStep")] == [
            f"ProfilerStep#{step}" for step in range(3)
        ]
        return
    assert look.state(run)["state"] == "recording"
    train(1, prof)
    assert look.state(run)["state"] == "collected"
    assert look.state(run)["last_step"] == 2
    assert "late_stop" in look.checks(run)


THREADS = """
import threading, torch, steplens
model = torch.nn.Linear(4, 4)
prof = steplens.profile(
    schedule=steplens.schedule(wait=0, warmup=1, active=2, repeat=2),
    on_trace_ready=steplens.tensorboard_trace_handler("out", analyse_flag=False),
)
def train(steps):
    for _ in range(steps):
        model(torch.ones(2, 4)).sum().backward()
        prof.step()
def in_thread(steps):
    thread = threading.Thread(target=train, args=(steps,))
    thread.start()
    thread.join()
"""
OWNER_ENDS = "prof.start()\nin_thread(2)\nin_thread(5)\nprof.stop()"
OWNER_RETURNS = "prof.start()\ntrain(2)\nin_thread(3)\ntrain(1)\nprof.stop()"


def in_threads(look, program, tmp_path):
    return look.warm_python(THREADS + program, cwd=tmp_path)


def test_a_window_whose_thread_has_ended_is_given_up_and_the_next_one_is_recorded(look, tmp_path, with_kineto):
    done = in_threads(look, OWNER_ENDS, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "the thread in which it began has ended" in done.stderr
    lost, kept = look.runs("out")
    assert look.state(lost)["state"] == "failed" and "save_failed" in look.checks(lost)
    assert look.state(kept)["state"] == "collected" and look.state(kept)["last_step"] == 5


def test_steps_of_another_thread_do_not_count_while_a_window_records(look, tmp_path, with_kineto):
    done = in_threads(look, OWNER_RETURNS, tmp_path)
    assert done.returncode == 0, done.stderr
    (run,) = look.runs("out")
    assert look.state(run)["state"] == "collected" and look.state(run)["last_step"] == 2
    assert "other_thread" in look.checks(run)


KILLED = """
import sys, time, torch, steplens
model = torch.nn.Linear(4, 4)
with steplens.profile(
    schedule=steplens.schedule(wait=0, warmup=1, active=2, repeat=2),
    on_trace_ready=steplens.tensorboard_trace_handler("out", analyse_flag=False),
) as prof:
    for step in range(4):
        model(torch.ones(2, 4)).sum().backward()
        prof.step()
    print("second window is open", flush=True)
    time.sleep(600)
"""


def test_the_recorder_goes_with_the_steps_from_thread_to_thread(look, tmp_path):
    for number, program in enumerate((OWNER_ENDS, OWNER_RETURNS)):
        folder = tmp_path / str(number)
        folder.mkdir()
        done = in_threads(look, program, folder)
        assert done.returncode == 0, done.stderr
        found = look.runs(folder / "out")
        assert [look.state(run)["state"] for run in found] == ["collected"] * 2
        assert [look.state(run)["last_step"] for run in found] == [2, 5]
        steps = [name for run in found for name in look.names(run) if name.startswith("ProfilerStep")]
        assert steps == [f"ProfilerStep#{step}" for step in (1, 2, 4, 5)]
        assert [look.checks(run) for run in found] == [[], []]


def test_killed_process_keeps_its_closed_windows(look, tmp_path, each_recorder):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src")}
    process = subprocess.Popen([sys.executable, "-c", KILLED], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)
    assert "open" in process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.wait()
    first, second = look.runs(tmp_path / "out")
    assert look.state(first)["state"] == "collected"
    assert "ProfilerStep#2" in look.names(first)
    assert look.state(second)["state"] == "recording"
    assert look.state(second)["pid"] == process.pid
    kept = {path.name for path in (second / "KINETO").iterdir()}
    assert kept == {"state.json", *(["operators.rec"] if each_recorder != "off" else [])}


FORGOTTEN = """
import torch, steplens
prof = steplens.profile(on_trace_ready=steplens.tensorboard_trace_handler("out", analyse_flag=False))
prof.start()
torch.ones(3).cumsum(0)
"""


def test_window_still_open_at_the_end_of_the_program_is_closed(look, tmp_path):
    done = look.warm_python(FORGOTTEN, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (run,) = look.runs(tmp_path / "out")
    assert look.state(run)["state"] == "collected"
    assert "aten::cumsum" in look.names(run)


GATED = """
import steplens
with steplens.profile(on_trace_ready=steplens.tensorboard_trace_handler("out")) as prof:
    prof.step()
    print(prof.get_trace_id())
prof.export_chrome_trace("x.json")
"""


@pytest.mark.parametrize("variable", ["PROFILER_SAMPLECONFIG", "PROFILING_MODE"])
def test_another_profiler_switches_us_off(variable, look, tmp_path):
    done = look.python(GATED, cwd=tmp_path, env={variable: "dynamic"})
    assert done.returncode == 0, done.stderr
    assert done.stdout == "None\n"
    told = f"{variable} is set: another profiler is at work in this process, steplens records nothing."
    assert done.stderr.count(told) == 1
    assert list(tmp_path.iterdir()) == []


IMPORT = """
import time
start = time.process_time()
import sys
import steplens
took = time.process_time() - start
heavy = {"torch", "polars", "numpy", "msgspec", "typer", "rich"} & set(sys.modules)
assert not heavy, heavy
steplens.schedule, steplens._ExperimentalConfig, steplens.profile, steplens.tensorboard_trace_handler
heavy = {"torch", "polars", "numpy"} & set(sys.modules)
assert not heavy, heavy
print(start, took)
"""


def test_import_is_light(look, tmp_path):
    # the start of Python itself is the measure of how fast this machine is
    starts, imports = zip(*(map(float, look.python(IMPORT, cwd=tmp_path).stdout.split()) for _ in range(5)), strict=True)
    assert min(imports) < 3 * min(starts)


def test_public_names():
    import importlib

    assert sorted(steplens.__all__) == sorted(steplens._EXPORTS)
    assert set(steplens.__all__) <= set(dir(steplens))
    for name, target in steplens._EXPORTS.items():
        module, _, attribute = target.partition(":")
        if module.startswith("steplens.collect") or module == "steplens.common.options":
            assert getattr(steplens, name) is getattr(importlib.import_module(module), attribute or name)
    with pytest.raises(AttributeError):
        steplens.nothing  # noqa: B018
