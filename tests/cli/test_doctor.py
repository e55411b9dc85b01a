from __future__ import annotations

from typing import Any


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


def test_without_torch(cli: Any) -> None:
    cli.write("torch/__init__.py", "raise ImportError('no torch [here]')")
    checks = {check["name"]: check for check in cli.json("doctor")["checks"]}
    assert not checks["PyTorch"]["available"]
    assert "no torch [here]" in checks["PyTorch"]["detail"]
