"""Why Kineto records where the recorder was asked for, and what doctor says of it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from steplens.cli import doctor
from steplens.collect.common.health import Health
from steplens.collect.pytorch import recorder_session
from steplens.collect.recorder import python_calls, recorder_library
from steplens.collect.recorder.recorder_library import RecorderError, RecordingTotals
from steplens.common.native import build
from steplens.common.native.build import BuildError
from steplens.common.options import ProfilerActivity


def settings(*activities: ProfilerActivity, with_stack: bool = False, categorises_memory: bool = False) -> Any:
    return SimpleNamespace(activities=activities, with_stack=with_stack, categorises_memory=categorises_memory)


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
    assert not recorder_session.uses_recorder(wanted_settings, health)
    (finding,) = health.take()
    return str(finding["message"])


def test_devices_and_categories_of_memory_are_left_to_kineto(monkeypatch: pytest.MonkeyPatch) -> None:
    on_device = why(settings(ProfilerActivity.CPU, ProfilerActivity.CUDA))
    assert "it records the host alone, and a device is to be recorded" in on_device
    categories = settings(ProfilerActivity.CPU, with_stack=True, categorises_memory=True)
    assert "asks for what memory is used for, which it does not record" in why(categories)
    assert not recorder_session.why_not_recorder(settings(ProfilerActivity.CPU, with_stack=True))
    monkeypatch.setattr(python_calls.sys, "_is_gil_enabled", lambda: False, raising=False)
    without_lock = why(settings(ProfilerActivity.CPU, with_stack=True))
    assert "calls of Python are recorded on CPython before 3.14 with its global lock" in without_lock


def test_a_python_that_offers_too_little(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    recorder_library.load_recorder()
    monkeypatch.setattr(python_calls, "why_not_recorded", lambda: "this Python is another one")
    with pytest.raises(RecorderError, match="this Python is another one"):
        recorder_library.start_recorder(tmp_path / "x.rec", recorder_library.WITH_PYTHON, {})
    assert not recorder_library.is_recorder_recording()


@pytest.mark.parametrize("value", ["off", "auto", "", "anything"])
def test_unless_it_is_on_nothing_is_said(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(recorder_library.VARIABLE, value)
    health = Health()
    assert not recorder_session.uses_recorder(settings(ProfilerActivity.CPU), health)
    assert not health.take()


def test_a_pytorch_without_headers(not_built: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import torch

    monkeypatch.setattr(torch, "__file__", str(tmp_path / "torch" / "__init__.py"))
    assert "this PyTorch has no C++ headers" in why(settings(ProfilerActivity.CPU))
    (check,) = (check for check in doctor.check_torch() if check.name == "recorder")
    assert not check.available and "no C++ headers" in check.detail and "Kineto records" in check.detail


def test_a_build_that_fails(not_built: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(library: Any) -> None:
        raise BuildError("the compiler says no")

    monkeypatch.setattr(recorder_library, "build_library", fail)
    assert "the recorder cannot be built: the compiler says no" in why(settings(ProfilerActivity.CPU))
    monkeypatch.setattr(recorder_library, "build_library", lambda library: None)
    assert "was built, and cannot be loaded" in why(settings(ProfilerActivity.CPU))


def test_doctor_without_a_compiler(not_built: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "find_compiler", lambda: None)
    (check,) = (check for check in doctor.check_torch() if check.name == "recorder")
    assert not check.available and check.detail == "there is no C++ compiler to build it with; Kineto records"
    assert "install g++" in check.remedy


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
    session.size = SimpleNamespace(window_saved=lambda *_: None)
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
