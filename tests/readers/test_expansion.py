"""Compressed files: read as far as what comes out stands in proportion to the file, and up to damage; how far reading is."""

from __future__ import annotations

import ast
import gzip
import io
import random
import zlib
from pathlib import Path

import pytest

import steplens
from steplens.cli import opening
from steplens.cli.main import main
from steplens.common import expansion
from steplens.common.errors import InputError, SteplensError
from steplens.readers.common import reading
from steplens.readers.mindspore.results import mindspore_timeline
from steplens.run import Run
from steplens.trace.health import HealthLog

from ..shared_data import shared

#: of what comes out of any file, here
FLOOR = 1 << 18
EVENTS = 40_000


def event(number: int) -> str:
    return f'{{"ph":"X","cat":"cpu_op","name":"aten::add","pid":1,"tid":1,"ts":{1000 + number},"dur":1,"args":{{}}}}'


def trace_text(count: int) -> bytes:
    # one line of text over and over: no recording is like it
    return ('{"schemaVersion":1,"traceEvents":[' + ",".join(map(event, [7] * count)) + "]}").encode()


def recorded_text(count: int) -> bytes:
    rng = random.Random(1)
    return ('{"schemaVersion":1,"traceEvents":[' + ",".join(event(rng.randrange(10**12)) for _ in range(count)) + "]}").encode()


@pytest.fixture
def bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(expansion, "FLOOR_BYTES", FLOOR)
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(trace_text(EVENTS), 9))
    assert path.stat().st_size * 150 < EVENTS * len(event(7))
    return path


def count(run: Run) -> int:
    return sum(trace.required("ops").collect().height for trace in run.traces)


def limited(run: Run) -> list[str]:
    health = run.health()
    return health.filter(health["check"] == "expansion_limit")["message"].to_list()


def test_a_bomb_is_read_up_to_the_limit(bomb: Path) -> None:
    run = steplens.open(bomb)
    most = max(FLOOR, expansion.MOST_TIMES * bomb.stat().st_size)
    assert 0.9 * most < count(run) * len(event(7)) <= most
    (message,) = limited(run)
    assert bomb.name in message and expansion.VARIABLE in message and "gunzip" in message
    assert run.unsafe("operator times").height


def test_the_limit_can_be_raised(bomb: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert count(steplens.open(bomb)) < EVENTS
    monkeypatch.setenv(expansion.VARIABLE, "1000")
    run = steplens.open(bomb)
    assert count(run) == EVENTS and not limited(run)
    # what is kept of one is not taken for the other
    monkeypatch.delenv(expansion.VARIABLE)
    assert limited(steplens.open(bomb))


def test_a_file_that_is_not_compressed_has_no_limit(bomb: Path, tmp_path: Path) -> None:
    path = tmp_path / "unpacked" / "trace.json"
    path.parent.mkdir()
    path.write_bytes(gzip.decompress(bomb.read_bytes()))
    assert count(steplens.open(path)) == EVENTS


def test_a_good_trace_beside_it_is_whole(bomb: Path, tmp_path: Path) -> None:
    (tmp_path / "good.json").write_bytes(recorded_text(50))
    run = steplens.open(tmp_path)
    assert sorted(trace.required("ops").collect().height == 50 for trace in run.traces) == [False, True]
    assert len(limited(run)) == 1


@pytest.mark.parametrize("text", ["abc", "0.5", "-1", "nan"])
def test_a_wrong_limit_is_said(
    text: str, bomb: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(expansion.VARIABLE, text)
    with pytest.raises(SteplensError, match=expansion.VARIABLE):
        steplens.open(bomb)
    assert main(["summary", str(bomb)]) == 2
    assert repr(text) in capsys.readouterr().err


def test_the_summary_says_it_and_fails(bomb: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["summary", str(bomb)]) == 2
    said = capsys.readouterr()
    assert "aten::add" in said.out
    assert said.err.count("\n") == 1 and "not all of it was read" in said.err and expansion.VARIABLE in said.err


@pytest.mark.parametrize(
    "content",
    [
        b" " * (16 << 20),
        b'{"schemaVersion":1,"x":"' + b"x" * (16 << 20),
        b'{"schemaVersion":1,"traceEvents":[{"name":"' + b"x" * (16 << 20),
        b"[" * (16 << 20),
        b'{"schemaVersion":1,"traceEvents":[],"x":"' + b"x" * (16 << 20),
    ],
    ids=["blanks", "header", "event", "brackets", "footer"],
)
def test_other_bombs_end_in_a_sentence(content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expansion, "FLOOR_BYTES", FLOOR)
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(content, 9))
    with pytest.raises(InputError) as caught:
        steplens.open(path)
    assert "\n" not in str(caught.value)


def test_blanks_say_the_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expansion, "FLOOR_BYTES", FLOOR)
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b" " * (16 << 20), 9))
    with pytest.raises(InputError, match=expansion.VARIABLE):
        steplens.open(path)


def test_blanks_in_front_of_a_trace_are_no_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(b" " * (5 << 20) + recorded_text(5))
    assert count(steplens.open(path)) == 5


@pytest.mark.parametrize(("size", "is_limited"), [(expansion.FLOOR_BYTES, False), (expansion.FLOOR_BYTES + 1, True)])
def test_small_files_are_always_read(size: int, is_limited: bool, tmp_path: Path) -> None:
    path = tmp_path / "zeros.gz"
    path.write_bytes(gzip.compress(bytes(size), 9))
    with path.open("rb") as handle:
        stream = expansion.ExpandingStream(handle)
        while stream.read(1 << 20):
            pass
    assert (stream.limited, stream.expanded) == (is_limited, expansion.FLOOR_BYTES)


def test_recorded_traces_are_far_from_the_limit() -> None:
    for path in [path for folder in ("kineto", "tracelens") for path in shared(folder).rglob("*.gz")]:
        with path.open("rb") as handle:
            stream = expansion.ExpandingStream(handle)
            while stream.read(1 << 20):
                pass
            assert not stream.stopped
            assert stream.expanded < stream.of_bytes * expansion.MOST_TIMES / 4, path


def test_a_mindspore_timeline_has_the_limit_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expansion, "FLOOR_BYTES", FLOOR)
    path = tmp_path / "ascend_timeline_display_0.json"
    one = '{"name":"k","ph":"X","tid":3,"pid":0,"ts":1.0,"dur":5.0}'
    path.write_bytes(gzip.compress(f"[{','.join([one] * EVENTS)}]".encode(), 9))
    health = HealthLog()
    assert 0 < mindspore_timeline.read_events(path, health).height < EVENTS
    assert [finding.check for finding in health.findings] == ["expansion_limit"]


def test_an_ascend_timeline_has_the_limit_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expansion, "FLOOR_BYTES", FLOOR)
    path = tmp_path / "trace_view.json"
    head = '{"name":"process_name","ph":"M","pid":5,"args":{"name":"Ascend Hardware"}}'
    one = '{"name":"k","ph":"X","tid":3,"pid":5,"ts":"1.000","dur":5.0,"args":{"Task Type":"AI_CORE"}}'
    (tmp_path / "whole.json").write_text(f"[{head},{','.join([one] * 2)}]")
    path.write_bytes(gzip.compress(f"[{head},{','.join([one] * EVENTS)}]".encode(), 9))
    run = steplens.open(path)
    assert len(limited(run)) == 1
    assert 0 < run.traces[0].required("kernels").collect().height < EVENTS


# --- damage -----------------------------------------------------------------------------------------------------------------


def test_what_precedes_damage_is_read(tmp_path: Path) -> None:
    text = recorded_text(EVENTS)
    packer = zlib.compressobj(wbits=31)
    data = packer.compress(text[: len(text) // 2]) + packer.flush(zlib.Z_FULL_FLUSH)
    # no block of compressed data begins like this
    data += b"\xff" * len(data)
    path = tmp_path / "damaged.json.gz"
    path.write_bytes(data)
    run = steplens.open(path)
    assert 0.4 * EVENTS < count(run) < 0.6 * EVENTS
    health = run.health()
    (message,) = health.filter(health["check"] == "truncated_file")["message"].to_list()
    assert "cannot be decompressed behind 50" in message


def test_a_wrong_checksum_costs_no_event(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(recorded_text(100)))
    data[-6] ^= 0xFF
    path = tmp_path / "damaged.json.gz"
    path.write_bytes(data)
    run = steplens.open(path)
    assert count(run) == 100
    assert "cannot be decompressed behind 9" in "".join(run.health()["message"].to_list())


def test_what_is_no_gzip_file_at_all_is_said(tmp_path: Path) -> None:
    path = tmp_path / "no.json.gz"
    path.write_bytes(b"\x1f\x8b" + bytes(1000))
    with pytest.raises(InputError, match="not a readable gzip file"):
        steplens.open(path)


@pytest.mark.parametrize("behind", [b"", b"\0" * 512, b"anything"])
@pytest.mark.parametrize("portion", [1, 1000, 1 << 20])
def test_several_members_follow_one_another(behind: bytes, portion: int, tmp_path: Path) -> None:
    text = recorded_text(200)
    path = tmp_path / "members.gz"
    path.write_bytes(b"".join(gzip.compress(text[at : at + 3000]) for at in range(0, len(text), 3000)) + behind)
    with path.open("rb") as handle:
        stream = expansion.ExpandingStream(handle)
        found = b"".join(iter(lambda: stream.read(portion), b""))
    assert found == text
    assert not stream.stopped


@pytest.mark.parametrize("seed", range(5))
def test_damage_anywhere_delivers_a_beginning(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    text = recorded_text(2000)
    data = bytearray(gzip.compress(text))
    at = rng.randrange(20, len(data))
    data[at] ^= 1 << rng.randrange(8)
    path = tmp_path / "damaged.gz"
    path.write_bytes(data)
    with path.open("rb") as handle:
        stream = expansion.ExpandingStream(handle)
        found = b"".join(iter(lambda: stream.read(5000), b""))
    # what a damaged byte changes shows at the checksum at the latest
    assert stream.damaged
    reference = zlib.decompressobj(wbits=31).decompress(bytes(data[: at - 1]))
    assert found.startswith(reference)


# --- how far reading is -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compressed", [False, True])
def test_reading_tells_how_far_it_is(compressed: bool, tmp_path: Path) -> None:
    path = tmp_path / ("trace.json.gz" if compressed else "trace.json")
    text = recorded_text(3 * EVENTS)
    path.write_bytes(gzip.compress(text, 1) if compressed else text)
    told: list[tuple[Path, int, int]] = []
    with reading.told_to(lambda *one: told.append(one)):
        steplens.open(path)
    assert len(told) > 2
    assert {(where, total) for where, _, total in told} == {(path, path.stat().st_size)}
    done = [at for _, at, _ in told]
    assert done == sorted(done) and 0 < done[0] < done[-1] <= path.stat().st_size
    steplens.open(path)
    assert len(told) == len(done)


class Terminal(io.StringIO):
    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal_shows_it(is_terminal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t\x1b[31m.json"
    path.write_bytes(recorded_text(EVENTS))
    shown = Terminal(is_terminal)
    monkeypatch.setattr("sys.stderr", shown)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(opening, "_QUIET_S", 0.0)
    assert count(opening.open_with_progress(path)) == EVENTS
    assert ("reading t" in shown.getvalue()) == is_terminal
    assert "\x1b[31m.json" not in shown.getvalue()


# --- the one way ------------------------------------------------------------------------------------------------------------

#: what decompresses; ``zlib.compress`` and checksums do not
DECOMPRESSORS = {
    ("zlib", "decompress"), ("zlib", "decompressobj"), ("gzip", "decompress"), ("tarfile", "open"), ("zipfile", "ZipFile"),
    ("zipfile", "Path"), ("bz2", "open"), ("bz2", "BZ2File"), ("bz2", "decompress"), ("lzma", "open"), ("lzma", "LZMAFile"),
    ("lzma", "decompress"), ("shutil", "unpack_archive"),
}  # fmt: skip
#: reading unless it says that it writes
OPENERS = {("gzip", "open"), ("gzip", "GzipFile")}


def test_every_file_is_decompressed_within_bounds() -> None:
    source = Path(steplens.__file__).parent
    found = []
    for path in sorted(source.rglob("*.py")):
        text = path.read_text()
        modules = {module for module, _ in (*DECOMPRESSORS, *OPENERS)}
        if path == source / "common" / "expansion.py" or not any(module in text for module in modules):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                name = (ast.unparse(node.func.value), node.func.attr)
                writes = any("w" in str(value.value) for value in ast.walk(node) if isinstance(value, ast.Constant))
                if name in DECOMPRESSORS or (name in OPENERS and not writes):
                    found.append(f"{path.relative_to(source)}:{node.lineno}: {'.'.join(name)}")
            elif isinstance(node, ast.ImportFrom) and node.module in modules:
                found.append(f"{path.relative_to(source)}:{node.lineno}: {ast.unparse(node)}")
    assert not found, f"expansion.ExpandingStream is bounded, these are not: {found}"


def test_the_limits_are_in_the_documents() -> None:
    text = (Path(__file__).parents[2] / "docs" / "limitations.md").read_text()
    assert expansion.VARIABLE in text and f"{expansion.MOST_TIMES:g} times" in text
    assert f"{expansion.FLOOR_BYTES >> 20} MiB" in text
    assert expansion.limit_setting() == {}
