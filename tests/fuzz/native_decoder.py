"""Reads random pieces of events, and damaged ones of recordings, with the library and with Python, which have to find the same.

Usage: ``python -m tests.fuzz.native_decoder --seconds 600 [--seed N] [--folder FOLDER] [--sanitized]``

Pieces that they find different things in are written to the folder. With ``--sanitized`` the library is built for the sanitizers
of g++, which end the process at the first read or write outside of what was allocated.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from steplens.common.native.build import build_library
from steplens.readers.common.json_events import JsonEventFile, Piece, events_of
from steplens.readers.common.json_start import BETWEEN
from steplens.readers.kineto import native_decoder
from steplens.readers.kineto.native_decoder import LIBRARY

from ..readers.native_frames import assert_same_columns, read_pieces
from ..shared_data import find_shared
from .decoder_pieces import PieceMaker

#: the library for the sanitizers, for the process that uses it
SANITIZED = "STEPLENS_TEST_SANITIZED_DECODER"
FLAGS = ("-g", "-O1", "-std=c++17", "-fPIC", "-shared", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")


def start_sanitized(arguments: list[str]) -> int:
    """Build the library for the sanitizers and run again with it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "decoder.so")
        sources = [str(source) for source in LIBRARY.source_files() if source.suffix == ".cpp"]
        subprocess.run(["g++", *FLAGS, "-o", str(path), *sources], check=True)
        preload = subprocess.run(
            ["g++", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
        ).stdout.strip()
        environment = {
            **os.environ,
            SANITIZED: str(path),
            "LD_PRELOAD": preload,
            # Python leaves memory to the system at its end, and allocates where the sanitizer looks
            "ASAN_OPTIONS": "detect_leaks=0",
            "PYTHONMALLOC": "malloc",
        }
        return subprocess.run(
            [sys.executable, "-m", "tests.fuzz.native_decoder", *arguments], env=environment, check=False
        ).returncode


@functools.cache
def recorded_events() -> list[list[bytes]]:
    """Events of the recordings beside this checkout, the first thousands of each."""
    folder = find_shared("kineto")
    recordings = [] if folder is None else sorted(folder.glob("*.json.gz"))
    return [
        [event.lstrip(BETWEEN) for piece in JsonEventFile(path) for event in events_of(bytes(piece)[1:-1]) if event][:5000]
        for path in recordings
    ]


def make_pieces(seed: int) -> list[bytes]:
    """The pieces of a seed: those of every other one are made of recorded events, where there are any."""
    maker, choose = PieceMaker(seed), random.Random(seed)
    count = choose.choice((1, 1, 2, 4))
    if seed % 2 or not recorded_events():
        return [maker.make_piece() for _ in range(count)]
    recording = choose.choice(recorded_events())
    pieces = []
    for _ in range(count):
        events = choose.sample(recording, min(choose.choice((5, 30, 100)), len(recording)))
        piece = b"[" + b", ".join(events) + b"]"
        pieces.append(maker.damage_piece(piece) if choose.random() < 0.6 else piece)
    return pieces


def check_pieces(pieces: Sequence[Piece]) -> tuple[int, int]:
    """Read pieces both ways; how many of them the library took, and how many it left.

    Raises:
        AssertionError: they find different things.
    """
    if SANITIZED in os.environ:
        # bytes end with a byte that is not theirs
        pieces = [memoryview(np.frombuffer(piece, dtype=np.uint8).copy()) for piece in pieces if piece]
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
    parser.add_argument("--sanitized", action="store_true")
    options = parser.parse_args()
    if options.sanitized:
        return start_sanitized([argument for argument in sys.argv[1:] if argument != "--sanitized"])
    if SANITIZED in os.environ:
        sanitized = ctypes.CDLL(os.environ[SANITIZED])
        native_decoder.load_built = lambda library: sanitized
    else:
        build_library(LIBRARY)
    deadline = time.monotonic() + options.seconds
    seed, by_library, by_python, different = options.seed, 0, 0, 0
    while time.monotonic() < deadline and different < 10:
        try:
            took, left = check_pieces(make_pieces(seed))
            by_library, by_python = by_library + took, by_python + left
        except AssertionError as error:
            different += 1
            pieces = shrink(make_pieces(seed))
            options.folder.mkdir(parents=True, exist_ok=True)
            for number, piece in enumerate(pieces):
                (options.folder / f"{seed}_{number}.json").write_bytes(piece)
            print(f"seed {seed}: {str(error)[:400]}")
        seed += 1
    print(f"{seed - options.seed} seeds, {by_library} pieces by the library, {by_python} by Python, {different} different")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
