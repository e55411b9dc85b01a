"""No package without the pages; the README's promises about packages."""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The build's hook for a tree without anything; what builds is in no environment of the tests."""
    name = "hatchling.builders.hooks.plugin.interface"
    interface = types.ModuleType(name)
    interface.BuildHookInterface = type("BuildHookInterface", (), {"root": str(tmp_path)})  # type: ignore[attr-defined]
    parts = name.split(".")
    for count in range(1, len(parts)):
        monkeypatch.setitem(sys.modules, ".".join(parts[:count]), types.ModuleType(parts[count - 1]))
    monkeypatch.setitem(sys.modules, name, interface)
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.PagesHook()


def test_a_package_without_pages_is_not_built(hook: Any, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="make web"):
        hook.initialize("standard", {})
    # which a checkout without Node.js installs
    hook.initialize("editable", {})
    page = tmp_path / "src" / "steplens" / "server" / "static" / "index.html"
    page.parent.mkdir(parents=True)
    page.touch()
    hook.initialize("standard", {})
