"""Reasons that the command line gives, each in the case it speaks of: those that no test of the command itself brings about."""

from __future__ import annotations

import dataclasses
import io
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from steplens.analysis.steps.summary import _why_differs
from steplens.cli import analyse, doctor, shown_runs
from steplens.cli.recording import script, status
from steplens.cli.summary import summary, summary_text
from steplens.cli.summary.summary import LIMITED
from steplens.cli.text import pipeline_text
from steplens.common.errors import SteplensError
from steplens.offline.recompute import Comparison


def torch_of(cuda: str | None, *, available: bool = False, traces: bool = False) -> Any:
    """What doctor asks a PyTorch about its device."""
    activities = SimpleNamespace(CUDA="CUDA")
    supported = {"CPU", "CUDA"} if traces else {"CPU"}
    return SimpleNamespace(
        version=SimpleNamespace(cuda=cuda, hip=None),
        cuda=SimpleNamespace(is_available=lambda: available, device_count=lambda: 1, get_device_name=lambda number: "GPU"),
        profiler=SimpleNamespace(ProfilerActivity=activities, supported_activities=lambda: supported),
    )


@pytest.mark.parametrize(
    ("torch", "reason"),
    [
        (torch_of(None), "this PyTorch is built for the CPU only"),
        (torch_of("12.4"), "PyTorch is built for 12.4, but finds no device that it can use"),
        (torch_of("12.4", available=True), "there is a device, but this PyTorch does not offer to trace it"),
        (torch_of("12.4", available=True, traces=True), ""),
    ],
)
def test_why_kernels_cannot_be_recorded(torch: Any, reason: str) -> None:
    check = doctor._check_cuda(torch)
    assert check.available == (not reason)
    assert not reason or check.detail == reason


def test_a_pytorch_without_kineto(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.autograd, "kineto_available", lambda: False)
    checks = {check.name: check for check in doctor.check_torch()}
    assert checks["CPU operators"].detail.endswith("this PyTorch was built without Kineto")
    # the recorder needs none
    assert checks["CPU operators"].available is checks["recorder"].available


def test_an_export_command_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    library = {"problem": "", "symbols": {}, "options": {}, "library": "libmsprofiler.so", "features": None}
    monkeypatch.setattr(doctor, "_run_probe", lambda module, what: library)
    monkeypatch.setattr(doctor.shutil, "which", lambda command: None)
    (check,) = [check for check in doctor.check_ascend() if check.name == "msprof"]
    assert not check.available and check.detail.startswith("not on PATH: device data is exported for the analysis by a machine")


def test_a_package_of_an_extra_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown_runs, "_EXTRA", ("no_such_package",))
    needed = r"steplens view needs no_such_package; install it with: pip install 'steplens\[view\]'"
    with pytest.raises(SteplensError, match=needed), shown_runs.needing_the_extra("steplens view"):
        pass


def test_a_loader_of_too_few_batches() -> None:
    row = {"batches": 1, "workers": 0, "dataset": "Set", "loader": 1, "stages": [], "first_batch_ns": None}
    (line,) = pipeline_text._loader_lines(row)
    assert line.endswith("no workers; too few batches to tell what the loop waits for")


def test_a_question_that_is_not_answered_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*arguments: Any, **options: Any) -> Any:
        raise subprocess.TimeoutExpired("python", doctor.PROBE_SECONDS)

    monkeypatch.setattr(subprocess, "run", late)
    assert doctor._run_probe("no_module", "it")["problem"] == f"asking it took longer than {doctor.PROBE_SECONDS} seconds"


def test_a_folder_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(doctor.os, "access", lambda path, mode: False)
    (check,) = doctor.check_disk()
    assert not check.available and check.detail == f"{tmp_path} is not writable"


def test_a_process_that_gives_no_answer_is_not_called_stopped() -> None:
    """It may be; that is not known."""
    out = Console(record=True, width=200, file=io.StringIO())
    item = SimpleNamespace(
        bystander=False, rank=0, step=1, step_age_ns=None, state="ready", eligible=True, why_not="", problem="", alive=True,
        watches=True, answered=False, progress=None, process=SimpleNamespace(pid=7), requests=(),
    )  # fmt: skip
    status.show_processes(out, [item])  # type: ignore[list-item]
    assert "process 7 gave no answer (it may be stopped or busy); what it wrote down before is shown" in out.export_text()


@pytest.mark.parametrize(
    ("host_ns", "device_ns", "behind", "words"),
    [
        (5e6, 9e6, True, "the host issues its work faster than the device does it"),
        # the two that are left, which nothing but the lengths of steps shows
        (9e6, 5e6, True, "perhaps the host waits for the device's queue in some steps"),
        (9e6, 5e6, False, "the device period begins with the first work of a step, and the last one ends with its last work"),
    ],
)
def test_why_host_and_device_differ(host_ns: float, device_ns: float, behind: bool, words: str) -> None:
    out = Console(record=True, width=200, file=io.StringIO())
    step = {
        "quartiles_ns": (9e6, 9e6), "steps": 1, "step_time_ns": 9e6, "of": "one step", "device_steps": 1,
        "host_ns": host_ns, "device_ns": device_ns, "differs": _why_differs(host_ns, device_ns, behind), "distinct": 1,
        "long_steps": [], "outliers": [], "without_recording_ns": None,
    }  # fmt: skip
    summary_text._show_step_time(out, SimpleNamespace(step=step, steps=[1]), 1)  # type: ignore[arg-type]
    text = out.export_text()
    assert f"on the device: {words}" in text and "outliers" not in text


@pytest.mark.parametrize(("outliers", "words"), [([3], "outliers (step 3) count"), ([3, 18], "outliers (steps 3, 18) count")])
def test_outliers_count_in_the_median_and_not_in_the_means(outliers: list[int], words: str) -> None:
    out = Console(record=True, width=200, file=io.StringIO())
    step = {
        "quartiles_ns": (9e6, 9e6), "steps": 20, "step_time_ns": 9e6, "of": "median of steps 2-21", "device_steps": 0,
        "differs": "", "distinct": 20, "long_steps": [], "outliers": outliers, "without_recording_ns": None,
    }  # fmt: skip
    summary_text._show_step_time(out, SimpleNamespace(step=step, steps=[1]), 1)  # type: ignore[arg-type]
    assert f"{words} in that median, not in the parts below (means)" in out.export_text()


@pytest.mark.parametrize(
    ("steps", "operators", "health", "words"),
    [
        (0, False, [], "there are no operators and no steps in it, so there is nothing to show"),
        (0, True, [], "there are no steps in it; record with a schedule"),
        (3, True, [], ""),
        (3, True, [{"check": LIMITED, "message": "m"}], "not all of it was read, what was read is shown: m"),
        (3, True, [{"check": "truncated_file", "message": "m"}], "the data is truncated, what precedes the cut is shown: m"),
    ],
)
def test_what_a_summary_lacks(steps: int, operators: bool, health: list[dict[str, Any]], words: str) -> None:
    found = summary._describe_problem(steps, operators, health, False)
    assert found.startswith(words) and bool(found) == bool(words)


def test_a_difference_that_is_more_than_rounding() -> None:
    comparison = Comparison("step_trace_time.csv", (3, 3), 6, 5, 0.5, "Computing", "", True)
    assert analyse._describe_comparison(comparison).endswith("; this is more than rounding")
    assert "rounding" not in analyse._describe_comparison(dataclasses.replace(comparison, matters=False))


def test_a_module_that_is_not_there() -> None:
    with pytest.raises(SteplensError, match="there is no module named no_such_module_at_all"):
        script.check_script("no_such_module_at_all", module=True)
