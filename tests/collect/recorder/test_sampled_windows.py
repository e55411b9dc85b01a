"""``stack_sampling_hz`` of ``steplens.profile``: whether stacks are sampled, by whom, and what is said where they are not."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import steplens
from steplens.collect.common.experimental_config import _ExperimentalConfig
from steplens.collect.common.health import Health
from steplens.collect.common.recording_settings import RecordingSettings
from steplens.collect.recorder import python_calls, recorder_choice, recorder_library
from steplens.common import options
from steplens.common.options import ProfilerActivity

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ to build the recorder with")


@pytest.mark.parametrize("value", [-1, 1001, 0.01, float("nan"), float("inf"), True, "100", None, [100]])
def test_a_rate_that_is_none_is_reset(value: Any) -> None:
    values, warnings = options.resolve_options(options.PROFILE, {"stack_sampling_hz": value})
    assert values["stack_sampling_hz"] == 0.0
    assert warnings == ["Parameter stack_sampling_hz should be 0 or a number from 0.1 to 1000, reset it to 0."]


@pytest.mark.parametrize("value", [0, 0.1, 100, 1000.0])
def test_rates(value: float) -> None:
    values, warnings = options.resolve_options(options.PROFILE, {"stack_sampling_hz": value})
    assert values["stack_sampling_hz"] == value and not warnings


def sampled(*activities: ProfilerActivity, **switches: bool) -> RecordingSettings:
    all_switches = {**dict.fromkeys(options.SWITCHES, False), **switches}
    return RecordingSettings(
        activities, experimental=_ExperimentalConfig(), schedule=None, stack_sampling_hz=100.0, **all_switches
    )


def not_sampled(settings: RecordingSettings, capfd: pytest.CaptureFixture[str]) -> str:
    """What is said, in the log and in the health of every window, of samples that nobody takes."""
    health = Health()
    assert not recorder_choice.uses_recorder(settings, health)
    (finding,) = [finding for finding in health.take() if finding["check"] == "not_collected"]
    assert finding["severity"] == "warning" and finding["unsafe"] == "call stacks"
    assert finding in health.take() and finding["message"] in capfd.readouterr().err
    return str(finding["message"])


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library is there."""
    monkeypatch.setattr(recorder_library, "load_recorder", lambda: None)
    monkeypatch.setattr(recorder_library, "will_be_built", lambda: False)


def test_who_asks_for_samples_asks_for_the_recorder(monkeypatch: pytest.MonkeyPatch, loads: None) -> None:
    monkeypatch.delenv(recorder_library.VARIABLE, raising=False)
    health = Health()
    for settings in (sampled(ProfilerActivity.CPU), sampled(ProfilerActivity.CPU, ProfilerActivity.CUDA)):
        assert recorder_choice.uses_recorder(settings, health)
    # where else Kineto would record
    assert recorder_choice.uses_recorder(sampled(ProfilerActivity.CPU), health, observes=True)
    assert not health.take()


def test_where_kineto_records_nothing_is_sampled_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, loads: None, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(recorder_library.VARIABLE, "off")
    message = not_sampled(sampled(ProfilerActivity.CPU), capfd)
    assert message == (
        "Python stacks are not sampled (stack_sampling_hz): STEPLENS_RECORDER=off forbids the recorder, which samples them."
    )
    monkeypatch.delenv(recorder_library.VARIABLE)
    on_device = not_sampled(sampled(ProfilerActivity.CPU, ProfilerActivity.NPU), capfd)
    assert on_device.endswith("the recorder does not record, because it records the host alone, and a device is to be recorded.")
    monkeypatch.setattr(python_calls.sys, "_is_gil_enabled", lambda: False, raising=False)
    without_lock = not_sampled(sampled(ProfilerActivity.CPU), capfd)
    assert "calls of Python are recorded on CPython before 3.14 with its global lock" in without_lock


def test_calls_and_samples_are_not_both_recorded(capfd: pytest.CaptureFixture[str]) -> None:
    assert recorder_choice.sampling_rate({"stack_sampling_hz": 50.0, "with_stack": False}) == 50.0
    assert not capfd.readouterr().err
    assert recorder_choice.sampling_rate({"stack_sampling_hz": 50.0, "with_stack": True}) == 0.0
    assert "stack_sampling_hz is ignored: with_stack=True records every call of Python" in capfd.readouterr().err


def test_a_configuration_file_takes_the_rate() -> None:
    from steplens.collect.dynamic import configuration

    plan = configuration.read_plan({"stack_sampling_hz": 20, "max_seconds": 3.0}, -1)
    assert plan.settings.limits == {"max_seconds": 3.0, "stack_sampling_hz": 20.0} and not plan.warnings


def spends_its_time(seconds: float) -> None:
    begin = time.perf_counter()
    while time.perf_counter() < begin + seconds:
        sum(range(100))


@needs_compiler
def test_windows_have_their_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch: Any = pytest.importorskip("torch")
    monkeypatch.delenv(recorder_library.VARIABLE, raising=False)
    model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Linear(32, 32))
    handler = steplens.tensorboard_trace_handler(str(tmp_path), analyse_flag=False)
    plan = steplens.schedule(wait=0, warmup=0, active=3, repeat=2)
    with steplens.profile(
        activities=[ProfilerActivity.CPU], schedule=plan, on_trace_ready=handler, stack_sampling_hz=200.0
    ) as profiler:
        for _ in range(6):
            model(torch.ones(4, 32)).sum().backward()
            spends_its_time(0.15)
            profiler.step()
    run = steplens.open(str(tmp_path))
    rows = run.python_hotspots().filter(pl.col("name").str.ends_with(": spends_its_time"))
    # both windows, of which it is most: on a busy machine the first operators take long
    assert rows.height == 2 and (rows["total_percent"] > 60).all()
    assert (rows["self_ns"] / 0.45e9).is_between(0.7, 1.3).all() and (rows["cpu_ns"] > 0).all()
    assert rows["thread"].str.contains("MainThread").all()
    assert "spends_its_time" in run.python_hotspots(by="line")["line"][0]
    assert run.health().filter(pl.col("check").is_in(["not_collected", "damaged_records", "dropped_records"])).is_empty()
    trace = run.traces[0]
    assert trace.meta_value("stack_sampling_hz") == 200.0
    # operators are recorded as ever
    assert trace.required("ops").filter(pl.col("name") == "aten::linear").collect().height == 6


KILLED = """
import os, signal, sys, time, torch, steplens
layer = torch.nn.Linear(8, 8)
def compute_in_python():
    end = time.perf_counter() + 0.01
    while time.perf_counter() < end: pass
with steplens.BlackBox(sys.argv[1], stack_sampling_hz=200, keep_steps=4, on_slow_step=False) as box:
    for _ in range(120):
        layer(torch.ones(2, 8)); compute_in_python(); box.step()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@needs_compiler
def test_a_black_box_samples_until_it_is_killed(tmp_path: Path) -> None:
    environment = {**os.environ, "STEPLENS_RECORDER": "on"}
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    (folder,) = tmp_path.iterdir()
    run = steplens.open(folder)
    assert run.steps().height >= 4
    hotspots = run.python_hotspots().filter(pl.col("name").str.ends_with("compute_in_python"))
    total = run.python_hotspots()["self_samples"].sum()
    # nine tenths of a step and more, of a hundred samples or so
    assert hotspots["self_samples"].sum() > 0.7 * total > 20
