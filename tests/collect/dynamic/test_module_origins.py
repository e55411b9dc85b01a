"""Modules of another checkout than the one that runs, and what only lies in its folder."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from steplens.collect.dynamic.module_origins import find_foreign_modules


@pytest.fixture
def checkouts(tmp_path: Path) -> tuple[Path, Path]:
    """The repository, and the checkout of a version."""
    top, own = tmp_path / "repository", tmp_path / "side1"
    for folder in (top, own):
        (folder / "package").mkdir(parents=True)
        (folder / "package" / "layers.py").write_text("")
    return top, own


def load(monkeypatch: pytest.MonkeyPatch, name: str, path: Path) -> None:
    module = ModuleType(name)
    module.__file__ = str(path)
    monkeypatch.setitem(sys.modules, name, module)


def install_copy(monkeypatch: pytest.MonkeyPatch, packages: Path, origin: dict[str, object]) -> None:
    """Install a distribution as ``pip`` does."""
    notes = packages / "program-1.0.dist-info"
    notes.mkdir(parents=True)
    (notes / "METADATA").write_text("Metadata-Version: 2.1\nName: program\nVersion: 1.0\n")
    (notes / "RECORD").write_text("copied.py,,\ncompiled.so,,\n")
    (notes / "direct_url.json").write_text(json.dumps(origin))
    for name in ("copied.py", "compiled.so"):
        (packages / name).write_text("")
    monkeypatch.syspath_prepend(packages)
    load(monkeypatch, "copied", packages / "copied.py")
    load(monkeypatch, "compiled", packages / "compiled.so")


def test_a_module_of_another_checkout(checkouts: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    top, own = checkouts
    load(monkeypatch, "layers", own / "package" / "layers.py")
    assert find_foreign_modules(str(own), [str(top)]) == []
    load(monkeypatch, "layers", top / "package" / "layers.py")
    assert find_foreign_modules(str(own), [str(top)]) == [f"layers from {top}/package/layers.py"]


def test_a_repository_that_is_reached_through_a_link(checkouts: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    top, own = checkouts
    link = top.parent / "home"
    link.symlink_to(top)
    load(monkeypatch, "layers", link / "package" / "layers.py")
    assert find_foreign_modules(str(own), [str(top)]) == [f"layers from {link}/package/layers.py"]
    assert find_foreign_modules(str(own), [str(link)]) != []
    # the way to the own checkout may lead through one as well
    (top.parent / "temporary").symlink_to(own)
    load(monkeypatch, "layers", own / "package" / "layers.py")
    assert find_foreign_modules(str(top.parent / "temporary"), [str(top)]) == []


def test_what_is_linked_into_the_checkout_is_meant_to_be_the_same(
    checkouts: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    top, own = checkouts
    (own / "linked").symlink_to(top / "package")
    load(monkeypatch, "layers", own / "linked" / "layers.py")
    assert find_foreign_modules(str(own), [str(top)]) == []


def test_an_environment_and_the_checkout_in_the_repository(checkouts: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    top = checkouts[0]
    own, beside = top / "tmp" / "side1", top / "tmp" / "side2"
    monkeypatch.setattr(sys, "prefix", str(top / ".venv"))
    load(monkeypatch, "numbers_library", top / ".venv" / "lib" / "site-packages" / "numbers_library.py")
    load(monkeypatch, "layers", own / "layers.py")
    assert find_foreign_modules(str(own), [str(top), str(beside)]) == []
    load(monkeypatch, "layers", beside / "layers.py")
    assert find_foreign_modules(str(own), [str(top), str(beside)]) == [f"layers from {beside}/layers.py"]


@pytest.mark.parametrize("prefix", [".", ".."])
def test_a_repository_in_an_environment(checkouts: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, prefix: str) -> None:
    top, own = checkouts
    monkeypatch.setattr(sys, "prefix", str((top / prefix).resolve()))
    load(monkeypatch, "layers", top / "package" / "layers.py")
    assert find_foreign_modules(str(own), [str(top)]) == [f"layers from {top}/package/layers.py"]


@pytest.mark.parametrize("place", ["repository/.venv/lib", "python/lib"])
def test_a_copy_of_the_program_that_is_installed(
    checkouts: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    top, own = checkouts
    packages = top.parent / place
    monkeypatch.setattr(sys, "prefix", str(packages.parent))
    install_copy(monkeypatch, packages, {"url": top.as_uri(), "dir_info": {}})
    # the compiled module lies in no checkout
    assert find_foreign_modules(str(own), [str(top)]) == [f"copied from {packages}/copied.py"]
    # it is its own where the setup has installed it from there
    assert find_foreign_modules(str(top), [str(own)]) == []


@pytest.mark.parametrize(
    "origin",
    [
        {"url": "https://example.org/program.git", "vcs_info": {"vcs": "git"}},
        {"url": "file://{top}/wheels/library.whl", "archive_info": {}},
        {"url": "file://{top}/third_party", "dir_info": {}},
        {"url": "file://{top}", "dir_info": {"editable": True}},
        {"url": 3, "dir_info": {}},
        [],
    ],
)
def test_what_is_installed_from_elsewhere(
    checkouts: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, origin: dict[str, object]
) -> None:
    top, own = checkouts
    told = json.loads(json.dumps(origin).replace("{top}", str(top)))
    install_copy(monkeypatch, top.parent / "packages", told)
    assert find_foreign_modules(str(own), [str(top)]) == []
