"""Which results beside a capture count as this user's own: by content, and by where every file lies."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from steplens.trace.cache import own_results


def capture(folder: Path) -> list[Path]:
    """Sources of two devices and a result of each, of one name and one time."""
    files = [folder / f"device_{number}" / name for number in (0, 1) for name in ("data.bin", "result.csv")]
    for number, file in enumerate(files):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(bytes([number]) * 100)
        os.utime(file, ns=(10**18, 10**18))
    return files


@pytest.mark.parametrize("name", ["data.bin", "result.csv"])
def test_files_of_one_name_that_changed_places_are_others(tmp_path: Path, name: str) -> None:
    files = capture(tmp_path)
    own_results.remember_results(tmp_path, "results", files)
    assert own_results.are_ours(tmp_path, "results", files)
    first, second, away = tmp_path / "device_0" / name, tmp_path / "device_1" / name, tmp_path / "away"
    for source, target in ((first, away), (second, first), (away, second)):
        source.rename(target)
    assert not own_results.are_ours(tmp_path, "results", files)


def test_a_moved_or_otherwise_named_capture_keeps_its_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = capture(tmp_path / "before")
    own_results.remember_results(tmp_path / "before", "results", files)
    (tmp_path / "before").rename(tmp_path / "behind")
    (tmp_path / "link").symlink_to("behind")
    monkeypatch.chdir(tmp_path)
    for folder in (tmp_path / "behind", Path("behind"), tmp_path / "link"):
        moved = [folder / file.relative_to(tmp_path / "before") for file in files]
        assert own_results.are_ours(folder, "results", moved)
        assert not own_results.are_ours(folder, "results", moved[:-1])
        assert not own_results.are_ours(folder, "others", moved)
