"""Why Kineto records where the recorder was asked for, and what doctor says of it."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from steplens.cli import doctor
from steplens.collect.common import profiler_environment
from steplens.collect.common.experimental_config import _ExperimentalConfig
from steplens.collect.common.health import Health
from steplens.collect.common.recording_settings import RecordingSettings
from steplens.collect.pytorch import recorder_session
from steplens.collect.recorder import python_calls, recorder_choice, recorder_library
from steplens.collect.recorder.recorder_library import RecorderError, RecordingTotals
from steplens.collect.torch_internals import device_profile
from steplens.common import options
from steplens.common.native import build
from steplens.common.native.build import BuildError
from steplens.common.options import ProfilerActivity


def settings(*activities: ProfilerActivity, **switches: bool) -> RecordingSettings:
    return RecordingSettings(
        activities, experimental=_ExperimentalConfig(), schedule=None, **{**dict.fromkeys(options.SWITCHES, False), **switches}
    )


ON_HOST = settings(ProfilerActivity.CPU)


@pytest.fixture(autouse=True)
def wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment asks for the recorder."""
    monkeypatch.setenv(recorder_library.VARIABLE, "on")


@pytest.fixture
def not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """No library has been built for this PyTorch."""
    recorder_library.load_recorder.cache_clear()
    monkeypatch.setattr(recorder_library, "load_built", lambda library: None)


def why(wanted_settings: Any) -> str:
    """What is said of the recorder that does not record."""
    health = Health()
    assert not recorder_choice.uses_recorder(wanted_settings, health)
    (finding,) = health.take()
    # of every window
    assert health.take() == [finding] and finding["check"] == "recorder"
    return str(finding["message"])


def test_devices_and_unknown_pythons_are_left_to_kineto(monkeypatch: pytest.MonkeyPatch) -> None:
    on_device = why(settings(ProfilerActivity.CPU, ProfilerActivity.NPU))
    assert "it records the host alone, and a device is to be recorded" in on_device
    assert "it records the host, which is not to be recorded" in why(settings(ProfilerActivity.CUDA))
    assert not recorder_choice.why_not_recorder(settings(ProfilerActivity.CPU, with_stack=True))
    monkeypatch.setattr(python_calls.sys, "_is_gil_enabled", lambda: False, raising=False)
    without_lock = why(settings(ProfilerActivity.CPU, with_stack=True))
    assert "calls of Python are recorded on CPython before 3.14 with its global lock" in without_lock


def test_a_python_that_offers_too_little(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    recorder_library.load_recorder()
    monkeypatch.setattr(python_calls, "why_not_recorded", lambda: "this Python is another one")
    with pytest.raises(RecorderError, match="this Python is another one"):
        recorder_library.start_recorder(tmp_path / "x.rec", recorder_library.WITH_PYTHON, {})
    assert not recorder_library.is_recorder_recording()


def test_a_gpu_is_recorded_beside_the_recorder_where_kineto_can_leave_out_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    both = settings(ProfilerActivity.CPU, ProfilerActivity.CUDA, profile_memory=True)
    assert recorder_choice.why_not_recorder(both) == ""
    # a black box keeps one file of each step
    assert "a device is to be recorded" in recorder_choice.why_not_recorder(both, beside_kineto=False)
    monkeypatch.setattr(device_profile, "_BEGINS", "_of_another_version")
    assert "begins to record in another way" in recorder_choice.why_not_recorder(both)
    begins = "_run_on_profiler_start"
    monkeypatch.setattr(device_profile, "_BEGINS", begins)
    assert "cannot leave out operator calls" in recorder_choice.why_not_recorder(both)


def test_memory_of_a_device_is_left_to_kineto(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    with_memory = settings(ProfilerActivity.CPU, profile_memory=True)
    assert not recorder_choice.why_not_recorder(with_memory)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert "the memory of this machine's device too" in why(with_memory)
    assert not recorder_choice.why_not_recorder(ON_HOST)


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library is there."""
    monkeypatch.setattr(recorder_library, "load_recorder", lambda: None)
    monkeypatch.setattr(recorder_library, "will_be_built", lambda: False)


@pytest.mark.parametrize(
    ("value", "used"), [("off", False), ("0", False), ("auto", True), ("", True), ("anything", True), ("on", True)]
)
def test_it_records_unless_it_is_off(value: str, used: bool, monkeypatch: pytest.MonkeyPatch, loads: None) -> None:
    monkeypatch.setenv(recorder_library.VARIABLE, value)
    health = Health()
    assert recorder_choice.uses_recorder(ON_HOST, health) is used
    assert not health.take()


@pytest.mark.parametrize("switch", ["with_modules", "with_stack"])
def test_by_default_kineto_has_what_needs_it_and_nobody_is_told(
    switch: str,
    monkeypatch: pytest.MonkeyPatch,
    loads: None,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv(recorder_library.VARIABLE)
    health = Health()
    categories = settings(ProfilerActivity.CPU, record_shapes=True, profile_memory=True, **{switch: True})
    assert not recorder_choice.uses_recorder(settings(ProfilerActivity.CPU, ProfilerActivity.NPU), health)
    assert recorder_choice.uses_recorder(settings(ProfilerActivity.CPU, with_stack=True), health)
    assert not recorder_choice.uses_recorder(ON_HOST, health, observes=True)
    assert not recorder_choice.uses_recorder(categories, health)
    compiler = SimpleNamespace(cached_backends={1: None})
    monkeypatch.setitem(sys.modules, "torch._dynamo.eval_frame", compiler)
    assert recorder_choice.uses_recorder(ON_HOST, health)
    compiler.cached_backends[2] = "of torch.compile"
    assert not recorder_choice.uses_recorder(ON_HOST, health)
    assert recorder_choice.uses_recorder(settings(ProfilerActivity.CPU, ProfilerActivity.CUDA), health)
    compiler.cached_backends.clear()
    # nobody can ask a black box for them
    assert recorder_choice.uses_recorder(categories, health, exports=False)
    monkeypatch.setenv("STEPLENS_NATIVE", "off")
    assert not recorder_choice.uses_recorder(ON_HOST, health)
    monkeypatch.delenv("STEPLENS_NATIVE")
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    assert not recorder_choice.uses_recorder(settings(ProfilerActivity.CPU, with_stack=True), health)
    assert recorder_choice.uses_recorder(ON_HOST, health)
    assert not health.take() and not capfd.readouterr().err
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: True, raising=False)
    monkeypatch.setenv(recorder_library.VARIABLE, "on")
    # who asks for it gets it, without categories
    assert recorder_choice.uses_recorder(categories, health) and recorder_choice.uses_recorder(ON_HOST, health, observes=True)


def test_a_build_that_fails_by_default_is_said_once(
    not_built: None, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(recorder_library.VARIABLE)
    for module in (build, recorder_library):
        monkeypatch.setattr(module, "find_compiler", lambda: None)
    monkeypatch.setattr(build, "find_built", lambda library: None)
    recorder_choice._said.clear()
    findings = [why(ON_HOST) for _ in range(2)]
    assert findings[0] == findings[1]
    (line,) = capfd.readouterr().err.splitlines()
    assert "[INFO]" in line and findings[0] in line
    assert findings[0].startswith("Kineto records in place of the recorder of steplens, at twice its price: ")
    assert "there is no C++ compiler" in line and line.endswith("Where that is wanted, STEPLENS_RECORDER=off says no more of it.")
    recorder_choice._said.clear()
    monkeypatch.setenv("RANK", "1")
    assert why(ON_HOST) == findings[0]
    assert not capfd.readouterr().err


def test_files_that_have_run_out_leave_it_to_kineto(not_built: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(recorder_library, "recorder_library", fail)
    assert os.strerror(errno.EMFILE) in why(ON_HOST)


def test_where_nothing_will_be_recorded_nothing_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    import steplens

    monkeypatch.setattr(profiler_environment, "disabled_by_environment", lambda: True)
    monkeypatch.setattr(recorder_library, "load_recorder", lambda: pytest.fail("it is loaded"))
    steplens.profile()
    steplens.BlackBox()


def test_a_pytorch_without_headers(not_built: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import torch

    monkeypatch.setattr(torch, "__file__", str(tmp_path / "torch" / "__init__.py"))
    assert "this PyTorch has no C++ headers" in why(ON_HOST)
    (check,) = (check for check in doctor.check_torch() if check.name == "recorder")
    assert not check.available and "no C++ headers" in check.detail and "Kineto records" in check.detail


def test_a_build_that_fails(not_built: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(library: Any) -> None:
        raise BuildError("the compiler says no")

    monkeypatch.setattr(recorder_library, "build_library", fail)
    assert "the recorder cannot be built: the compiler says no" in why(ON_HOST)
    monkeypatch.setattr(recorder_library, "build_library", lambda library: None)
    assert "was built, and cannot be loaded" in why(ON_HOST)


def test_doctor_without_a_compiler(not_built: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "find_compiler", lambda: None)
    (check,) = (check for check in doctor.check_torch() if check.name == "recorder")
    assert not check.available and check.detail == "there is no C++ compiler to build it with; Kineto records"
    assert "install g++" in check.remedy


def test_doctor_where_it_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(recorder_library.VARIABLE, "off")
    (check,) = (check for check in doctor.check_torch() if check.name == "recorder")
    assert not check.available and check.detail == "STEPLENS_RECORDER=off; Kineto records"


def test_native_libraries_that_are_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPLENS_NATIVE", "off")
    recorder_library.load_recorder.cache_clear()
    with pytest.raises(RecorderError, match="STEPLENS_NATIVE=off forbids native libraries"):
        recorder_library.load_recorder()
    (check,) = (check for check in doctor.check_torch() if check.name == "recorder")
    assert "STEPLENS_NATIVE=off forbids native libraries; Kineto records" in check.detail


def test_records_that_were_lost_and_files_that_could_not_be_written(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    session: Any = recorder_session.RecorderSession.__new__(recorder_session.RecorderSession)
    session.settings = SimpleNamespace(schedule=None)
    session.size, session._max_bytes = SimpleNamespace(window_saved=lambda *_: None), None
    session._recorded_metadata = dict
    window: Any = SimpleNamespace(totals=None, counters={}, span=SimpleNamespace(last_step=None))
    monkeypatch.setattr(recorder_library, "finish_recorder", lambda metadata: RecordingTotals(7, 2, 1, 0, 100, 0, 0, 0, 2, 1))
    session._save_trace(window)
    said = capfd.readouterr().err
    assert "1 of 10 records were lost: they came faster than they could be written." in said
    assert "A profiler of the program (sys.setprofile) had 3 threads, whose calls of Python are missing." in said
    window.totals = RecordingTotals(0, 0, 0, 0, 100, 28)
    with pytest.raises(OSError, match="could not write all of it"):
        session._save_trace(window)
