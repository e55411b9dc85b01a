"""What git does not keep, linked into a checkout: also where that holds a part of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from steplens.bench.links import find_linked, link_into
from steplens.common.errors import SteplensError


@pytest.fixture
def tops(tmp_path: Path) -> tuple[Path, Path]:
    """A repository with data that git ignores, and a checkout of it."""
    top, checkout = tmp_path.resolve() / "top", tmp_path / "checkout"
    (top / "data" / "images" / "raw").mkdir(parents=True)
    (top / "data" / "words.txt").write_text("words")
    (top / "data" / "images" / "raw" / "1.png").write_text("1")
    checkout.mkdir()
    return top, checkout


def link(tops: tuple[Path, Path], name: str) -> None:
    link_into(*tops, find_linked(tops[0], name))


def test_a_file_and_a_folder(tops: tuple[Path, Path]) -> None:
    top, checkout = tops
    link(tops, "data/words.txt")
    assert (checkout / "data" / "words.txt").readlink() == top / "data" / "words.txt"
    # the rest of the folder, and once more
    for name in ("data", "data", "data/images"):
        link(tops, name)
    assert (checkout / "data" / "images").readlink() == top / "data" / "images"


def test_an_absolute_path_and_one_through_a_link(tops: tuple[Path, Path]) -> None:
    top, checkout = tops
    link(tops, str(top / "data" / "words.txt"))
    (top.parent / "home").symlink_to(top)
    link(tops, str(top.parent / "home" / "data" / "images"))
    assert (checkout / "data" / "words.txt").read_text() == "words" and (checkout / "data" / "images").is_symlink()


def test_a_folder_of_which_git_keeps_a_part(tops: tuple[Path, Path]) -> None:
    top, checkout = tops
    (checkout / "data" / "images").mkdir(parents=True)
    (checkout / "data" / "images" / ".gitkeep").write_text("")
    (checkout / "data" / "words.txt").write_text("of this version")
    (top / "data" / "images" / ".git").write_text("gitdir: ../../.git/modules/images\n")
    link(tops, "data")
    assert (checkout / "data" / "images" / "raw" / "1.png").read_text() == "1"
    assert (checkout / "data" / "words.txt").read_text() == "of this version"
    assert not (checkout / "data" / "images" / ".git").exists()
    assert not (top / "data" / "images" / ".gitkeep").exists()


def test_a_link_that_leads_to_nothing_from_the_checkout(tops: tuple[Path, Path]) -> None:
    top, checkout = tops
    (top.parent / "disk").mkdir()
    (top / "weights").symlink_to("../disk")
    (checkout / "weights").symlink_to("../nowhere")
    link(tops, "weights")
    assert (checkout / "weights").resolve() == top.parent / "disk"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("data/words.txt", "--link data/words.txt: git keeps it"),
        ("../outside", "--link ../outside: is not in the repository"),
        ("/etc/hosts", "--link /etc/hosts: is not in the repository"),
        (".", "--link .: is not in the repository"),
        ("missing", "--link missing: there is nothing of that name"),
        ("data/images/raw", "--link data/images/raw: .*/data/images: (Not a directory|File exists)"),
    ],
)
def test_what_is_not_linked(tops: tuple[Path, Path], name: str, problem: str) -> None:
    (tops[1] / "data").mkdir()
    for file in ("words.txt", "images"):
        (tops[1] / "data" / file).write_text("of this version")
    with pytest.raises(SteplensError, match=problem):
        link(tops, name)
