from __future__ import annotations

from typing import Any

import pytest

# the command does, and its loggers keep the streams that there are
pytest.importorskip("torch")


def test_says_what_can_be_collected_and_why_not_the_rest(cli: Any) -> None:
    checks = {check["name"]: check for check in cli.json("doctor")["checks"]}
    assert checks["CPU operators"]["available"]
    assert not checks["Ascend NPU"]["available"]
    for check in checks.values():
        assert check["detail"]
    for name in ("CUDA kernels", "MindSpore", "modules", "DataLoader wait", "garbage collections", "disk space"):
        assert name in checks


def test_text(cli: Any) -> None:
    text = cli.run("doctor").stdout
    assert "PyTorch" in text
    assert "next: steplens run" in text


def test_without_torch(process_cli: Any) -> None:
    process_cli.write("torch/__init__.py", "raise ImportError('no torch [here]')")
    checks = {check["name"]: check for check in process_cli.json("doctor")["checks"]}
    assert not checks["PyTorch"]["available"]
    assert checks["PyTorch"]["detail"] == "installed, but its import fails: no torch [here]"


def mindspore(cli: Any) -> dict[str, Any]:
    found: dict[str, Any]
    (found,) = [check for check in cli.json("doctor")["checks"] if check["name"] == "MindSpore"]
    return found


def test_a_mindspore_that_is_not_installed_can_be_recorded_once_it_is(cli: Any) -> None:
    check = mindspore(cli)
    if check["available"]:
        pytest.skip("MindSpore is installed here")
    assert check["detail"].endswith("what its profilers wrote elsewhere is read") and "not installed for" in check["detail"]
    assert "steplens[mindspore]" in check["remedy"]


def test_a_mindspore_that_cannot_be_imported(process_cli: Any) -> None:
    process_cli.write("mindspore/__init__.py", "print('hello'); raise ImportError('no library [here]')")
    check = mindspore(process_cli)
    assert not check["available"] and "no library [here]" in check["detail"] and "repair" in check["remedy"]


def test_a_mindspore_that_ends_the_process(process_cli: Any) -> None:
    process_cli.write("mindspore/__init__.py", "import os; os._exit(7)")
    check = mindspore(process_cli)
    assert not check["available"] and "exit code 7" in check["detail"]
