"""Connections that never ask, ask half or ask slowly end, and never stand in the owner's way."""

from __future__ import annotations

import contextlib
import http.client
import re
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import h11
import pytest

from steplens.server.http.connections import Limits, strangers_of

from .conftest import DEADLINE_S, TOKEN, Client, Start
from .test_view_command import LINK

#: longer than any test waits: what ends a connection is not this time
_LONG_S = 10 * DEADLINE_S
_BOUND = 8
_ROUNDS = 10


#: more than kernels keep for a connection
_LARGE = 32 << 20


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A built front end with a large file."""
    folder = tmp_path_factory.mktemp("pages")
    (folder / "index.html").write_text("<!doctype html>")
    (folder / "large.js").write_bytes(b"a" * _LARGE)
    return folder


@pytest.fixture(scope="module")
def hurried(serve: Start, pages: Path) -> Client:
    """A server that gives nobody much time."""
    limits = Limits(head_s=0.3, body_s=0.3, answer_s=0.2, idle_s=1, strangers=1000)
    return serve([Path("nothing-here")], static=pages, limits=limits)


@pytest.fixture(scope="module")
def narrow(serve: Start, pages: Path) -> Client:
    """A server that gives time, and keeps few connections without the token."""
    limits = Limits(head_s=_LONG_S, body_s=_LONG_S, answer_s=_LONG_S, idle_s=_LONG_S, strangers=_BOUND)
    return serve([Path("nothing-here")], static=pages, limits=limits)


@contextlib.contextmanager
def connected(client: Client, sends: bytes = b"") -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", client.port), timeout=DEADLINE_S) as one:
        one.sendall(sends)
        yield one


def rest(one: socket.socket) -> bytes:
    """Everything until the server ends the connection."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while data := one.recv(1 << 16):
            found += data
    return found


def head(client: Client, *lines: str, token: str | None = TOKEN, method: str = "GET") -> bytes:
    told = [f"{method} /api/session HTTP/1.1", f"Host: 127.0.0.1:{client.port}", *lines]
    if token is not None:
        told.append(f"Authorization: Bearer {token}")
    return "\r\n".join([*told, "", ""]).encode()


def test_a_connection_that_says_nothing_ends(hurried: Client) -> None:
    with connected(hurried) as one:
        assert rest(one) == b""


@pytest.mark.parametrize("sends", [b"G", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nA: b"])
def test_half_a_request_ends_with_an_answer(hurried: Client, sends: bytes) -> None:
    with connected(hurried, sends) as one:
        assert rest(one).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("token", [TOKEN, None])
def test_bytes_that_trickle_in_do_not_lengthen_the_time(hurried: Client, token: str | None) -> None:
    sends = head(hurried, f"X: {'a' * 10_000}", token=token)
    with connected(hurried) as one, contextlib.suppress(ConnectionError):
        for place in range(len(sends)):
            if select.select([one], [], [], 0.05)[0]:
                break
            one.sendall(sends[place : place + 1])
        else:
            pytest.fail("ten thousand slow bytes were waited for")
    assert hurried.ask("/api/session").status == 200


def test_a_slow_body_ends_even_with_the_token(hurried: Client) -> None:
    sends = head(hurried, "Content-Type: application/json", "Content-Length: 100", method="POST")
    path = b"/api/runs/0/tables/operators"
    with connected(hurried, sends.replace(b"/api/session", path) + b'{"a":') as one:
        # a table of a run that was not opened is refused before its question is read
        assert rest(one).startswith((b"HTTP/1.1 408 ", b"HTTP/1.1 4"))
    assert hurried.ask("/api/session").status == 200


def test_a_page_that_is_asked_for_without_the_token_ends_the_connection(hurried: Client, narrow: Client) -> None:
    """At once where it is taken, and after a time where it is not."""
    asked = head(hurried, token=None).replace(b"/api/session", b"/large.js")
    with connected(hurried, asked) as one:
        assert one.recv(12) == b"HTTP/1.1 200"
        # the time of another one, which began later and is longer, is over
        with connected(hurried) as other:
            assert rest(other) == b""
        assert len(rest(one)) < _LARGE
    with connected(narrow, asked + head(narrow)) as one:
        taken = rest(one)
    assert len(taken.partition(b"\r\n\r\n")[2]) == _LARGE, "and nothing behind it is answered"


def test_an_idle_connection_of_the_owner_ends_after_its_time(hurried: Client) -> None:
    with connected(hurried, head(hurried)) as one:
        assert rest(one).startswith(b"HTTP/1.1 200 ")


def test_whoever_is_refused_is_not_kept(narrow: Client) -> None:
    """Nor is what follows the refused request read, be it a body without end or a second try."""
    body = head(narrow, "Content-Length: 1000000000", token="wrong", method="POST") + b"x" * 1000
    for sends in (head(narrow, token=None), head(narrow, token="wrong") * 50, body):
        with connected(narrow, sends) as one:
            answer = rest(one)
        assert answer.count(b"HTTP/1.1 ") == 1 and answer.startswith(b"HTTP/1.1 401 ")
        assert b"connection: close" in answer.lower()


_CHUNKED = ("Transfer-Encoding: chunked", "Content-Type: application/json")


def test_the_body_of_whoever_is_refused_is_not_even_taken_apart(narrow: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of a megabyte in chunks of a byte was two seconds of nobody else being answered."""
    found: list[int] = []
    read = h11.Connection.next_event

    def counted(self: h11.Connection) -> object:
        event = read(self)
        if isinstance(event, h11.Data):
            found.append(len(event.data))
        return event

    monkeypatch.setattr(h11.Connection, "next_event", counted)
    sends = b"1\r\n \r\n" * 40_000
    for token in (None, "wrong"):
        with connected(narrow, head(narrow, *_CHUNKED, token=token, method="POST")) as one, contextlib.suppress(ConnectionError):
            one.sendall(sends)
            rest(one)
        with contextlib.suppress(ConnectionError), connected(narrow, head(narrow, *_CHUNKED, token=token) + sends) as one:
            rest(one)
    with connected(narrow, head(narrow, "Content-Length: 100000", token=None) + sends[:100_000]) as one:
        rest(one)
    assert found == []
    # the owner's is, also where it follows another request on the same connection
    question = b"1\r\n{\r\n1\r\n}\r\n0\r\n\r\n"
    asked = head(narrow, *_CHUNKED, method="POST").replace(b"/api/session", b"/api/runs/0/tables/operators") + question
    with connected(narrow, 2 * asked + head(narrow) + head(narrow, token=None) + asked) as one:
        answers = re.findall(rb"HTTP/1\.1 (\d+) ", rest(one))
    assert len(found) == 4 and answers[2:] == [b"200", b"401"] and b"401" not in answers[:2], answers


def test_whoever_leaves_a_page_says_nothing_on_the_terminal(narrow: Client, caplog: pytest.LogCaptureFixture) -> None:
    asked = head(narrow, token=None).replace(b"/api/session", b"/large.js")
    for _ in range(5):
        with connected(narrow, asked):
            pass
        assert narrow.ask("/api/session").status == 200
    assert [record.getMessage() for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []


def test_many_header_lines_are_not_even_taken_apart(narrow: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve thousand of four bytes were 60 ms each, with which anybody could keep the server busy."""
    begun = 0
    read = h11.Connection.next_event

    def counted(self: h11.Connection) -> object:
        nonlocal begun
        event = read(self)
        begun += isinstance(event, h11.Request)
        return event

    monkeypatch.setattr(h11.Connection, "next_event", counted)
    for token in (None, TOKEN):
        for lines in (["a:b"] * 201, ["a:b"] * 12_000):
            with connected(narrow, head(narrow, *lines, token=token)) as one:
                assert rest(one).startswith(b"HTTP/1.1 400 ")
    assert begun == 0
    # as many as anybody has, and lines of a body
    with connected(narrow, head(narrow, *["a:b"] * 150, "Connection: close")) as one:
        assert rest(one).startswith(b"HTTP/1.1 200 ")
    asked = head(narrow, "Content-Length: 1002", "Content-Type: application/json", "Connection: close", method="POST")
    with connected(narrow, asked.replace(b"/api/session", b"/api/tickets") + b"{" + b"\n" * 1000 + b"}") as one:
        assert rest(one).startswith(b"HTTP/1.1 422 ")


def test_a_damaged_body_of_the_owner_is_one_answer(narrow: Client, caplog: pytest.LogCaptureFixture) -> None:
    for method in ("GET", "POST"):
        with connected(narrow, head(narrow, *_CHUNKED, method=method) + b"no size\r\n") as one:
            assert rest(one).count(b"HTTP/1.1 400 ") == 1
    assert narrow.ask("/api/session").status == 200
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


def test_a_new_connection_takes_the_place_of_the_oldest_without_the_token(narrow: Client) -> None:
    kept = http.client.HTTPConnection("127.0.0.1", narrow.port, timeout=DEADLINE_S)
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    kept.request("GET", "/api/session", headers=bearer)
    assert kept.getresponse().read()
    owners = kept.sock
    with contextlib.ExitStack() as stack:
        strangers = [stack.enter_context(connected(narrow, b"GET / HT" if i % 2 else b"")) for i in range(20 * _BOUND)]
        for one in strangers[:-_BOUND]:
            assert rest(one) == b""
        assert select.select(strangers[-_BOUND:], [], [], 0)[0] == []
        # the owner's connection is as it was, and a new one of the owner's is heard
        kept.request("GET", "/api/session", headers=bearer)
        assert kept.getresponse().read() and kept.sock is owners
        assert narrow.ask("/api/session").status == 200
    kept.close()


@pytest.mark.parametrize("token", [TOKEN, None])
@pytest.mark.parametrize("upgrade", ["websocket", "WebSocket"])
def test_a_websocket_is_refused_with_a_sentence(narrow: Client, token: str | None, upgrade: str) -> None:
    asked = {
        "Upgrade": upgrade,
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    }
    for path in ("/", "/api/session", "/ws"):
        answer = narrow.ask(path, token=token, headers=asked)
        assert answer.status == (400 if token else 401)
        assert answer.json["problem"] and answer.json["remedy"]
        assert answer.headers["connection"] == "close"


@pytest.mark.parametrize(("files", "bound"), [(-1, 128), (1 << 20, 128), (1024, 128), (256, 32), (20, 2), (4, 1)])
def test_the_bound_leaves_most_files_to_the_owner(files: int, bound: int) -> None:
    assert strangers_of(files) == bound


@contextlib.contextmanager
def few_files(count: int, shown: Path) -> Iterator[tuple[subprocess.Popen[str], int, str]]:
    """The command with so many file descriptors, its port and its token."""
    process = subprocess.Popen(
        [sys.executable, "-m", "steplens", "view", "--no-browser", str(shown)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (count, count)),
    )
    try:
        assert process.stdout is not None
        found = LINK.match(process.stdout.readline())
        assert found is not None
        yield process, int(found[1]), found[0].rpartition("=")[2]
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_thousands_of_idle_connections_do_not_starve_the_owner(tmp_path: Path) -> None:
    """More than the server has files, opened again when they are dropped; benchmarks/idle_connections.py has the figures."""
    files, held = 256, 600
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < 2 * held:
        pytest.skip(f"this process may open only {soft} files")
    with few_files(files, tmp_path) as (process, port, token), contextlib.ExitStack() as stack:
        strangers: list[socket.socket] = []
        bearer = {"Authorization": f"Bearer {token}"}
        began, answers = time.monotonic(), []
        for asked in range(_ROUNDS):
            strangers = [one for one in strangers if not select.select([one], [], [], 0)[0] or one.close()]  # type: ignore[func-returns-value]
            while len(strangers) < held:
                strangers.append(stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)))
            if asked % 3 == 0:
                strangers[-1].sendall(b"GET /ws HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
                strangers[-2].sendall(b"\x16\x03\x01 no HTTP\r\n\r\n")
            owner = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
            owner.request("GET", "/api/session", headers=bearer)
            answers.append(owner.getresponse().status)
            owner.close()
        assert answers == [200] * _ROUNDS
        assert time.monotonic() - began < DEADLINE_S, "the owner waited"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=DEADLINE_S)
        assert process.returncode in (0, 130), said
        assert said == "", "strangers wrote into the owner's terminal"
