"""What `steplens doctor` says on machines with Ascend software, complete or not."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from ..collect.ascend_library.build import NAME, compiled

# the command does, and its loggers keep the streams that there are
pytest.importorskip("torch")

VARIABLES = ("STEPLENS_MSPROFILER_LIBRARY", "ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH", "PROFILER_SAMPLECONFIG", "PROFILING_MODE")


@pytest.fixture(autouse=True)
def _no_cann(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def checks(cli: Any) -> dict[str, dict[str, Any]]:
    return {check["name"]: check for check in cli.json("doctor")["checks"]}


def test_no_ascend_software_is_one_sentence(cli: Any) -> None:
    found = checks(cli)
    assert found["Ascend NPU"]["detail"] == "no Ascend software is installed: no CANN, no msprof command, no torch_npu"
    assert not {"msprof", "torch_npu", "CANN features"} & set(found)


def test_complete_installation(process_cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cann = process_cli.folder / "cann"
    (cann / "lib64").mkdir(parents=True)
    path = shutil.copy(compiled(), cann / "lib64" / NAME)
    process_cli.write("cann/aarch64-linux/ascend_toolkit_install.info", "version=8.2.RC1\n")
    process_cli.write("bin/msprof", "#!/bin/sh\n").chmod(0o755)
    process_cli.write("packages/torch_npu-2.6.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: torch-npu\nVersion: 2.6.0\n")
    monkeypatch.setenv("ASCEND_TOOLKIT_HOME", str(cann))
    monkeypatch.setenv("PATH", f"{process_cli.folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(process_cli.folder / "packages"))
    monkeypatch.setenv("STEPLENS_TEST_FEATURES", "ATTR:1:2:all:all")
    found = checks(process_cli)
    assert found["Ascend NPU"] == {"name": "Ascend NPU", "available": True, "detail": f"CANN 8.2.RC1, {path}", "remedy": ""}
    assert found["torch_npu"]["detail"] == "2.6.0"
    assert found["msprof"]["detail"] == str(process_cli.folder / "bin" / "msprof")
    assert found["NPU op_attr"]["available"]
    assert not found["NPU aic_metrics MemoryAccess"]["available"]
    assert not found["NPU shapes at Level0"]["available"]


def test_older_library(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = ("-DWITHOUT_WARMUP", "-DWITHOUT_FEATURES", "-DWITHOUT_FEATURES_V2")
    monkeypatch.setenv("STEPLENS_MSPROFILER_LIBRARY", str(compiled(*flags)))
    found = checks(cli)
    assert found["Ascend NPU"]["available"]
    detail = found["Ascend NPU"]["detail"]
    assert detail.startswith("CANN of unknown version")
    assert "without aclprofWarmup, aclprofGetSupportedFeatures, aclprofGetSupportedFeaturesV2" in detail
    assert "cannot list them" in found["CANN features"]["detail"]
    assert not found["msprof"]["available"]


def test_library_that_cannot_be_used(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPLENS_MSPROFILER_LIBRARY", str(compiled("-DWITHOUT_INIT")))
    found = checks(cli)
    assert not found["Ascend NPU"]["available"]
    assert "has no aclprofInit" in found["Ascend NPU"]["detail"]


def test_library_that_ends_the_process(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPLENS_MSPROFILER_LIBRARY", str(compiled("-DABORTS_WHEN_LOADED")))
    found = checks(cli)
    assert not found["Ascend NPU"]["available"]
    assert "ended the process that asked (exit code -6)" in found["Ascend NPU"]["detail"]


def test_installation_that_was_not_sourced(cli: Any) -> None:
    home = cli.folder / "Ascend" / "ascend-toolkit"
    (home / "latest" / "lib64").mkdir(parents=True)
    shutil.copy(compiled(), home / "latest" / "lib64" / NAME)
    found = checks(cli)
    assert not found["Ascend NPU"]["available"]
    assert found["Ascend NPU"]["remedy"] == f"source {home / 'set_env.sh'} before starting Python"


def test_environment_of_another_profiler(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPLENS_MSPROFILER_LIBRARY", str(compiled()))
    monkeypatch.setenv("PROFILING_MODE", "dynamic")
    found = checks(cli)
    assert not found["Ascend NPU"]["available"]
    assert found["Ascend NPU"]["detail"].startswith("PROFILING_MODE is set: another profiler owns this environment")
