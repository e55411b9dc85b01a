"""Tests that need recorded captures: where these come from, and what becomes of a test without them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from . import shared_data

TESTS = Path(__file__).resolve().parent

ASKING = """
from .shared_data import shared

def test_that_needs_a_capture():
    assert shared("kineto", "trace.json").read_text() == "{}"
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with one test, with a space in its name."""
    folder = tmp_path / "a clone"
    (folder / "tests").mkdir(parents=True)
    (folder / "tests" / "shared_data.py").write_text(Path(shared_data.__file__).read_text())
    (folder / "tests" / "test_one.py").write_text(ASKING)
    return folder


def capture_below(folder: Path) -> Path:
    (folder / "kineto").mkdir(parents=True)
    (folder / "kineto" / "trace.json").write_text("{}")
    return folder


def outcome(checkout: Path, named: Path | str | None = None) -> str:
    environment = {name: value for name, value in os.environ.items() if name != shared_data.VARIABLE}
    # the plugins of this checkout have no part in it, and take long to import
    environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} | ({} if named is None else {shared_data.VARIABLE: str(named)})
    command = [sys.executable, "-m", "pytest", "-q", "-rsf", "--import-mode=importlib", "-p", "no:cacheprovider", "tests"]
    return subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=120, check=False).stdout


def test_they_are_found_beside_the_checkout(checkout: Path) -> None:
    capture_below(checkout.parent / "shared" / "data")
    assert "1 passed" in outcome(checkout)


def test_nobody_named_a_folder_and_there_is_none(checkout: Path) -> None:
    text = outcome(checkout)
    assert "1 skipped" in text and shared_data.ABSENT in text


def test_an_empty_name_stands_for_none(checkout: Path) -> None:
    capture_below(checkout.parent / "shared" / "data")
    text = outcome(checkout, "")
    assert "1 skipped" in text and shared_data.ABSENT in text


def test_another_folder_is_named(checkout: Path) -> None:
    assert "1 passed" in outcome(checkout, capture_below(checkout.parent / "elsewhere"))
    assert "1 passed" in outcome(checkout, os.path.join("..", "elsewhere"))


def test_what_is_missing_in_a_named_folder_is_a_failure(checkout: Path) -> None:
    text = outcome(checkout, checkout.parent / "elsewhere")
    assert "1 failed" in text and str(Path("elsewhere", "kineto", "trace.json")) in text


def test_no_test_looks_for_captures_by_itself() -> None:
    """It would fail where they are absent, instead of being skipped."""
    here = {Path(__file__), Path(shared_data.__file__)}
    paths = [path for path in TESTS.rglob("*.py") if path not in here]
    assert len(paths) > 200
    assert [path.name for path in paths if '"shared" / "data"' in path.read_text() or "shared/data" in path.read_text()] == []
