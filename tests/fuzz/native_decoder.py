"""Reads random pieces of events with the library and with Python, which have to find the same.

Usage: ``python -m tests.fuzz.native_decoder --seconds 600 [--seed N] [--folder FOLDER]``

Pieces that they find different things in are written to the folder, as far as the first of a file of pieces that suffices.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path

from steplens.common.native.build import build_library
from steplens.readers.kineto.native_decoder import LIBRARY

from ..readers.native_frames import assert_same_columns, read_pieces
from .decoder_pieces import PieceMaker


def check_seed(seed: int) -> tuple[int, int]:
    """Read the pieces of a seed both ways; how many of them the library took, and how many it left.

    Raises:
        AssertionError: they find different things.
    """
    maker = PieceMaker(seed)
    pieces = [maker.make_piece() for _ in range(random.Random(seed).choice((1, 1, 2, 4)))]
    return check_pieces(pieces)


def check_pieces(pieces: list[bytes]) -> tuple[int, int]:
    """The same of given pieces."""
    found, expected = read_pieces(pieces, native=True), read_pieces(pieces, native=False)
    assert_same_columns(found, expected)
    return found.by_library, found.by_python


def shrink(pieces: list[bytes]) -> list[bytes]:
    """As few of the pieces as still make a difference."""
    for place in range(len(pieces) - 1, -1, -1):
        fewer = pieces[:place] + pieces[place + 1 :]
        try:
            check_pieces(fewer)
        except AssertionError:
            pieces = fewer
    return pieces


def main() -> int:
    """Run for a while; the number of seeds that made a difference is in the answer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=Path("decoder_differences"))
    options = parser.parse_args()
    build_library(LIBRARY)
    deadline = time.monotonic() + options.seconds
    seed, by_library, by_python, different = options.seed, 0, 0, 0
    while time.monotonic() < deadline and different < 10:
        try:
            took, left = check_seed(seed)
            by_library, by_python = by_library + took, by_python + left
        except AssertionError as error:
            different += 1
            maker = PieceMaker(seed)
            pieces = shrink([maker.make_piece() for _ in range(random.Random(seed).choice((1, 1, 2, 4)))])
            options.folder.mkdir(parents=True, exist_ok=True)
            for number, piece in enumerate(pieces):
                (options.folder / f"{seed}_{number}.json").write_bytes(piece)
            print(f"seed {seed}: {str(error)[:400]}")
        seed += 1
    print(f"{seed - options.seed} seeds, {by_library} pieces by the library, {by_python} by Python, {different} different")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
