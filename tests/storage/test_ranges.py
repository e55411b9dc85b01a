"""A file that lies elsewhere reads as the same file here, whatever is read of it in which order, in ranges inside of it."""

from __future__ import annotations

import io
import os
import random
from itertools import pairwise

import pytest

from steplens.common.storage.files import size_of
from steplens.common.storage.ranges import HEAD_BYTES, RangeFile

CONTENT = random.Random(1).randbytes(5 * HEAD_BYTES + 17)


def opened(ranges: list[tuple[int, int]], head: bytes = b"") -> io.BufferedReader:
    def fetch(start: int, end: int) -> bytes:
        assert 0 <= start < end <= len(CONTENT)
        ranges.append((start, end))
        return CONTENT[start:end]

    return io.BufferedReader(RangeFile(len(CONTENT), fetch, head))


@pytest.mark.parametrize("seed", range(20))
def test_any_order(seed: int) -> None:
    chance = random.Random(seed)
    there = opened([], CONTENT[: chance.choice((0, HEAD_BYTES))])
    here = io.BytesIO(CONTENT)
    for _ in range(60):
        if chance.random() < 0.4:
            place, whence = chance.choice(((chance.randrange(len(CONTENT) + 9), 0), (-chance.randrange(len(CONTENT)), 2)))
            assert there.seek(place, whence) == here.seek(place, whence)
        size = chance.choice((0, 1, 7, 4096, HEAD_BYTES, 3 * HEAD_BYTES))
        assert there.read(size) == here.read(size)
        assert there.tell() == here.tell()
    assert there.read() == here.read()


def test_reading_on_fetches_every_byte_once_and_more_at_a_time() -> None:
    ranges: list[tuple[int, int]] = []
    handle = opened(ranges, CONTENT[:HEAD_BYTES])
    while handle.read(1000):
        pass
    assert ranges[0][0] == HEAD_BYTES and ranges[-1][1] == len(CONTENT)
    assert all(before[1] == after[0] for before, after in pairwise(ranges))
    assert len(ranges) == 2


def test_the_end_alone_is_fetched_for_the_end() -> None:
    ranges: list[tuple[int, int]] = []
    handle = opened(ranges)
    handle.seek(-100, os.SEEK_END)
    assert handle.read() == CONTENT[-100:]
    assert ranges == [(len(CONTENT) - 100, len(CONTENT))]


def test_its_size_is_known_without_a_descriptor() -> None:
    handle = opened([])
    handle.seek(5)
    assert size_of(handle) == len(CONTENT) and handle.tell() == 5
    with pytest.raises(io.UnsupportedOperation):
        handle.fileno()
