"""How much of what lies behind a URL is fetched, and how often it is listed: counted by the file system that it is asked of."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import steplens
from steplens.cli.main import main
from steplens.common.storage.files import local_file, locate_path
from steplens.common.storage.ranges import HEAD_BYTES
from steplens.common.storage.user_cache import cache_root
from steplens.readers.detect import find_traces

from ..shared_data import shared
from .conftest import JOB, RUN, Place


def ranks_of(job: Path) -> list[Path]:
    return sorted(path for path in job.iterdir() if path.name.endswith(".json") and path.name != "truth.json")


def test_a_rank_alone_fetches_nothing_of_the_others(captures: Path, memory: Place) -> None:
    url = memory.put(captures / JOB, JOB)
    first = ranks_of(captures / JOB)[0]
    run = steplens.open(f"{url}/{first.name}")
    assert run.steps().height
    assert memory.fetched and {Path(place).name for place, _ in memory.fetched} == {first.name}
    # no byte twice
    assert memory.fetched_bytes == first.stat().st_size


def test_what_is_kept_is_not_fetched_again(captures: Path, memory: Place, capsys: pytest.CaptureFixture[str]) -> None:
    url = memory.put(captures / JOB, JOB)
    for command in (["summary", url], ["advise", url]):
        assert main(command) == 0
    memory.forget()
    for number, command in enumerate((["table", url, "steps"], ["summary", url], ["advise", url]), 1):
        assert main(command) == 0
        assert memory.fetched == [], command
        # and one look at what is there
        assert len(memory.listed) == number
    capsys.readouterr()


def test_finding_fetches_first_bytes(captures: Path, s3: Place) -> None:
    url = s3.put(captures / JOB, JOB)
    files = ranks_of(captures / JOB)
    assert len(find_traces(locate_path(url))) == len(files)
    assert 0 < s3.fetched_bytes <= (len(files) + 1) * HEAD_BYTES < sum(path.stat().st_size for path in files) / 2
    assert len(s3.listed) == 1


def test_of_a_file_that_is_no_trace_only_the_beginning_is_fetched(captures: Path, memory: Place) -> None:
    url = memory.put(captures / RUN, RUN)
    large = b'{"rows": [' + b"1234567, " * 500_000 + b"0]}"
    memory.file_system.pipe_file(f"{url.partition('://')[2]}/notes.json", large)
    run = steplens.open(url)
    assert [unread.path.name for unread in run.unread] == ["notes.json"]
    assert sum(size for place, size in memory.fetched if place.endswith("notes.json")) == HEAD_BYTES < len(large) / 50


def test_a_database_is_fetched_once(memory: Place, tmp_path: Path) -> None:
    name = "rank0_ascend_pt"
    source = shared("ascend_pytorch", "db_level0", name)
    url = memory.put(source, name)
    run = steplens.open(url)
    kept = run.traces[0].kept
    assert kept is not None and cache_root() in kept.folder.parents
    database = next(path for path in source.rglob("ascend_pytorch_profiler*.db"))
    fetched = sum(size for place, size in memory.fetched if place.endswith(database.name))
    assert fetched <= database.stat().st_size + HEAD_BYTES
    shutil.rmtree(kept.folder)
    memory.forget()
    # its tables are made again from the file that was fetched
    assert steplens.open(url).steps().equals(run.steps())
    assert not any(place.endswith(database.name) for place, _ in memory.fetched)


def test_content_that_changed_is_read_anew(captures: Path, s3: Place, tmp_path: Path) -> None:
    trace = {"traceEvents": [{"ph": "X", "pid": 5, "tid": 5, "cat": "cpu_op", "name": "aten::mm", "ts": 10.0, "dur": 5.0}]}
    names = []
    for name in ("aten::mm", "aten::bb"):  # of one size, and within the second that S3 tells
        trace["traceEvents"][0]["name"] = name
        (tmp_path / "trace.json").write_text(json.dumps(trace))
        url = s3.put(tmp_path / "trace.json", "trace.json")
        names += steplens.open(url).operators()["name"].to_list()
    assert names == ["aten::mm", "aten::bb"]


def test_what_is_gone_there_is_gone_here(captures: Path, memory: Place) -> None:
    url = memory.put(captures / JOB, JOB)
    files = ranks_of(captures / JOB)
    assert len(steplens.open(url).traces) == len(files)
    memory.file_system.rm(f"{url.partition('://')[2]}/{files[0].name}")
    assert [path.name for path in steplens.open(url).paths] == [path.name for path in files[1:]]


def test_no_cache_of_others_is_looked_at(captures: Path, memory: Place, tmp_path: Path) -> None:
    url = memory.put(captures / RUN, RUN)
    root = url.partition("://")[2]
    memory.file_system.pipe_file(f"{root}/.steplens/steplens_run_directory/manifest.json", b"{}")
    steplens.open(url)
    assert not any(".steplens" in place for place, _ in memory.fetched)


def test_a_file_for_a_library(captures: Path, memory: Place) -> None:
    source = captures / RUN / "KINETO" / "trace.json"
    path = locate_path(memory.put(source, "trace.json"))
    content = local_file(path)
    assert content.read_bytes() == source.read_bytes() and content != path
    memory.forget()
    assert local_file(path) == content and memory.fetched == []
    assert local_file(source) == source
