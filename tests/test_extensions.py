"""What installed packages add is loaded; what is broken is named and left out."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from steplens.common.extensions import load_extensions


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package ``steplens-more`` on the path, with five entry points of a group of its own."""
    (tmp_path / "steplens_more.py").write_text("first, second, wrong = 1, 2, 'x'\n")
    (tmp_path / "steplens_broken.py").write_text("raise SystemError('of\\nits own')\n")
    information = tmp_path / "steplens_more-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: steplens-more\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        "[steplens.test]\nsecond = steplens_more:second\nfirst = steplens_more:first\nwrong = steplens_more:wrong\n"
        "gone = steplens_nowhere:it\nbroken = steplens_broken:it\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    load_extensions.cache_clear()


@pytest.mark.usefixtures("installed")
def test_extensions_are_loaded_and_broken_ones_are_named(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "steplens"):
        assert load_extensions("steplens.test", int) == (1, 2)
    said = sorted(record.getMessage() for record in caplog.records)
    assert said == [
        "steplens.test 'broken' of steplens-more is left out, for it cannot be loaded (SystemError: of its own); "
        "update or remove it",
        "steplens.test 'gone' of steplens-more is left out, for it cannot be loaded (ModuleNotFoundError: "
        "No module named 'steplens_nowhere'); update or remove it",
        "steplens.test 'wrong' of steplens-more is left out: steplens_more:wrong is no builtins.int; update or remove it",
    ]


def test_without_any_there_are_none() -> None:
    assert load_extensions("steplens.nobody_has_these", int) == ()
