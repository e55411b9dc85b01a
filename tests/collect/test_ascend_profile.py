"""`profile` on a machine with CANN: Kineto's data of the host and CANN's of the device in one run directory."""

import json
import os
import sys
import threading
import types

import numpy as np
import pytest

from steplens import ProfilerAction, ProfilerActivity, _ExperimentalConfig, profile, schedule, tensorboard_trace_handler
from steplens.collect.ascend.device_session import DeviceSession
from steplens.collect.pytorch import activities
from steplens.readers.ascend import prof_directory
from steplens.trace.health import CONCLUSIONS, HealthLog

from .ascend_library.build import Stand

torch = pytest.importorskip("torch")

NPU = [ProfilerActivity.CPU, ProfilerActivity.NPU]
PLAN = schedule(wait=0, warmup=1, active=2, repeat=1)

PREPARE = ["Init", "CreateConfig"]
WARM_UP = [*PREPARE, "Warmup"]
START = ["Start", "RegisterDeviceCallback"]
END = ["Stop", "DestroyConfig", "Finalize"]
CANCEL = ["Start", *END]


@pytest.fixture(autouse=True)
def _no_devices(monkeypatch):
    for name in ("DEVICE_ID", "ASCEND_DEVICE_ID", "TASK_QUEUE_ENABLE", "STEPLENS_MSPROFILER_LIBRARY"):
        monkeypatch.delenv(name, raising=False)
    yield
    assert DeviceSession._owner is None, "a test left the device open"


@pytest.fixture
def stand(monkeypatch, tmp_path):
    return Stand(monkeypatch, tmp_path)


@pytest.fixture
def torch_npu(monkeypatch):
    """A program that has imported torch_npu and uses device 6."""
    npu = types.SimpleNamespace(waited=[], available=True)
    npu.is_available = lambda: npu.available
    npu.current_device = lambda: 6
    npu.recording = []

    def synchronize(device):
        npu.waited.append(device)
        npu.recording.append(bool(torch.autograd._profiler_enabled()))

    npu.synchronize = synchronize
    monkeypatch.setitem(sys.modules, "torch_npu", types.ModuleType("torch_npu"))
    monkeypatch.setattr(torch, "npu", npu, raising=False)
    return npu


def handler():
    return tensorboard_trace_handler("out", analyse_flag=False)


def prof_directories(run):
    return [path.name for path in run.glob("PROF_*")]


def steps(look, run):
    """Begin and end of the steps in Unix ns."""
    base = int(look.raw(run).get("baseTimeNanoseconds", 0))
    return [
        (base + round(event["ts"] * 1000), base + round((event["ts"] + event["dur"]) * 1000))
        for event in look.raw(run)["traceEvents"]
        if event["name"].startswith("ProfilerStep#") and event.get("cat") == "user_annotation"
    ]


def test_host_and_device_in_one_directory(stand, torch_npu, train, look, capfd):
    log = stand()
    stand.set("STEPLENS_TEST_DELAY", "aclprofStart=60,aclprofStop=30")
    stand.set("TASK_QUEUE_ENABLE", "0")
    with profile(activities=NPU, schedule=PLAN, on_trace_ready=handler()) as prof:
        train(4, prof)
    (run,) = look.runs("out")
    assert log.calls == [*WARM_UP, *START, *END]
    assert not log.failed
    assert log.leaks == 0
    assert log.one("Init") == {"path": str(run.resolve())}
    assert log.one("CreateConfig") == {"device": 6, "count": 1, "metrics": 255, "mask": 0x801}
    assert len(prof_directories(run)) == 1
    assert look.state(run)["health"] == []
    assert "aten::addmm" in look.names(run)
    assert "No device data" not in capfd.readouterr().err
    # The device records before the first recorded step begins and until after the last one.
    recorded = steps(look, run)
    assert len(recorded) == 2
    ((_, running),) = log.times("Start")
    ((stopping, _),) = log.times("Stop")
    assert running <= recorded[0][0]
    assert stopping >= recorded[-1][1]
    assert set(torch_npu.waited) == {6}
    # It is idle before anything is recorded, and again before Kineto and then CANN stop.
    assert torch_npu.recording == [False, True, False]


def test_what_the_run_says_about_itself(stand, torch_npu, train, look):
    log = stand()
    stand.set("TASK_QUEUE_ENABLE", "0")
    config = _ExperimentalConfig(profiler_level="Level1", aic_metrics="Memory", l2_cache=True, sys_io=True)
    with profile(
        activities=NPU, schedule=PLAN, on_trace_ready=handler(), profile_memory=True, experimental_config=config
    ) as prof:
        train(4, prof)
    (run,) = look.runs("out")
    info = json.loads((run / "profiler_info.json").read_text())
    assert info["config"]["common_config"]["activities"] == ["ProfilerActivity.CPU", "ProfilerActivity.NPU"]
    assert info["ascend"] == {
        "library": str(log.library),
        "device_id": 6,
        "data_type_config": "0x1037",
        "aicore_metrics": 2,
        "configs": {"SYS_HARDWARE_MEM_FREQ": "50", "SYS_IO_FREQ": "100"},
        "warmed_up": True,
        "recorded": True,
        "directories": prof_directories(run),
    }
    assert log.one("CreateConfig") == {"device": 6, "count": 1, "metrics": 2, "mask": 0x1037}
    # The clocks that join host and device: Unix time and raw monotonic time taken together, here and by CANN.
    ours = info["end_info"]["collectionTimeEnd"] - info["end_info"]["MonotonicTimeEnd"]
    begin = info["start_info"]["collectionTimeStart"] - info["start_info"]["start_monotonic"]
    theirs = json.loads((run / prof_directories(run)[0] / "host" / "start_info").read_text())
    cann = int(theirs["collectionTimeBegin"]) * 1000 - int(theirs["clockMonotonicRaw"])
    assert abs(ours - cann) < 10_000_000
    assert abs(begin - cann) < 10_000_000
    assert info["start_info"]["syscnt_enable"] is False


TABLE = {
    ("NONE", "NONE"): [],
    ("NONE", "WARMUP"): [*WARM_UP, *CANCEL],
    ("NONE", "RECORD"): [*PREPARE, *START, *END],
    ("NONE", "RECORD_AND_SAVE"): [*PREPARE, *START, *END],
    ("WARMUP", "NONE"): [*WARM_UP, *START, *END],
    ("WARMUP", "WARMUP"): [*WARM_UP, *CANCEL],
    ("WARMUP", "RECORD"): [*WARM_UP, *START, *END],
    ("WARMUP", "RECORD_AND_SAVE"): [*WARM_UP, *START, *END],
    ("RECORD", "NONE"): [*PREPARE, *START, *END],
    ("RECORD", "WARMUP"): [*PREPARE, *START, *END],
    ("RECORD", "RECORD"): [*PREPARE, *START, *END],
    ("RECORD", "RECORD_AND_SAVE"): [*PREPARE, *START, *END],
    ("RECORD_AND_SAVE", "NONE"): [*PREPARE, *START, *END],
    ("RECORD_AND_SAVE", "WARMUP"): [*PREPARE, *START, *END, *WARM_UP, *CANCEL],
    ("RECORD_AND_SAVE", "RECORD"): [*PREPARE, *START, *END] * 2,
    ("RECORD_AND_SAVE", "RECORD_AND_SAVE"): [*PREPARE, *START, *END] * 2,
}


@pytest.mark.parametrize(("actions", "expected"), TABLE.items(), ids=["-".join(actions) for actions in TABLE])
def test_the_action_table(stand, train, look, actions, expected):
    log = stand()
    plan = [ProfilerAction[name] for name in actions]
    with profile(activities=NPU, schedule=lambda step: plan[min(step, 1)], on_trace_ready=handler()) as prof:
        train(1, prof)
        train(1)
    assert log.calls == expected
    assert not log.failed
    assert log.leaks == 0
    kept = {entry["path"] for entry in log.all("Init")} & {str(run.resolve()) for run in look.runs("out")}
    # A warm-up at the end of the program is thrown away with its directory.
    assert len(kept) == log.calls.count("Init") - (actions[1] == "WARMUP" and actions[0] != "RECORD")


def test_one_object_records_again_and_again(stand, train, look):
    log = stand()
    prof = profile(activities=NPU, schedule=schedule(wait=0, warmup=1, active=1, repeat=2), on_trace_ready=handler())
    for _ in range(2):
        prof.start()
        train(4, prof)
        prof.stop()
    runs = look.runs("out")
    assert len(runs) == 4
    assert log.calls == [*WARM_UP, *START, *END] * 4
    assert [len(prof_directories(run)) for run in runs] == [1] * 4
    assert not log.failed


def test_without_a_schedule(stand, train, look):
    log = stand()
    with profile(activities=NPU, on_trace_ready=handler()):
        train(2)
    assert log.calls == [*PREPARE, *START, *END]
    assert len(prof_directories(look.runs("out")[0])) == 1


def test_the_device_alone_is_recorded_with_the_host_because_steps_are_there(stand, train, look, capfd):
    stand()
    with profile(activities=[ProfilerActivity.NPU], schedule=PLAN, on_trace_ready=handler()) as prof:
        train(4, prof)
    (run,) = look.runs("out")
    assert len(steps(look, run)) == 2
    assert len(prof_directories(run)) == 1
    assert "ProfilerActivity.CPU is recorded as well" in capfd.readouterr().err


def test_everything_by_default(stand, torch_npu, train, look):
    log = stand()
    assert ProfilerActivity.NPU in activities.supported_activities()
    with profile(on_trace_ready=handler()):
        train(1)
    assert log.one("CreateConfig")["device"] == 6


@pytest.mark.parametrize("obstacle", ["not imported", "no device", "no library"])
def test_by_default_no_device_without_all_it_needs(stand, torch_npu, train, look, monkeypatch, obstacle):
    log = stand()
    if obstacle == "not imported":
        monkeypatch.delitem(sys.modules, "torch_npu")
    elif obstacle == "no device":
        torch_npu.available = False
    else:
        monkeypatch.setenv("STEPLENS_MSPROFILER_LIBRARY", "/nowhere/lib.so")
    assert ProfilerActivity.NPU not in activities.supported_activities()
    with profile(on_trace_ready=handler()):
        train(1)
    assert log.calls == []
    assert look.state(look.runs("out")[0])["health"] == []


@pytest.mark.parametrize(
    ("environment", "device"),
    [({}, 0), ({"ASCEND_DEVICE_ID": "2"}, 2), ({"DEVICE_ID": "4", "ASCEND_DEVICE_ID": "2"}, 4), ({"DEVICE_ID": "x"}, 0)],
)
def test_the_device_of_a_program_without_torch_npu(stand, train, environment, device):
    log = stand()
    for name, value in environment.items():
        stand.set(name, value)
    with profile(activities=NPU, on_trace_ready=handler()):
        train(1)
    assert log.one("CreateConfig")["device"] == device


def test_missing_library_is_one_warning_and_the_data_of_the_host(train, look, monkeypatch, capfd):
    monkeypatch.setenv("STEPLENS_MSPROFILER_LIBRARY", "/nowhere/lib.so")
    plan = schedule(wait=0, warmup=1, active=1, repeat=2)
    config = _ExperimentalConfig(l2_cache=True)
    with profile(activities=NPU, schedule=plan, on_trace_ready=handler(), experimental_config=config) as prof:
        train(5, prof)
    err = capfd.readouterr().err
    assert err.count("No device data: STEPLENS_MSPROFILER_LIBRARY names /nowhere/lib.so") == 1
    assert "Not collected on this device: l2_cache." in err
    for run in look.runs("out"):
        assert look.state(run)["state"] == "collected"
        assert "aten::addmm" in look.names(run)
        (missing, _) = look.state(run)["health"]
        assert (missing["check"], missing["severity"]) == ("device_data_missing", "warning")
        assert set(missing["unsafe"].split(", ")) <= set(CONCLUSIONS)
        assert "kernel times" in missing["unsafe"]
        assert prof_directories(run) == []
        info = json.loads((run / "profiler_info.json").read_text())
        assert info["config"]["common_config"]["activities"] == ["ProfilerActivity.CPU"]
        assert "ascend" not in info


@pytest.mark.parametrize("call", ["Init", "CreateConfig", "Start"])
def test_a_device_that_cannot_be_recorded_leaves_the_data_of_the_host(stand, train, look, capfd, call):
    log = stand()
    stand.fail(**{call: 500005})
    with profile(activities=NPU, schedule=PLAN, on_trace_ready=handler()) as prof:
        train(4, prof)
    (run,) = look.runs("out")
    assert look.state(run)["state"] == "collected"
    assert "aten::addmm" in look.names(run)
    (finding,) = look.state(run)["health"]
    assert (finding["check"], finding["severity"]) == ("device_data_missing", "error")
    assert f"aclprof{call}" in finding["message"]
    assert f"aclprof{call}" in capfd.readouterr().err
    assert log.leaks == 0
    assert json.loads((run / "profiler_info.json").read_text())["ascend"]["recorded"] is False


def test_a_window_that_kineto_cannot_record_closes_the_device(stand, train, look):
    log = stand()
    torch_profiler = pytest.importorskip("torch.profiler")
    with torch_profiler.profile(activities=[torch_profiler.ProfilerActivity.CPU]):
        with profile(activities=NPU, schedule=PLAN, on_trace_ready=handler()) as prof:
            train(4, prof)
        train(1)
    assert log.calls in (["Init", "Finalize"], [*WARM_UP, *CANCEL])
    with profile(activities=NPU, on_trace_ready=handler()):
        train(1)
    assert log.calls[-8:] == ["Finalize", *PREPARE, *START, *END]


def test_kineto_that_fails_while_the_device_records(stand, train, look, monkeypatch, capfd):
    log = stand()
    autograd_profiler = pytest.importorskip("torch.autograd.profiler")

    def fail(self):
        raise RuntimeError("no Kineto today")

    monkeypatch.setattr(autograd_profiler.profile, "_start_trace", fail)
    with profile(activities=NPU, schedule=PLAN, on_trace_ready=handler()) as prof:
        train(4, prof)
    assert log.calls == [*WARM_UP, *START, *END]
    assert log.leaks == 0
    assert "no Kineto today" in capfd.readouterr().err


def test_stop_from_another_thread(stand, train, look):
    log = stand()
    prof = profile(activities=NPU, schedule=schedule(wait=0, active=100), on_trace_ready=handler())
    prof.start()
    train(2, prof)
    thread = threading.Thread(target=prof.stop)
    thread.start()
    thread.join()
    train(1, prof)
    assert log.calls == [*PREPARE, *START, *END]
    assert len(prof_directories(look.runs("out")[0])) == 1


def test_a_program_that_ends_without_stop(stand, look, tmp_path):
    log = stand()
    code = """
import torch, steplens
prof = steplens.profile(activities=[steplens.ProfilerActivity.CPU, steplens.ProfilerActivity.NPU],
                        on_trace_ready=steplens.tensorboard_trace_handler("out", analyse_flag=False))
prof.start()
torch.ones(2).sum()
"""
    assert look.python(code, cwd=tmp_path).returncode == 0
    (run,) = look.runs(tmp_path / "out")
    assert log.calls == [*PREPARE, *START, *END]
    assert look.state(run)["state"] == "collected"
    assert len(prof_directories(run)) == 1


def test_a_directory_that_is_moved_takes_the_device_data_along(stand, train, look):
    stand()
    inner = handler()
    with profile(activities=NPU, on_trace_ready=lambda prof: inner(prof)):
        train(1)
    (run,) = look.runs("out")
    assert len(prof_directories(run)) == 1


def test_the_reader_understands_the_clocks_of_the_device_data(stand, torch_npu, train, look):
    stand()
    with profile(activities=NPU, on_trace_ready=handler()):
        train(1)
    (run,) = look.runs("out")
    (prof,) = prof_directory.find_prof(run)
    assert prof.devices == (6,)
    assert not prof.is_exported
    info = json.loads((run / "profiler_info.json").read_text())
    health = HealthLog()
    clock = prof_directory.find_clock(prof, info, None, health)
    # A moment after the start on the raw clock is the same moment in Unix time, for Kineto's host and CANN's device.
    monotonic = np.array([info["end_info"]["MonotonicTimeEnd"]])
    assert abs(int(clock.unix_ns(monotonic)[0]) - info["end_info"]["collectionTimeEnd"]) < 10_000_000
    assert prof_directory.host_values(prof)["prof_pid"] == str(os.getpid())
    assert health.findings == []


@pytest.mark.parametrize(("queue", "said"), [(None, True), ("1", True), ("2", True), ("0", False)])
def test_kernels_that_torch_npu_launches_from_its_queue(stand, torch_npu, train, look, capfd, queue, said):
    stand()
    if queue is not None:
        stand.set("TASK_QUEUE_ENABLE", queue)
    with profile(activities=NPU, on_trace_ready=handler()):
        train(1)
    assert look.checks(look.runs("out")[0]) == (["task_queue"] if said else [])
    reason = "torch_npu launches kernels from a thread of its own, which PyTorch's recorder does not see: set TASK_QUEUE_ENABLE=0"
    assert (reason in capfd.readouterr().err) is said


def arguments(run):
    """The files that CANN wrote of the operators of a window."""
    folder = run.with_name(f"{run.name}_op_args")
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_operator_arguments_are_written_beside_the_run_of_every_window(stand, train, look, capfd):
    stand()
    stand.dump()
    config = _ExperimentalConfig(record_op_args=True, l2_cache=True)
    plan = schedule(wait=0, warmup=1, active=1, repeat=2)
    with profile(activities=NPU, schedule=plan, on_trace_ready=handler(), experimental_config=config) as prof:
        train(5, prof)
    runs = [path for path in look.runs("out") if path.name.endswith("_ascend_pt")]
    assert len(runs) == 2
    for run in runs:
        assert look.checks(run) == []
        assert arguments(run) == {f"{os.getpid()}/MatMul_0.json": '{"op_type": "MatMul"}'}
        assert (run.with_name(f"{run.name}_op_args").stat().st_mode & 0o777) == 0o750
    assert "record_op_args" not in capfd.readouterr().err


def test_operator_arguments_go_where_the_run_goes(stand, train, look, tmp_path):
    stand()
    stand.dump()
    config = _ExperimentalConfig(record_op_args=True)
    with profile(activities=NPU, on_trace_ready=lambda prof: handler()(prof), experimental_config=config):
        train(1)
    (folder,) = tmp_path.rglob("*_op_args")
    assert folder.parent.name == "out" and list(arguments(folder.with_name(folder.name.removesuffix("_op_args"))))


@pytest.mark.parametrize(
    ("prepare", "said"),
    [
        (lambda stand: stand.set("STEPLENS_ASCEND_DUMP_LIBRARY", "/nowhere/lib.so"), "names /nowhere/lib.so, which cannot be"),
        (lambda stand: stand.dump("-DWITHOUT_DUMP"), "has no aclopStartDumpArgs: this version of CANN does not offer it"),
        (lambda stand: (stand.dump(), stand.set("STEPLENS_TEST_DUMP_FAIL", "100000")), "aclopStartDumpArgs failed with 100000"),
    ],
)
def test_operator_arguments_that_cannot_be_recorded_cost_nothing_else(stand, train, look, capfd, prepare, said):
    log = stand()
    prepare(stand)
    with profile(activities=NPU, on_trace_ready=handler(), experimental_config=_ExperimentalConfig(record_op_args=True)):
        train(1)
    (run,) = look.runs("out")
    assert look.checks(run) == ["not_collected"]
    err = capfd.readouterr().err
    assert "No operator arguments (record_op_args): " in err and said in err
    assert log.calls[-1] == "Finalize" and not run.with_name(f"{run.name}_op_args").exists()


def test_operators_of_an_npu_are_none_on_a_cpu(train, look, capfd):
    config = _ExperimentalConfig(record_op_args=True)
    with profile(activities=[ProfilerActivity.CPU], on_trace_ready=handler(), experimental_config=config):
        train(1)
    assert look.checks(look.runs("out")[0]) == ["not_collected"]
    assert "Not collected on this device: record_op_args." in capfd.readouterr().err


def test_version_of_cann_is_recorded(stand, train, look, tmp_path):
    stand()
    (tmp_path / "cann" / "aarch64-linux").mkdir(parents=True)
    (tmp_path / "cann" / "aarch64-linux" / "ascend_toolkit_install.info").write_text("version=8.2.RC1\n")
    stand.set("ASCEND_TOOLKIT_HOME", str(tmp_path / "cann"))
    with profile(activities=NPU, on_trace_ready=handler()):
        train(1)
    info = json.loads((look.runs("out")[0] / "profiler_info.json").read_text())
    assert info["cann_version"] == "8.2.RC1"


def test_modes_of_directories_and_files(stand, train, look):
    stand()
    with profile(activities=NPU, on_trace_ready=handler()):
        train(1)
    for path in look.runs("out")[0].rglob("*"):
        assert os.stat(path).st_mode & 0o7 == 0, path
