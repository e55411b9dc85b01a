"""The calls that reach CANN, their order and arguments, and what happens when one of them fails."""

import ctypes
import itertools
import os
import re
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

import pytest

from steplens.collect.ascend import frameworks, library
from steplens.collect.ascend.device_session import DeviceSession, State
from steplens.collect.ascend.settings import DeviceOptions
from steplens.collect.common.health import Health
from steplens.common.options import AiCMetrics, HostSystem, ProfilerLevel
from steplens.trace.health import CONCLUSIONS

from .ascend_library.build import Stand

SOURCE = Path(__file__).resolve().parents[2] / "src"

ALL = ["Init", "CreateConfig", "Warmup", "Start", "RegisterDeviceCallback", "Stop", "DestroyConfig", "Finalize"]
WITHOUT_WARMUP = [call for call in ALL if call != "Warmup"]


@pytest.fixture
def stand(monkeypatch, tmp_path):
    return Stand(monkeypatch, tmp_path)


@pytest.fixture
def run(tmp_path):
    path = tmp_path / "run"
    path.mkdir()
    return path


class Reports:
    def __init__(self):
        self.health = Health()

    def __call__(self, *arguments, **keywords):
        self.health.add(*arguments, **keywords)

    def take(self):
        return self.health.take()

    def checks(self):
        return [(finding["check"], finding["severity"]) for finding in self.take()]


@pytest.fixture
def reports():
    return Reports()


@pytest.fixture
def new(reports):
    def session(options=None, **keywords):
        keywords.setdefault("device", lambda: 3)
        return DeviceSession(options or DeviceOptions(), report=reports, **keywords)

    yield session
    assert DeviceSession._owner is None, "a test left a session open"


def directories(run):
    return sorted(path.name for path in run.glob("PROF_*"))


def test_order_and_arguments(stand, new, run, reports):
    log = stand()
    waited = []
    options = DeviceOptions(
        level=ProfilerLevel.Level2,
        metrics=AiCMetrics.MemoryUB,
        memory=True,
        host_sys=(HostSystem.CPU, HostSystem.MEM),
        sys_io=True,
        sys_interconnection=True,
    )
    session = new(options, synchronize=waited.append)
    assert session.open(run)
    assert log.calls == ["Init"]
    assert session.warm_up()
    assert log.calls == ["Init", *["SetConfig"] * 4, "CreateConfig", "Warmup"]
    assert session.start()
    assert waited == [3]
    assert log.calls[-2:] == ["Start", "RegisterDeviceCallback"]
    assert session._state is State.RUNNING
    assert session.stop()
    assert waited == [3, 3]
    assert log.calls[-1] == "Stop"
    assert session.close()
    assert log.calls[-2:] == ["DestroyConfig", "Finalize"]
    assert log.one("Init") == {"path": str(run)}
    assert log.all("SetConfig") == [
        {"type": 3, "value": "50"},
        {"type": 8, "value": "cpu,mem"},
        {"type": 5, "value": "100"},
        {"type": 6, "value": "50"},
    ]
    assert log.one("CreateConfig") == {"device": 3, "count": 1, "metrics": 5, "mask": 0x112F}
    assert not log.failed
    assert log.leaks == 0
    assert reports.take() == []
    (name,) = directories(run)
    assert re.fullmatch(r"PROF_\d+_\d+_\w+", name)
    written = {str(path.relative_to(run / name)) for path in (run / name).rglob("*") if path.is_file()}
    assert {"host/start_info", "host/info.json", "host/host_start.log", "host/end_info", "device_3/start_info.3"} <= written
    assert session.summary() == {
        "library": str(log.library),
        "device_id": 3,
        "data_type_config": "0x112f",
        "aicore_metrics": 5,
        "configs": {
            "SYS_HARDWARE_MEM_FREQ": "50",
            "HOST_SYS": "cpu,mem",
            "SYS_IO_FREQ": "100",
            "SYS_INTERCONNECTION_FREQ": "50",
        },
        "warmed_up": True,
        "recorded": True,
        "directories": [name],
    }


@pytest.mark.parametrize(
    ("calls", "expected", "data"),
    [
        ("open warm_up start stop close", ALL, True),
        ("open start stop close", WITHOUT_WARMUP, True),
        ("open start close", WITHOUT_WARMUP, True),
        ("open warm_up start close", ALL, True),
        ("open close", ["Init", "Finalize"], False),
        # CANN remembers a warm-up beyond aclprofFinalize; only a start ends it.
        ("open warm_up close", ["Init", "CreateConfig", "Warmup", "Start", "Stop", "DestroyConfig", "Finalize"], False),
        ("open warm_up stop close", ["Init", "CreateConfig", "Warmup", "Start", "Stop", "DestroyConfig", "Finalize"], False),
        ("open start start stop stop close close", WITHOUT_WARMUP, True),
        ("open warm_up warm_up start close", ALL, True),
        ("open start warm_up stop close", WITHOUT_WARMUP, True),
        ("warm_up start stop close", [], False),
        ("stop close", [], False),
        ("open start stop start close", WITHOUT_WARMUP, True),
        ("open open start close", ["Init", "Finalize", *WITHOUT_WARMUP], True),
    ],
)
def test_every_way_through(stand, new, run, reports, calls, expected, data):
    log = stand()
    session = new()
    results = [getattr(session, call)(*([run] if call == "open" else [])) for call in calls.split()]
    assert log.calls == expected
    assert not log.failed
    assert log.leaks == 0
    assert reports.take() == []
    assert session._state is State.CLOSED
    assert session.summary()["recorded"] is data
    assert any(results[calls.split().index("close") :]) is data


def test_a_recording_after_a_cancelled_warm_up_is_complete(stand, new, run, tmp_path):
    log = stand()
    session = new()
    assert session.open(run)
    assert session.warm_up()
    assert not session.close()
    second = tmp_path / "second"
    second.mkdir()
    assert session.open(second)
    assert session.start()
    assert session.close()
    assert directories(second) == session.summary()["directories"] != []
    assert not log.failed


def test_restart(stand, new, tmp_path, reports):
    log = stand()
    session = new()
    for number in range(3):
        run = tmp_path / str(number)
        run.mkdir()
        log.forget()
        assert session.open(run)
        assert session.warm_up()
        assert session.start()
        assert session.stop()
        assert session.close()
        assert log.calls == ALL
        assert log.one("Init") == {"path": str(run)}
        assert len(directories(run)) == 1
    assert reports.take() == []


@pytest.mark.parametrize(
    ("flags", "missing"),
    [
        (["-DWITHOUT_WARMUP"], {"Warmup"}),
        (["-DWITHOUT_REGISTER"], {"RegisterDeviceCallback"}),
        (
            ["-DWITHOUT_WARMUP", "-DWITHOUT_REGISTER", "-DWITHOUT_FEATURES", "-DWITHOUT_FEATURES_V2"],
            {"Warmup", "RegisterDeviceCallback"},
        ),
    ],
)
def test_older_library(stand, new, run, reports, flags, missing):
    log = stand(*flags)
    session = new()
    assert session.open(run)
    assert session.warm_up()
    assert session.start()
    assert session.close()
    assert log.calls == [call for call in ALL if call not in missing]
    assert session.summary()["warmed_up"] is ("Warmup" not in missing)
    assert reports.take() == []


def test_library_without_config_values(stand, new, run, reports):
    log = stand("-DWITHOUT_SETCONFIG")
    session = new(DeviceOptions(memory=True))
    assert session.open(run)
    assert session.start()
    assert session.close()
    assert log.calls == WITHOUT_WARMUP
    (finding,) = reports.take()
    assert finding["check"] == "not_collected"
    assert "SYS_HARDWARE_MEM_FREQ=50 is not recorded: aclprofSetConfig failed with 200007" in finding["message"]


def test_features_decide(stand, new, run, reports):
    log = stand()
    stand.set("STEPLENS_TEST_FEATURES", "ATTR:1:1:all:all,AICORE_SHAPE:1:1:PTA:all")
    session = new(DeviceOptions(shapes=True, op_attr=True))
    assert session.open(run)
    assert session.start()
    assert session.close()
    assert log.one("CreateConfig")["mask"] == 0x801 | 0x4000 | 0x8_0000_0000
    assert [entry["call"] for entry in log.entries].count("aclprofGetSupportedFeaturesV2") == 1
    assert reports.take() == []


def test_what_cann_does_not_offer_is_said_once_and_recorded_in_every_window(stand, new, run, reports, capfd):
    log = stand()
    stand.set("STEPLENS_TEST_FEATURES", "MemoryAccess:1:1:all:all")
    session = new(DeviceOptions(shapes=True, op_attr=True))
    for _ in range(2):
        assert session.open(run)
        assert session.start()
        assert session.close()
        (finding,) = reports.take()
        assert finding["severity"] == "info"
        assert finding["message"] == "Not offered by this version of CANN: op_attr, shapes of device operators at Level0."
    assert [entry["mask"] for entry in log.all("CreateConfig")] == [0x801, 0x801]
    assert capfd.readouterr().err.count("Not offered by this version of CANN") == 1


# --- failures: each call fails with its code; nothing raises, what was begun is ended, and the next recording works

FAILURES = {
    "Init": (["Init"], "device_data_missing", "error"),
    "CreateConfig": (["Init", "CreateConfig", "Finalize"], "device_data_missing", "error"),
    "Start": (["Init", "CreateConfig", "Start", "DestroyConfig", "Finalize"], "device_data_missing", "error"),
    "RegisterDeviceCallback": (WITHOUT_WARMUP, "device_callback", "info"),
    "Stop": (WITHOUT_WARMUP, "device_stop", "error"),
    "DestroyConfig": (WITHOUT_WARMUP, "device_close", "warning"),
    "Finalize": (WITHOUT_WARMUP, "device_close", "warning"),
}


@pytest.mark.parametrize(("call", "code"), list(itertools.product(FAILURES, [100000, 500005, -7])))
def test_call_that_fails(stand, new, run, reports, call, code, capfd):
    log = stand()
    stand.fail(**{call: code})
    session = new()
    opened = session.open(run)
    started = session.start()
    session.stop()
    session.close()
    expected, check, severity = FAILURES[call]
    # An error at the end of a call sequence makes the library refuse the calls after it, which is reported too.
    assert log.calls == expected
    found = reports.take()
    assert (found[0]["check"], found[0]["severity"]) == (check, severity)
    assert f"aclprof{call}" in found[0]["message"]
    if call != "CreateConfig":
        assert f"failed with {code} (" in found[0]["message"]
    if check == "device_data_missing":
        assert found[0]["message"].startswith("No device data: ")
        assert "kernel times" in found[0]["unsafe"]
    assert {word for finding in found for word in finding["unsafe"].split(", ")} <= set(CONCLUSIONS)
    assert opened is (call != "Init")
    assert started is (call not in ("Init", "CreateConfig", "Start"))
    err = capfd.readouterr().err
    assert found[0]["message"] in err
    assert session._state is State.CLOSED


@pytest.mark.parametrize("call", [call for call in FAILURES if call != "RegisterDeviceCallback"])
def test_recording_after_a_call_failed(stand, new, run, reports, call):
    log = stand()
    stand.fail(**{f"{call}__1": 500005})
    session = new()
    session.open(run)
    session.start()
    session.close()
    reports.take()
    # What the library itself still holds after a failed stop or finalize is its business; here it is as new.
    ctypes.CDLL(str(log.library)).steplens_test_reset()
    stand.set("STEPLENS_TEST_FAIL", "")
    log.forget()
    assert session.open(run)
    assert session.start()
    assert session.close()
    assert log.calls == WITHOUT_WARMUP
    assert reports.take() == []


def test_warm_up_that_fails(stand, new, run, reports):
    log = stand()
    stand.fail(Warmup=500005)
    session = new()
    assert session.open(run)
    assert not session.warm_up()
    assert session.start()
    # CANN takes the start for the end of the warm-up that never was: it reports success and records nothing.
    assert not session.close()
    assert log.calls == ALL
    assert reports.checks() == [("device_warmup", "warning"), ("device_data_missing", "error")]


@pytest.mark.parametrize("code", [200006, 200007])
def test_warm_up_that_the_device_cannot_do(stand, new, run, reports, code):
    stand()
    stand.fail(Warmup=code)
    session = new()
    assert session.open(run)
    assert session.warm_up()
    assert session.start()
    assert session.close()
    assert reports.take() == []


def test_cancelled_warm_up_that_cannot_be_started(stand, new, run, reports):
    log = stand()
    stand.fail(Start=500005)
    session = new()
    assert session.open(run)
    assert session.warm_up()
    assert not session.close()
    assert log.calls == ["Init", "CreateConfig", "Warmup", "Start", "DestroyConfig", "Finalize"]
    assert reports.checks() == [("device_close", "warning")]


def test_a_start_that_failed_is_not_tried_again_at_the_end(stand, new, run):
    log = stand()
    stand.fail(Start=500005)
    session = new()
    assert session.open(run)
    assert session.warm_up()
    assert not session.start()
    assert not session.close()
    assert log.calls.count("Start") == 1


def test_config_value_that_is_refused_leaves_the_rest(stand, new, run, reports):
    log = stand()
    stand.fail(SetConfig__2=100010)
    session = new(DeviceOptions(memory=True, sys_io=True, sys_interconnection=True))
    assert session.open(run)
    assert session.start()
    assert session.close()
    assert len(log.all("SetConfig")) == 3
    (finding,) = reports.take()
    assert finding["severity"] == "warning"
    assert finding["message"].startswith("SYS_IO_FREQ=100 is not recorded: aclprofSetConfig failed with 100010")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (100000, "a value was refused"),
        (100001, "the NPU is not initialised yet in this process"),
        (100002, "another profiler of this process uses the NPU, such as torch_npu.profiler"),
        (100003, "CANN cannot write to the run directory, or does not accept a character of its path"),
        (100004, "CANN cannot write to the run directory"),
        (100010, "this device or this CANN does not take the value"),
        (100042, "the NPU is already being profiled, by the msprof command, by acl.json or by another part of this process"),
        (100043, "profiling of the NPU is not initialised"),
        (148047, "another kind of profiling is active on the NPU"),
        (200006, "this device or this CANN does not support it"),
        (200007, "this device or this CANN does not support one of the options; try Level0 without further options"),
        (300000, "the disk is full"),
        (
            500005,
            "CANN could not start or stop the device; versions of CANN and of the driver that do not fit are the usual cause",
        ),
        (-7, "CANN's log under ~/ascend/log says more"),
    ],
)
def test_meanings_of_codes(stand, new, run, reports, code, words):
    """As CANN documents its codes (``acl_base.h``); only a machine with CANN can show that it keeps to that."""
    stand()
    stand.fail(Start=code)
    session = new()
    session.open(run)
    session.start()
    session.close()
    (finding,) = [finding for finding in reports.take() if finding["check"] == "device_data_missing"]
    assert finding["message"].endswith(f"): {words}.") and f"failed with {code} (" in finding["message"]


def test_device_that_does_not_exist(stand, new, run, reports):
    stand()
    stand.set("STEPLENS_TEST_DEVICES", "2")
    session = new()
    assert session.open(run)
    assert not session.start()
    assert not session.close()
    (finding,) = reports.take()
    assert (
        "aclprofCreateConfig refused device 3 with data 0x801: it does not say why; usual causes are that there is no such"
        in finding["message"]
    )


def test_data_that_the_device_cannot_record(stand, new, run, reports):
    stand()
    stand.set("STEPLENS_TEST_SUPPORTED", "0x801")
    session = new(DeviceOptions(l2_cache=True))
    assert session.open(run)
    assert not session.start()
    assert not session.close()
    (finding,) = reports.take()
    assert "try Level0 without further options" in finding["message"]


@pytest.mark.parametrize(
    ("silent", "reason"),
    [("all", "CANN reported success, but wrote no PROF_ directory"), ("host", "CANN wrote data of the host only")],
)
def test_success_without_data(stand, new, run, reports, silent, reason):
    stand()
    stand.set("STEPLENS_TEST_SILENT", silent)
    session = new()
    assert session.open(run)
    assert session.start()
    assert session.stop()
    assert not session.close()
    (finding,) = reports.take()
    assert finding["check"] == "device_data_missing"
    assert reason in finding["message"]


def test_marks_alone_need_no_data_of_the_device(stand, new, run, reports):
    log = stand()
    stand.set("STEPLENS_TEST_SILENT", "host")
    session = new(DeviceOptions(level=ProfilerLevel.Level_none, mstx=True))
    assert session.open(run)
    assert session.start()
    assert session.close()
    assert log.one("CreateConfig")["mask"] == 0x80
    assert reports.take() == []


def test_directory_that_does_not_exist(stand, new, run, reports):
    stand()
    assert not new().open(run / "nowhere")
    (finding,) = reports.take()
    assert "aclprofInit failed with 100003 (ACL_ERROR_INVALID_FILE)" in finding["message"]


def test_links_in_the_path_are_followed(stand, new, run, tmp_path):
    log = stand()
    (tmp_path / "link").symlink_to(run)
    session = new()
    assert session.open(tmp_path / "link")
    session.close()
    assert log.one("Init") == {"path": str(run)}


def test_relative_path_with_letters_of_any_language(stand, new, tmp_path, monkeypatch):
    log = stand()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "训练 ü").mkdir()
    session = new()
    assert session.open(Path("训练 ü"))
    assert session.start()
    assert session.close()
    assert log.one("Init") == {"path": str(tmp_path / "训练 ü")}


def test_missing_library(new, run, reports, monkeypatch):
    monkeypatch.setenv(library.OVERRIDE, "/nowhere/lib.so")
    session = new()
    assert not session.open(run)
    assert not session.warm_up()
    assert not session.start()
    assert not session.stop()
    assert not session.close()
    (finding,) = reports.take()
    assert finding["message"].startswith("No device data: STEPLENS_MSPROFILER_LIBRARY names /nowhere/lib.so")


@pytest.mark.parametrize("variable", ["PROFILER_SAMPLECONFIG", "PROFILING_MODE"])
def test_another_profiler_of_the_environment(stand, new, run, reports, monkeypatch, variable):
    log = stand()
    monkeypatch.setenv(variable, "1")
    assert not new().open(run)
    assert log.calls == []
    (finding,) = reports.take()
    assert f"{variable} is set, another profiler is at work" in finding["message"]


def test_one_session_per_process(stand, new, run, reports):
    log = stand()
    first, second = new(), new()
    assert first.open(run)
    assert not second.open(run)
    (finding,) = reports.take()
    assert "another profiler object of steplens is recording the NPU" in finding["message"]
    assert not second.close()
    assert first.start()
    assert first.close()
    assert log.calls == WITHOUT_WARMUP
    assert second.open(run)
    assert second.start()
    assert second.close()


def test_another_profiler_of_the_process(stand, new, run, reports):
    log = stand()
    cann = library.load_cann()
    assert cann.call("aclprofInit", os.fsencode(run)) == 0
    session = new()
    assert not session.open(run)
    (finding,) = reports.take()
    assert "aclprofInit failed with 100002" in finding["message"]
    assert "torch_npu.profiler" in finding["message"]
    assert not session.close()
    assert log.calls == ["Init", "Init"]  # the session of the other profiler is left alone
    assert cann.call("aclprofFinalize") == 0
    assert session.open(run)
    session.close()


def test_framework_that_cannot_say_its_device(stand, new, run, reports):
    log = stand()

    def fail():
        raise RuntimeError("no NPU")

    session = new(device=fail)
    assert not session.open(run)
    assert log.calls == []
    (finding,) = reports.take()
    assert finding["message"] == "No device data: open failed with RuntimeError: no NPU."


def test_framework_that_cannot_wait(stand, new, run, reports):
    log = stand()

    def fail(device):
        raise RuntimeError("device lost")

    session = new(synchronize=fail)
    assert session.open(run)
    assert session.start()
    assert session.stop()
    assert session.close()
    assert log.calls == WITHOUT_WARMUP
    (finding,) = reports.take()
    assert (finding["check"], finding["count"]) == ("device_synchronize", 2)


def test_without_anyone_to_report_to(stand, run, capfd):
    stand()
    stand.fail(Start=500005)
    session = DeviceSession(DeviceOptions(), device=lambda: 0)
    assert session.open(run)
    assert not session.start()
    assert not session.close()
    assert "[ERROR]" in capfd.readouterr().err


# --- threads, signals and forks


def test_stop_from_another_thread(stand, new, run, reports):
    log = stand()
    stand.set("STEPLENS_TEST_DELAY", "aclprofStart=100")
    in_start = threading.Event()
    session = new(synchronize=lambda _: in_start.set())
    assert session.open(run)
    results = []
    starting = threading.Thread(target=lambda: results.append(session.start()))
    starting.start()
    assert in_start.wait(120)
    # Waits for the start to be finished, then ends it.
    assert session.stop()
    starting.join()
    assert results == [True]
    closing = threading.Thread(target=lambda: results.append(session.close()))
    closing.start()
    closing.join()
    assert results == [True, True]
    assert log.calls == WITHOUT_WARMUP
    assert not any(entry["concurrent"] for entry in log.entries)
    assert len({entry["thread"] for entry in log.entries}) == 3
    assert reports.take() == []


def test_many_threads_at_once(stand, new, run, reports):
    log = stand()
    session = new()
    stopping = threading.Event()

    def pester():
        while not stopping.is_set():
            session.start()
            session.stop()
            session.close()
            session.open(run)

    threads = [threading.Thread(target=pester) for _ in range(4)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + 60
    while len(log.entries) <= 50 and time.monotonic() < until:
        time.sleep(0.05)
    stopping.set()
    for thread in threads:
        thread.join()
    session.close()
    assert len(log.entries) > 50
    assert not log.failed
    assert not any(entry["concurrent"] for entry in log.entries)
    assert log.leaks == 0
    # Every recording that was opened was closed again.
    assert log.calls.count("Init") == log.calls.count("Finalize")


def test_call_in_the_middle_of_a_call_of_the_same_thread(stand, new, run, reports):
    """As a signal handler does it."""
    log = stand()
    results = []

    def wait(device):
        results.append((session.stop(), session.close()))

    session = new(synchronize=wait)
    assert session.open(run)
    assert session.start()
    assert session.stop()
    assert session.close()
    assert results == [(False, False)] * 2
    assert log.calls == WITHOUT_WARMUP


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_fork_leaves_the_session_alone(stand, new, run, reports):
    log = stand()
    session = new()
    assert session.open(run)
    assert session.start()
    before = len(log.entries)
    child = os.fork()
    if child == 0:
        answers = [session.stop(), session.close(), session.open(run), session.warm_up()]
        os._exit(7 if answers == [False] * 4 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert len(log.entries) == before
    assert session.stop()
    assert session.close()


# --- without PyTorch

WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
import pathlib, types
from steplens.collect.ascend import frameworks
from steplens.collect.ascend.device_session import DeviceSession
from steplens.collect.ascend.settings import DeviceOptions

class Context:
    def get_context(self, name):
        return {"device_id": 5}[name]

waited = []
mindspore = types.ModuleType("mindspore")
mindspore.context = Context()
mindspore.runtime = types.SimpleNamespace(synchronize=lambda: waited.append("idle"))
sys.modules["mindspore"] = mindspore

session = DeviceSession(
    DeviceOptions(memory=True), device=frameworks.mindspore_device, synchronize=frameworks.mindspore_synchronize
)
run = pathlib.Path(sys.argv[1])
assert session.open(run) and session.warm_up() and session.start() and session.stop() and session.close()
assert waited == ["idle", "idle"]
assert not {"polars", "numpy", "torch._C"} & set(sys.modules)
print(*session.summary()["directories"])
"""


def test_mindspore_without_torch(stand, run):
    log = stand()
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-c", WITHOUT_TORCH, str(run)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == directories(run)
    assert log.calls == ["Init", "SetConfig", *ALL[1:]]
    assert log.one("CreateConfig")["device"] == 5
    assert (run / directories(run)[0] / "device_5").is_dir()


def test_questions_to_mindspore(monkeypatch):
    for name in ("DEVICE_ID", "ASCEND_DEVICE_ID"):
        monkeypatch.delenv(name, raising=False)
    asked = []
    modern = types.SimpleNamespace(
        context=types.SimpleNamespace(get_context=lambda name: 3),
        runtime=types.SimpleNamespace(synchronize=lambda: asked.append("runtime")),
        hal=types.SimpleNamespace(synchronize=lambda: asked.append("hal")),
    )
    older = types.SimpleNamespace(context=modern.context, hal=modern.hal)
    oldest = types.SimpleNamespace()
    for module, device in ((modern, 3), (older, 3), (oldest, 0), (None, 0)):
        monkeypatch.setitem(sys.modules, "mindspore", module)
        assert frameworks.mindspore_device() == device
        frameworks.mindspore_synchronize(device)
    assert asked == ["runtime", "hal"]
    monkeypatch.setenv("DEVICE_ID", "7")
    assert frameworks.mindspore_device() == 7
