"""Who is answered: the token, the Host, the Origin, paths, headers."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from pathlib import Path

import pytest
from starlette.types import Message, Receive, Scope, Send

from steplens.server.security import Guard

from .conftest import DEADLINE_S, TOKEN, Answer, Client, Start


@pytest.fixture(scope="module")
def static(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A built front end, with a secret beside it and a link that leads there."""
    folder = tmp_path_factory.mktemp("web")
    built = folder / "static"
    (built / "assets").mkdir(parents=True)
    (built / "index.html").write_text("<!doctype html><title>steplens</title>")
    (built / "assets" / "main.js").write_text("export {};")
    (folder / "secret.txt").write_text("secret")
    (built / "assets" / "link.txt").symlink_to(folder / "secret.txt")
    (built / "outside").symlink_to(folder)
    return built


@pytest.fixture(scope="module")
def client(serve: Start, static: Path) -> Client:
    return serve([Path("nothing-here")], static=static)


def is_refused(answer: Answer, status: int) -> bool:
    """Refused with a sentence, and nothing of the page."""
    assert b"doctype" not in answer.body
    assert set(answer.json) == {"problem", "where", "remedy"}
    assert answer.json["problem"]
    assert "set-cookie" not in answer.headers
    return answer.status == status


PLACES = ("/", "/assets/main.js", "/api/session", "/api/openapi.json", "/api/runs/0/overview")


@pytest.mark.parametrize("path", PLACES)
def test_no_address_answers_without_the_token(client: Client, path: str) -> None:
    assert is_refused(client.ask(path, token=None), 401)
    assert is_refused(client.ask(path, token="wrong"), 401)
    assert is_refused(client.ask(path, token=""), 401)
    assert is_refused(client.ask(path, token=TOKEN[:-1]), 401)
    assert is_refused(client.ask(path, token=None, headers={"Cookie": f"steplens_{client.port}=wrong"}), 401)
    assert is_refused(client.ask(path, token=None, headers={"Cookie": f"steplens_1={TOKEN}"}), 401)


def test_the_token_counts_in_the_query_of_the_page_only(client: Client) -> None:
    assert client.ask(f"/?token={TOKEN}", token=None).status == 200
    assert is_refused(client.ask(f"/api/session?token={TOKEN}", token=None), 401)
    assert is_refused(client.ask("/?token=wrong", token=None), 401)


def test_the_link_sets_a_cookie_with_which_a_reload_works(client: Client) -> None:
    first = client.ask(f"/?token={TOKEN}", token=None)
    cookie = first.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    pair = cookie.split(";")[0]
    assert pair.startswith(f"steplens_{client.port}=")
    for path in ("/", "/assets/main.js", "/api/session"):
        again = client.ask(path, token=None, headers={"Cookie": f"other=1; {pair}"})
        assert again.status == 200
        assert "set-cookie" not in again.headers


@pytest.mark.parametrize(
    "cookies",
    [
        "{ours}",
        'prefs={{"a":1,"b":[1,2]}}; {ours}',
        '{ours}; prefs={{"a":1,"b":[1,2]}}',
        "greet=hello world; {ours}",
        "name=J\u00fcrgen; {ours}",
        "a[b]=1; {ours}",
        "{ours}; a[b]=1",
        "(a)=1; {ours}",
        "flag; {ours}",
        'open="abc; {ours}',
        'closed="a\\"b"; {ours}',
        "=x; {ours}",
        "path=/; {ours}",
        "a=1,2,3; {ours}",
        "{name}=wrong; {ours}",
        "{ours}; {name}=wrong",
        "x{ours}; {ours}",
        "a=1;{ours};b=2",
        "a[b]=1\r\nCookie: {ours}",
        "x=" + "a" * 61_000 + "; {ours}",
        ";" * 61_000 + "{ours}",
    ],
    ids=lambda text: text[:30],
)
def test_cookies_of_other_programs_do_not_lock_the_owner_out(client: Client, cookies: str) -> None:
    name = f"steplens_{client.port}"
    sent = cookies.format(name=name, ours=f"{name}={TOKEN}")
    assert _with_cookies(client, sent).startswith(b"HTTP/1.1 200 ")
    # and none of them is the owner's
    assert _with_cookies(client, sent.replace(TOKEN, TOKEN[:-1])).startswith(b"HTTP/1.1 401 ")


def _with_cookies(client: Client, sent: str) -> bytes:
    with socket.create_connection(("127.0.0.1", client.port), timeout=DEADLINE_S) as one:
        one.sendall(f"GET /api/session HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {sent}\r\nConnection: close\r\n\r\n".encode())
        return one.recv(100)


def test_a_strange_cookie_costs_no_more_than_its_length() -> None:
    """Escapes in quotes took the standard library's parser 12 s for 60 kB, in which nobody else was answered."""
    guard = Guard(_forbidden, TOKEN, 1)
    length = 60_000
    plain = min(_takes_s(guard, b"a" * length) for _ in range(5))
    for piece in (b"\\", b'\\"', b"\\1", b'"', b" ", b";", b"=", b"a=;", b"steplens_1=;"):
        strange = b'a="' + piece * (length // len(piece)) + b'"'
        assert min(_takes_s(guard, strange) for _ in range(3)) < 500 * plain, piece


def _takes_s(guard: Guard, cookies: bytes) -> float:
    """The time for refusing a request with these cookies."""
    told: list[Message] = []

    async def sent(message: Message) -> None:
        told.append(message)

    headers = [(b"host", b"127.0.0.1"), (b"cookie", cookies)]
    scope = {"type": "http", "method": "GET", "path": "/api/session", "query_string": b"", "headers": headers}
    began = time.process_time()
    asyncio.run(guard(scope, _forbidden_receive, sent))
    took = time.process_time() - began
    assert told[0]["status"] == 401
    return took


def test_more_cookies_than_any_browser_sends_are_not_looked_at() -> None:
    assert _takes_s(Guard(_forbidden, TOKEN, 1), b"a" * 200_000 + f"; steplens_1={TOKEN}".encode())


async def _forbidden(scope: Scope, receive: Receive, send: Send) -> None:
    pytest.fail("a request without the token was let in")


async def _forbidden_receive() -> Message:
    pytest.fail("the body of a request without the token was asked for")


@pytest.mark.parametrize(
    "host",
    ["example.com", "evil.127.0.0.1.nip.io", "localhost.evil.com", "127.0.0.1.evil.com:80", "", "[evil]", "0x7f000001.com"],
)
def test_a_foreign_host_is_refused_even_with_the_token(client: Client, host: str) -> None:
    assert is_refused(client.ask("/api/session", headers={}, host=host or " "), 403)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "LOCALHOST:9000", "127.0.0.1:1", "[::1]:80", "[::1]", "192.168.1.5:8000"]
)
def test_names_of_this_machine_are_answered(client: Client, host: str) -> None:
    assert client.ask("/api/session", host=host).status == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.com", "null", "https://127.0.0.1:{port}", "http://127.0.0.1:1", "http://localhost:{port}"]
)
def test_a_foreign_origin_is_refused_even_with_the_token(client: Client, origin: str) -> None:
    answer = client.ask("/api/session", headers={"Origin": origin.format(port=client.port)})
    assert is_refused(answer, 403)
    assert "access-control-allow-origin" not in answer.headers


def test_the_own_origin_is_answered(client: Client) -> None:
    assert client.ask("/api/session", headers={"Origin": f"http://127.0.0.1:{client.port}"}).status == 200


def test_a_page_of_another_port_is_refused(client: Client) -> None:
    """Its cookies come along, because a site is a host whatever the port, and a GET of a script brings no Origin."""
    for site in ("same-site", "cross-site"):
        assert is_refused(client.ask("/api/session", headers={"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}), 403)
    assert client.ask("/api/session", headers={"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}).status == 200
    # following a link from another page
    assert (
        client.ask(f"/?token={TOKEN}", token=None, headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}).status
        == 200
    )


@pytest.mark.parametrize("method", ["OPTIONS", "PUT", "DELETE", "PATCH", "TRACE"])
def test_other_methods_do_nothing(client: Client, method: str) -> None:
    answer = client.ask("/api/session", method=method)
    assert answer.status in (404, 405)
    assert not any(name.startswith("access-control") for name in answer.headers)


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt",
        "/assets/../../secret.txt",
        "/%2e%2e/secret.txt",
        "/assets/%2e%2e/%2e%2e/secret.txt",
        "/..%2fsecret.txt",
        "/assets/..%5c..%5csecret.txt",
        "//etc/passwd",
        "/%2fetc%2fpasswd",
        "/assets/link.txt",
        "/outside/secret.txt",
        "/assets/%00",
        "/assets",
        "/assets/" + "a" * 5000,
        "/api/../assets/nothing",
    ],
)
def test_no_path_leads_out_of_the_pages(client: Client, path: str) -> None:
    answer = client.ask(path)
    assert answer.status == 404, answer
    assert b"secret" not in answer.body.replace(b"secret.txt", b"")
    assert b"root:" not in answer.body


def test_every_answer_forbids_what_a_page_does_not_need(client: Client) -> None:
    for answer in (
        client.ask("/"),
        client.ask("/api/session"),
        client.ask("/assets/main.js"),
        client.ask("/api/x"),
        client.ask("/", token=None),
    ):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "http" not in policy
        assert "unsafe-eval" not in policy
        assert "script-src 'self';" in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert answer.headers["cache-control"] == "no-store"
        assert "server" not in answer.headers


def test_the_parts_of_the_page_have_their_types(client: Client) -> None:
    assert client.ask("/").headers["content-type"].startswith("text/html")
    assert client.ask("/assets/main.js").headers["content-type"].startswith(("text/javascript", "application/javascript"))
    assert client.ask("/").body == b"<!doctype html><title>steplens</title>"


def test_a_run_is_no_way_to_other_files(client: Client) -> None:
    for path in (
        "/api/runs/..%2f..%2fetc/overview",
        "/api/runs/0/tables/..%2f..%2fetc%2fpasswd/csv",
        "/api/runs/-1",
        "/api/runs/99",
    ):
        assert client.ask(path).status in (404, 422), path


def test_without_a_build_the_page_says_how_to_make_one(serve: Start, tmp_path: Path) -> None:
    client = serve([tmp_path / "nothing"], static=tmp_path / "static")
    answer = client.ask("/")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain")
    text = answer.body.decode()
    assert "npm" in text
    for path in client.get("/api/openapi.json")["paths"]:
        assert path in text, path
    assert os.fspath(tmp_path / "static") in text
