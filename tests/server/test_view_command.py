"""``steplens view`` as a user runs it: in a process of its own, ended with Ctrl-C."""

from __future__ import annotations

import contextlib
import html
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import steplens
from steplens.cli import main
from steplens.common.errors import SteplensError
from steplens.server.http import built_pages

from .conftest import DEADLINE_S, STATIC, sample

pytestmark = pytest.mark.slow

LINK = re.compile(r"http://127\.0\.0\.1:(\d+)/\?token=[\w-]{40,}")


@contextlib.contextmanager
def viewing(*arguments: str | Path, browser: bool = False) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command and the link that it prints."""
    if not (STATIC / "index.html").is_file():
        pytest.skip(f"the front end is not built ({STATIC} has no index.html): make web")
    process = subprocess.Popen(
        [sys.executable, "-m", "steplens", "view", *(() if browser else ("--no-browser",)), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "40"},
    )
    try:
        assert process.stdout is not None
        link = ""
        before = []
        while not link.startswith("http"):
            line = process.stdout.readline()
            assert line, process.stderr.read() if process.stderr else ""
            before.append(line)
            link = line.strip()
        assert ("warning" in before[0]) == ("--host" in arguments)
        yield process, link
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def viewed() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """One command for the tests that only ask it something."""
    with viewing(sample("mindspore", "JOB1")) as started:
        yield started


def fetch(link: str) -> tuple[int, bytes, dict[str, str]]:
    try:
        with urllib.request.urlopen(link, timeout=DEADLINE_S) as answer:
            return answer.status, answer.read(), dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, error.read(), dict(error.headers)


def test_the_printed_link_shows_the_runs_and_ctrl_c_ends_it() -> None:
    with viewing(sample("kineto", "cuda_alexnet.json.gz"), sample("mindspore", "JOB1")) as (process, link):
        assert LINK.fullmatch(link), link
        status, _, headers = fetch(link)
        assert status == 200
        assert "set-cookie" not in {name.lower() for name in headers}
        address, token = link.split("/?token=")
        request = urllib.request.Request(f"{address}/api/session", headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
            assert b"cuda_alexnet" in (session := answer.read())
            assert b"JOB1" in session
        assert fetch(f"{address}/api/session")[0] == 401
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0
        assert "stopped" in out
        assert "Traceback" not in out + err
        with pytest.raises(OSError, match=r".*"):
            urllib.request.urlopen(address, timeout=5)


def test_ctrl_c_ends_it_quietly_while_answers_are_worked_out(tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    event = '{"ph": "X", "cat": "cpu_op", "name": "aten::mm_%d", "pid": 1, "tid": 1, "ts": %d, "dur": 2, "args": {}}'
    path.write_text('{"traceEvents": [' + ",\n".join(event % (place % 999, 3 * place) for place in range(400_000)) + "]}")
    with viewing(path) as (process, link):
        address, token = link.split("/?token=")

        def ask(what: str) -> None:
            request = urllib.request.Request(f"{address}/api/runs/0{what}", headers={"Authorization": f"Bearer {token}"})
            with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
                answer.read()

        deadline = time.monotonic() + DEADLINE_S
        while (state := json.loads(fetch_state(address, token))["progress"]["state"]) != "ready":
            assert state != "failed" and time.monotonic() < deadline, state
            time.sleep(0.05)
        threads = [threading.Thread(target=ask, args=(what,)) for what in ("/advice", "/overview", "/ranks", "/timeline")]
        for thread in threads:
            thread.start()
        time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=DEADLINE_S)
        for thread in threads:
            thread.join(DEADLINE_S)
        assert process.returncode == 0, (out, err)
        assert "Traceback" not in out + err
        assert "ERROR" not in err


def fetch_state(address: str, token: str) -> bytes:
    request = urllib.request.Request(f"{address}/api/runs/0", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
        return bytes(answer.read())


@pytest.mark.parametrize("after_s", [0.0, 0.3])
def test_ctrl_c_ends_it_while_a_run_is_opened(tmp_path: Path, after_s: float) -> None:
    """As soon as the link is there, when the server does not run yet, and a moment later."""
    path = tmp_path / "large.json"
    event = '{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": %d, "dur": 2, "args": {}}'
    path.write_text('{"schemaVersion": 1, "traceEvents": [' + ",\n".join(event % (3 * place) for place in range(600_000)) + "]}")
    with viewing(path) as (process, _):
        time.sleep(after_s)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0, (out, err)
        assert "stopped" in out
        assert "Traceback" not in out + err


def test_the_token_is_on_no_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every user of the machine can read the browser's; the file that it names leads to the link, and goes with the server."""
    said, page = tmp_path / "said", tmp_path / "page"
    stub = tmp_path / "browser"
    stub.write_text(f'#!/bin/sh\ncp "${{1#file://}}" {page}\nprintf "%s\\n" "$@" > {said}.part\nmv {said}.part {said}\n')
    stub.chmod(0o755)
    monkeypatch.setenv("BROWSER", str(stub))
    with viewing(tmp_path, browser=True) as (process, link):
        deadline = time.monotonic() + DEADLINE_S
        while not said.exists():
            assert time.monotonic() < deadline, "no browser was opened"
            time.sleep(0.05)
        address = said.read_text().strip()
        assert address.startswith("file:///") and link.rpartition("=")[2] not in address
        assert f'url={link}"' in page.read_text()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=DEADLINE_S)
        assert (process.returncode, err) == (0, ""), out
    assert not Path(address.removeprefix("file://")).exists()


def test_only_this_machine_can_connect_by_default(viewed: tuple[subprocess.Popen[str], str]) -> None:
    process, link = viewed
    found = LINK.fullmatch(link)
    assert found is not None
    listening = Path(f"/proc/{process.pid}/net/tcp")
    if not listening.exists():
        pytest.skip("needs /proc/net/tcp")
    port = f"{int(found[1]):04X}"
    addresses = [line.split()[1] for line in listening.read_text().splitlines()[1:] if line.split()[3] == "0A"]
    assert f"0100007F:{port}" in addresses
    assert f"00000000:{port}" not in addresses


def test_two_servers_have_ports_and_tokens_of_their_own(viewed: tuple[subprocess.Popen[str], str]) -> None:
    first = viewed[1]
    with viewing(sample("mindspore", "JOB1")) as (_, second):
        (one, its), (other, another) = first.split("/?token="), second.split("/?token=")
        assert one != other
        assert its != another
        assert fetch(f"{other}/?token={its}")[0] == 401


def test_a_wider_address_is_warned_about() -> None:
    with viewing("--host", "0.0.0.0", sample("mindspore", "JOB1")) as (process, link):
        assert LINK.fullmatch(link)
        address, token = link.split("/?token=")
        assert fetch(f"{address}/?token={token}")[0] == 200
        assert fetch(f"{address}/?token={token}x")[0] == 401
        process.send_signal(signal.SIGTERM)
        process.wait(DEADLINE_S)


def refused(*arguments: str | Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "steplens", "view", "--no-browser", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    return done.stderr


def test_mistakes_are_told_in_one_line(tmp_path: Path, viewed: tuple[subprocess.Popen[str], str]) -> None:
    assert "does not exist" in refused(tmp_path / "missing")
    assert "cannot listen on 192.0.2.1" in refused("--host", "192.0.2.1", tmp_path)
    found = LINK.fullmatch(viewed[1])
    assert found is not None
    assert f"port {found[1]}" in refused("--port", found[1], tmp_path)


def test_a_notebook_shows_a_run_and_opens_its_pages(tmp_path: Path) -> None:
    if not (STATIC / "index.html").is_file():
        pytest.skip("the front end is not built: make web")
    run = steplens.open(sample("kineto", "cuda_alexnet.json.gz"))
    assert "1 trace" in repr(run) and str(run.path) in repr(run)
    assert run.verdict().sentence() in html.unescape(run._repr_html_())
    advice = run.advise()
    assert advice.columns[:3] == ["level", "title", "saving_ns"]
    with steplens.view(run) as view:
        assert LINK.fullmatch(view.link) and view.link in repr(view) and view.link in view._repr_html_()
        assert fetch(view.link)[0] == 200
    assert "ended" in repr(view) and "href" not in view._repr_html_()
    with pytest.raises(SteplensError, match="missing: does not exist"):
        steplens.view(tmp_path / "missing")


def test_importing_steplens_or_its_command_line_loads_no_server() -> None:
    code = "import sys, steplens, steplens.cli.main; print([m for m in ('fastapi', 'uvicorn', 'pydantic') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_runs_can_be_read_before_the_rest_of_the_server_is_loaded() -> None:
    of_the_web = "{'fastapi', 'uvicorn', 'pydantic'} & set(sys.modules)"
    code = f"import sys, steplens.server.runs, steplens.server.http.address; print({of_the_web})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_without_the_extra_the_command_says_how_to_get_it(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['fastapi'] = None\n"
        "from steplens.cli.main import main\n"
        f"sys.exit(main(['view', '--no-browser', {str(tmp_path)!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 2
    assert "steplens[view]" in done.stderr
    assert "fastapi" in done.stderr


def test_without_pages_it_refuses_and_says_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    static = tmp_path / "src" / "steplens" / "server" / "static"
    monkeypatch.setattr(built_pages, "STATIC", static)
    assert main.main(["view", "--no-browser", str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "the pages are not built" in said.err and "--force-reinstall 'steplens[view]'" in said.err
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "package.json").write_text("{}")
    assert main.main(["view", "--no-browser", str(tmp_path)]) == 2
    assert f"Run make web in {tmp_path}" in capsys.readouterr().err
