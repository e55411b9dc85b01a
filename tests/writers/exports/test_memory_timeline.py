"""The three forms of the memory timeline, and the categories that a run directory holds."""

from __future__ import annotations

import base64
import gzip
import json
import re
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from steplens.common.errors import InputError
from steplens.trace.trace import Trace
from steplens.writers.exports.export import export
from steplens.writers.exports.memory_timeline.memory_timeline import NO_CATEGORIES, memory_of
from steplens.writers.exports.memory_timeline.picture import stacked_areas
from steplens.writers.exports.subject import Subject

from ...writers.builder import BASE_NS, build, memory

US = BASE_NS // 1000


@pytest.fixture
def run(tmp_path: Path) -> Subject:
    """A run directory with memory of the CPU and two GPUs, without categories."""
    rows = [
        memory(1, 64, 1000, allocated=1000),
        memory(2, 64, -1000, allocated=0),
        memory(3, 64, 10, allocated=10, reserved=20, device_type="CUDA", device=0),
        memory(4, 64, 500, allocated=900, reserved=2048, device_type="CUDA", device=1),
        memory(6, 64, -500, allocated=400, reserved=2048, device_type="CUDA", device=1),
    ]
    (tmp_path / "run_ascend_pt" / "KINETO").mkdir(parents=True)
    return Subject(build(memory=rows), tmp_path / "run_ascend_pt")


def categorised(run: Subject, **changes: Any) -> Path:
    """Write a file of categories for the CPU and the second GPU."""
    value = {
        "version": 1,
        "devices": ["cpu", "cuda:1"],
        "time_ns": [-1, BASE_NS + 4_000, BASE_NS + 5_000, BASE_NS + 5_000, BASE_NS + 6_000],
        "action": [0, 1, 2, 2, 3],
        "bytes": [400, 500, -500, 500, -500],
        "category": [0, 4, 4, 5, 5],
        "device": [1, 1, 1, 1, 1],
        **changes,
    }
    path = run.path / "KINETO" / "memory_categories.json"
    path.write_text(json.dumps(value))
    return path


def written(run: Subject, name: str, **choices: Any) -> Any:
    """What the file of that name holds."""
    notes: list[str] = []
    trace = Trace(run.path, {table: run.trace.required(table) for table in run.trace})
    (path,) = export(trace, "memory", run.path.parent / name, on_note=notes.append, **choices)
    content = path.read_bytes()
    if name.endswith(".gz"):
        content = gzip.decompress(content)
    return (content.decode() if name.endswith(".html") else json.loads(content)), notes


def test_events_and_points_without_categories(run: Subject) -> None:
    events, notes = written(run, "a.raw.json.gz", device="cuda:1")
    before = [[-1, 0, 400, 7]]
    assert events == [*before, [BASE_NS + 4_000, 1, 500, 7], [BASE_NS + 6_000, 3, -500, 7]]
    assert notes == [NO_CATEGORIES]
    points, _ = written(run, "a.json", device="cuda:1")
    assert points == [[US + 4, US + 4, US + 6], [[0, *[0] * 7, size] for size in (400, 900, 400)]]
    assert written(run, "a.json.gz", device="cuda:1")[0] == points


def test_events_and_points_with_categories(run: Subject) -> None:
    categorised(run)
    events, notes = written(run, "a.raw.json.gz")
    assert events == [
        [-1, 0, 400, 0],
        [BASE_NS + 4_000, 1, 500, 4],
        [BASE_NS + 5_000, 2, -500, 4],
        [BASE_NS + 5_000, 2, 500, 5],
        [BASE_NS + 6_000, 3, -500, 5],
    ]
    assert notes == []
    times, sizes = written(run, "a.json")[0]
    assert times == [US + 4, US + 4, US + 5, US + 6]
    assert np.cumsum(sizes, axis=1)[:, -1].tolist() == [400, 900, 900, 400]
    assert [row[0] for row in sizes] == [0, 0, 0, 0]
    assert sizes[2] == [0, 400, 0, 0, 0, 0, 500, 0, 0]


def test_devices(run: Subject) -> None:
    assert memory_of(run).device == "cuda:1"  # the accelerator with most events
    assert memory_of(run, "cuda").device == "cuda:0"
    cpu = memory_of(run, "cpu")
    assert (cpu.device, cpu.events.height, cpu.allocated, cpu.reserved) == ("cpu", 2, 1000, None)
    with pytest.raises(InputError, match=r"has no memory events of npu:0\. It has those of cpu, cuda:0, cuda:1"):
        memory_of(run, "npu:0")
    with pytest.raises(InputError, match="cannot have a device 'gpu one'"):
        memory_of(run, "gpu one")
    with pytest.raises(InputError, match="no memory events"):
        memory_of(Subject(build(ops=[]), run.path))


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 2},
        {"category": [0, 4, 4, 5, 8]},
        {"action": [0, 1, 2, 2, -1]},
        {"device": [0, 0, 0, 0, 2]},
        {"bytes": [1]},
        {"bytes": [1 << 70, 0, 0, 0, 0]},
        {"devices": ["cpu", "cuda:x"]},
        {"time_ns": "now"},
    ],
)
def test_damaged_categories(run: Subject, changes: dict[str, Any]) -> None:
    path = categorised(run, **changes)
    with pytest.raises(InputError, match="holds no categories of memory") as raised:
        memory_of(run)
    assert raised.value.path == path


def test_a_file_that_is_no_json(run: Subject) -> None:
    categorised(run).write_bytes(b"\x80{")
    with pytest.raises(InputError, match="holds no categories of memory"):
        memory_of(run)


def picture(png: bytes) -> np.ndarray[Any, Any]:
    """The colours of a PNG file without filters, shape (height, width, 3); checks its parts."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    parts, at = {}, 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        kind, content = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        assert struct.unpack(">I", png[at + 8 + length : at + 12 + length])[0] == zlib.crc32(kind + content)
        parts[kind] = content
        at += 12 + length
    assert list(parts) == [b"IHDR", b"PLTE", b"IDAT", b"IEND"]
    width, height, depth, colours, *rest = struct.unpack(">IIBBBBB", parts[b"IHDR"])
    assert (width, height, depth, colours, rest) == (1600, 960, 8, 3, [0, 0, 0])
    rows = np.frombuffer(zlib.decompress(parts[b"IDAT"]), dtype=np.uint8).reshape(height, width + 1)
    assert not rows[:, 0].any()
    return np.frombuffer(parts[b"PLTE"], dtype=np.uint8).reshape(-1, 3)[rows[:, 1:]]


def test_the_page(run: Subject) -> None:
    page, notes = written(run, "a.html")
    assert notes == [NO_CATEGORIES]
    assert "the categories of memory are unknown" in page.lower()
    categorised(run)
    page, notes = written(run, "a.html")
    assert notes == [] and "unknown:" not in page.lower()
    assert len(re.findall(r"<img ", page)) == 1
    found = re.search(r'src="data:image/png;base64,([^"]+)"', page)
    assert found
    colours = picture(base64.b64decode(found[1]))
    # darkgreen, red and mediumblue at 70 % over white: the parameters lie below the rest
    green, red, blue = (
        tuple(round(255 - (255 - part) * 0.7) for part in colour) for colour in ((0, 100, 0), (255, 0, 0), (0, 0, 205))
    )
    column = [tuple(pixel) for pixel in colours[:, 400].tolist()]
    assert red in column and green in column
    assert column.index(red) < column.index(green)
    later = [tuple(pixel) for pixel in colours[:, 1000].tolist()]
    assert blue in later and red not in later
    assert "<td>PARAMETER</td><td>400</td>" in page and "<td>ACTIVATION</td><td>500</td>" in page


def test_a_short_peak_is_in_the_picture() -> None:
    time = np.arange(100_000, dtype=np.float64)
    heights = np.full((100_000, 2), 1.0)
    heights[54_321, 1] = 99.0
    colours = picture(stacked_areas(time, heights, ["low", "high"], [0x00FF00, 0xFF0000], ["t"], ("x", "y")))
    red = (colours == (255, 76, 76)).all(axis=2)[:, 160:1280]
    assert red.sum(axis=0).max() > 700
    # half way, as long as everything else is low
    assert abs(int(red.sum(axis=0).argmax()) - 0.54321 * 1140) < 15


def test_sizes_of_nothing() -> None:
    colours = picture(stacked_areas(np.zeros(1), np.zeros((1, 1)), ["a"], [0], [], ("x", "y")))
    assert colours.shape == (960, 1600, 3)
