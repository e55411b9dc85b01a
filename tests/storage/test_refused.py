"""URLs that cannot be read are refused in one sentence without secrets; what strangers offer behind one does no harm here."""

from __future__ import annotations

import datetime
import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

import steplens
from steplens.cli.main import main
from steplens.common.errors import InputError
from steplens.common.storage.files import locate_path, open_file
from steplens.common.storage.urls import as_url, is_url, shown_url, without_secrets
from steplens.common.storage.user_cache import cache_root

from .conftest import RUN, Place

TRACE = b'{"traceEvents": [{"ph": "X", "pid": 5, "tid": 5, "cat": "cpu_op", "name": "aten::mm", "ts": 10.0, "dur": 5.0}]}'


def refused(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    assert main(list(command)) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.count("\n") == 1 and "Traceback" not in shown.err
    return shown.err


@pytest.mark.parametrize("command", ["summary", "table", "advise", "open", "view", "report", "export", "sql"])
def test_without_fsspec(command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    more = {"table": ["steps"], "export": ["--to", "chrome"], "sql": ["SELECT 1"]}.get(command, [])
    assert refused(capsys, command, "s3://bucket/run", *more) == (
        "steplens: s3://bucket/run: is a URL, and reading those needs fsspec, which is not installed. "
        "Install it with: pip install 'steplens[remote]'\n"
    )


def test_without_the_package_of_a_protocol(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("fsspec", reason="URLs are read with fsspec, which is not installed here")
    known = {"lacking": {"class": "no_such_package.LackingFileSystem", "err": "Install no_such_package to read lacking://"}}
    monkeypatch.setattr(importlib.import_module("fsspec.registry"), "known_implementations", known)
    assert refused(capsys, "summary", "lacking://bucket/run") == (
        "steplens: lacking://bucket/run: needs a package that is not installed. Install no_such_package to read lacking://\n"
    )
    assert "Protocol not known" in refused(capsys, "summary", "none-such://bucket/run")


def test_nothing_there(memory: Place, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, "summary", f"{memory.url}/none") == f"steplens: {memory.url}/none: does not exist. Check the URL\n"
    memory.file_system.pipe_file(f"{memory.url.partition('://')[2]}/notes.txt", b"none")
    assert "holds no run and no trace, only notes.txt" in refused(capsys, "summary", memory.url)
    for url in ("memory://", "s3://../run", "zip://a::s3://bucket/b"):
        assert refused(capsys, "summary", url)


def test_results_stay_here(captures: Path, memory: Place, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    url = memory.put(captures / RUN, RUN)
    assert refused(capsys, "analyse", url) == (
        f"steplens: {url}: lies where no results can be written. Say where they go: --out FOLDER\n"
    )
    assert main(["analyse", url, "--out", str(tmp_path / "made")]) == 0
    assert list((tmp_path / "made").rglob("step_trace_time.csv"))
    assert main(["export", url, "--to", "chrome", "--out", str(tmp_path / "trace.json")]) == 0
    assert (tmp_path / "trace.json").stat().st_size > 1000
    capsys.readouterr()


# --- secrets


def test_what_is_shown_of_a_url() -> None:
    assert is_url("s3://bucket/run") and is_url("simplecache::s3://bucket/run") and not is_url("/s3:/run") and not is_url("run")
    assert shown_url("ftp://somebody:pass@host/run/") == "ftp://***@host/run"
    assert shown_url("abfs://container@account/run") == "abfs://container@account/run"
    assert shown_url("https://token@host/trace.json?sig=secret") == "https://***@host/trace.json"
    assert shown_url("simplecache::https://host/trace.json?sig=secret") == "simplecache::https://host/trace.json"
    assert as_url(str(Path("s3://bucket/run"))) == "s3://bucket/run" and as_url("/a:/b") == "/a:/b"
    told = without_secrets("cannot log in with pa%20ss or pa ss at //somebody:pa%20ss@host", "ftp://somebody:pa%20ss@host/run")
    assert told == "cannot log in with *** or *** at //***@host"


def test_secrets_are_neither_told_nor_kept(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    fsspec = pytest.importorskip("fsspec", reason="URLs are read with fsspec, which is not installed here")

    class Leaking(fsspec.AbstractFileSystem):  # type: ignore[misc]
        protocol = "leaking"
        broken = True

        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.options = options

        @classmethod
        def _get_kwargs_from_urls(cls, path: str) -> dict[str, str]:
            return {"password": path.partition("://")[2].partition("@")[0].partition(":")[2]}

        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            return "/" + path.partition("://")[2].rpartition("@")[2] if "://" in path else path

        def info(self, path: str, **more: Any) -> dict[str, Any]:
            if self.broken:
                raise RuntimeError(f"refused leaking://somebody:{self.options['password']}@host, {self.options['password']}")
            return {"name": path, "size": len(TRACE), "type": "file", "mtime": 1.7e9}

        def ls(self, path: str, detail: bool = True, **more: Any) -> list[Any]:
            raise PermissionError(self.options["password"])

        def cat_file(self, path: str, start: int | None = None, end: int | None = None, **more: Any) -> bytes:
            return TRACE[start:end]

    fsspec.register_implementation("leaking", Leaking, clobber=True)
    url = "leaking://somebody:hush-hush@host/trace.json"
    assert refused(capsys, "summary", url) == (
        "steplens: leaking://***@host/trace.json: cannot be listed (refused leaking://***@host, ***). "
        "Check the URL, and what its file system is told of the account\n"
    )
    monkeypatch.setattr(Leaking, "broken", False)
    assert main(["open", url]) == 0
    assert main(["open", url, "--json"]) == 0
    shown = capsys.readouterr()
    assert "leaking://***@host/trace.json" in shown.out and "hush" not in shown.out + shown.err
    for path in cache_root().rglob("*"):
        assert "hush" not in str(path)
        assert not path.is_file() or path.stat().st_size > 1 << 20 or b"hush" not in path.read_bytes()


# --- what strangers offer


def strange(fsspec: Any, listed: dict[str, Any]) -> str:
    class Strange(fsspec.AbstractFileSystem):  # type: ignore[misc]
        protocol = "strange"
        cachable = False

        def info(self, path: str, **more: Any) -> dict[str, Any]:
            return {"name": path, "size": 0, "type": "directory"}

        def find(self, path: str, **more: Any) -> dict[str, Any]:
            return {f"top/{name}": {"name": name, "type": "file", "mtime": 1.7e9, **info} for name, info in listed.items()}

        def cat_file(self, path: str, start: int | None = None, end: int | None = None, **more: Any) -> bytes:
            return TRACE[start:end]

    fsspec.register_implementation("strange", Strange, clobber=True)
    return "strange://top"


def test_names_lead_nowhere_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fsspec = pytest.importorskip("fsspec", reason="URLs are read with fsspec, which is not installed here")
    names = ("../../../../up.json", "a/../../b.json", "/etc/x.json", "a//b.json", "./c.json", "n\0ul.json", "x" * 300 + ".json")
    good = {"good.json": {"size": len(TRACE)}, "both": {"size": 3}, "both/under.json": {"size": len(TRACE)}}
    sizes = {**dict.fromkeys(names, 5), "large.json": 1 << 62, "none.json": None, "less.json": -1}
    bad = {name: {"size": size} for name, size in sizes.items()}
    before = {path for path in cache_root().parent.rglob("*") if "remote" not in path.parts}
    run = steplens.open(strange(fsspec, {**bad, **good, ".steplens/x/manifest.json": {"size": 5}}))
    assert [path.name for path in run.paths] == ["good.json"]
    stand_in = run.path
    assert sorted(path.name for path in stand_in.rglob("*") if ".steplens" not in path.parts) == ["both", "good.json"]
    # of the names that are bad, and of one that was a folder and a file
    assert f"{len(bad) + 1} files of strange://top have names or sizes that no file here can have" in caplog.text
    made = {path for path in cache_root().parent.rglob("*") if "remote" not in path.parts} - before
    assert all(cache_root() in path.parents for path in made)


def test_fewer_bytes_than_were_listed(caplog: pytest.LogCaptureFixture) -> None:
    fsspec = pytest.importorskip("fsspec", reason="URLs are read with fsspec, which is not installed here")
    url = strange(fsspec, {"good.json": {"size": len(TRACE) + 9}})
    with pytest.raises(OSError, match=rf"gave {len(TRACE)} of {len(TRACE) + 9} bytes"):
        open_file(next(locate_listed(url).iterdir()))
    with pytest.raises(InputError):
        steplens.open(f"{url}/good.json")


def locate_listed(url: str) -> Path:
    from steplens.common.storage.files import list_remote

    path = locate_path(url)
    list_remote(path)
    return path


def test_more_files_than_anybody_looks_through(monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec = pytest.importorskip("fsspec", reason="URLs are read with fsspec, which is not installed here")
    monkeypatch.setattr("steplens.common.storage.remote_tree._MOST_ENTRIES", 3)
    url = strange(fsspec, {f"{number}.json": {"size": 1} for number in range(4)})
    with pytest.raises(InputError, match="holds more than 3 files and folders"):
        steplens.open(url)


def test_a_stand_in_is_no_capture(captures: Path, memory: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    path = steplens.open(memory.put(captures / RUN, RUN)).path
    # as in another process
    monkeypatch.setattr("steplens.common.storage.files._STAND_INS", {})
    with pytest.raises(InputError, match="holds names and no content"):
        steplens.open(path)


def test_times_of_all_kinds() -> None:
    from steplens.common.storage.remote_tree import _mark_of, _time_of

    moment = datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc)
    for value in (moment, moment.timestamp(), moment.isoformat(), "2026-01-02T00:00:00Z"):
        assert _time_of({"LastModified": value}) == int(moment.timestamp()) * 10**9
    assert _time_of({"mtime": "yesterday"}) == _time_of({"mtime": -5.0}) == _time_of({"mtime": float("nan")}) == _time_of({}) == 0
    assert _mark_of({"ETag": "a"}) != _mark_of({"ETag": "b"}) and _mark_of({"size": 3}) == ""
