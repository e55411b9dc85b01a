"""Running msprof: the exact commands, and what happens when it is missing, foreign, failing, slow or talkative."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from pathlib import Path

import pytest

from steplens.common.errors import InputError
from steplens.readers.ascend import msprof_command
from steplens.readers.ascend.msprof_command import export_device_data, find_msprof

from .ascend_fixture import PROF_NAME, write_golden, write_msprof


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_golden(tmp_path / "run", exported=False)


def use(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin")


def processes(*command: str) -> list[str]:
    """Ids of the processes of this command."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has just ended
            if path.read_bytes().split(b"\0")[:-1] == [word.encode() for word in command]:
                found.append(path.parent.name)
    return found


def calls(installation: Path) -> list[str]:
    return (installation / "calls.txt").read_text().splitlines()


def test_text_export_and_its_log(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, write_msprof(tmp_path / "cann"))
    prof = run / PROF_NAME
    umask = os.umask(0o077)
    try:
        done = export_device_data(run, prof, ["text"])
    finally:
        os.umask(umask)
    assert calls(tmp_path / "cann") == ["--help", f"--export=on --output={prof}", f"--analyze=on --output={prof}"]
    assert list((prof / "mindstudio_profiler_output").glob("msprof_*.json"))
    assert (prof / "analyze" / "communication.json").is_file()
    log = done.log.read_text()
    assert done.log.parent == run / "logs"
    assert f"exporting {prof}" in log
    assert f"CANN profiling data parsed in a total time of {done.duration}\n" in log
    assert stat.S_IMODE(done.log.stat().st_mode) == 0o640
    assert done.notes == ()


def test_database_export(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, write_msprof(tmp_path / "cann"))
    prof = run / PROF_NAME
    export_device_data(run, prof, ["db"], communication=False)
    assert calls(tmp_path / "cann") == ["--help", f"--export=on --type=db --output={prof}"]
    assert list(prof.glob("msprof_*.db"))


def test_database_comes_with_the_text_where_msprof_says_so() -> None:
    prof = Path("PROF")
    both = msprof_command.export_commands(prof, ["text", "db"], communication=False, also_database=True)
    assert both == [["--export=on", "--output=PROF"]]
    apart = msprof_command.export_commands(prof, ["text", "db"], communication=True)
    assert apart == [
        ["--export=on", "--output=PROF"],
        ["--analyze=on", "--output=PROF"],
        ["--export=on", "--type=db", "--output=PROF"],
        ["--analyze=on", "--type=db", "--output=PROF"],
    ]


def test_a_shell_never_sees_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, write_msprof(tmp_path / "cann"))
    run = write_golden(tmp_path / "a run; touch hacked $(touch hacked)", exported=False)
    monkeypatch.chdir(tmp_path)
    export_device_data(run, run / PROF_NAME, ["text"])
    assert list((run / PROF_NAME / "mindstudio_profiler_output").iterdir())
    assert not list(tmp_path.rglob("hacked"))


def test_no_msprof_on_path(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=r"not on PATH.*set_env\.sh"):
        export_device_data(run, run / PROF_NAME, ["text"])


def test_a_command_of_that_name_that_is_not_canns(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, write_msprof(tmp_path / "cann", install=False))
    with pytest.raises(InputError, match="no whole CANN installation"):
        export_device_data(run, run / PROF_NAME, ["text"])
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "msprof").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "msprof").chmod(0o755)
    use(monkeypatch, tmp_path / "bin")
    with pytest.raises(InputError, match="no CANN installation"):
        find_msprof()


def test_a_link_on_path_leads_to_the_installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = write_msprof(tmp_path / "cann") / "msprof"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "msprof").symlink_to(real)
    use(monkeypatch, tmp_path / "bin")
    assert find_msprof() == (real, [])


def test_a_failing_export_names_the_log(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, write_msprof(tmp_path / "cann", returns=3))
    with pytest.raises(InputError, match=r"failed with status 3\. See .*/logs/profiler_.*_msprof\.log"):
        export_device_data(run, run / PROF_NAME, ["text"])
    (log,) = (run / "logs").iterdir()
    assert "damaged data" in log.read_text()


def test_a_slow_export_is_stopped_with_all_it_started(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = 100_000 + os.getpid()
    use(monkeypatch, write_msprof(tmp_path / "cann", seconds=long))
    monkeypatch.setattr(msprof_command, "_SECONDS_PER_GIB", 0.3)
    with pytest.raises(InputError, match="was stopped after 0 s"):
        export_device_data(run, run / PROF_NAME, ["text"])
    # the stand-in's own child, sleep, goes with it, and soon: what is killed may take a moment to end
    until = time.monotonic() + 60
    while (left := processes("sleep", str(long))) and time.monotonic() < until:
        time.sleep(0.01)
    assert left == []


def test_a_talkative_export_does_not_fill_the_disk(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = write_msprof(tmp_path / "cann") / "msprof"
    command.write_text('#!/bin/sh\ncase "$*" in *--help*) exit 0;; esac\nhead -c 3000000 /dev/zero\n')
    monkeypatch.setattr(msprof_command, "_LOG_BYTES", 1 << 20)
    use(monkeypatch, command.parent)
    done = export_device_data(run, run / PROF_NAME, ["text"], communication=False)
    assert 1 << 20 <= done.log.stat().st_size < (1 << 20) + 2000
    assert b"was not kept" in done.log.read_bytes()


def test_a_linked_log_folder_is_refused(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, write_msprof(tmp_path / "cann"))
    (tmp_path / "elsewhere").mkdir()
    (run / "logs").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="is a link"):
        export_device_data(run, run / PROF_NAME, ["text"])
    assert not list((tmp_path / "elsewhere").iterdir())


def test_msprof_without_databases(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = write_msprof(tmp_path / "cann") / "msprof"
    command.write_text("#!/bin/sh\necho usage\n")
    use(monkeypatch, command.parent)
    with pytest.raises(InputError, match="cannot export databases"):
        export_device_data(run, run / PROF_NAME, ["db"])
