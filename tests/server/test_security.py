"""Who is answered: the token, the Host, the Origin, paths, headers."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from pathlib import Path

import pytest
from starlette.types import Message, Receive, Scope, Send

from steplens.server.http.security import Guard
from steplens.server.http.tickets import Tickets

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


PAGES = ("/", "/assets/main.js")
PLACES = ("/index.html", "/assets/nothing.js", "/api/session", "/api/openapi.json", "/api/runs/0/overview", "/tickets/wrong")


@pytest.mark.parametrize("path", PLACES)
def test_no_address_answers_without_the_token(client: Client, path: str) -> None:
    assert is_refused(client.ask(path, token=None), 401)
    assert is_refused(client.ask(path, token=""), 401)


@pytest.mark.parametrize("path", [*PAGES, *PLACES])
def test_no_address_answers_a_wrong_token(client: Client, path: str) -> None:
    assert is_refused(client.ask(path, token="wrong"), 401)
    assert is_refused(client.ask(path, token=TOKEN[:-1]), 401)


def test_the_pages_themselves_are_open_to_all_and_say_nothing_of_a_run(serve: Start, client: Client, static: Path) -> None:
    other = serve([static.parent / "another-run"], static=static)
    for path in PAGES:
        answers = [client.ask(path, token=None), client.ask(path), other.ask(path, token=None)]
        assert [one.status for one in answers] == [200] * 3
        assert len({one.body for one in answers}) == 1
    for method in ("HEAD", "POST"):
        assert client.ask("/", method=method, token=None).status == 401


def test_the_token_counts_in_the_query_of_the_page_only(client: Client) -> None:
    assert client.ask(f"/?token={TOKEN}", token=None).status == 200
    assert is_refused(client.ask(f"/api/session?token={TOKEN}", token=None), 401)
    # nobody but the owner can make the pages keep another token
    assert is_refused(client.ask("/?token=wrong", token=None), 401)
    assert is_refused(client.ask(f"/?token=wrong&token={TOKEN[:-1]}", token=None), 401)


def test_no_cookie_is_made_and_none_counts(client: Client) -> None:
    """Browsers send those of a host to all of its ports, and so to servers of other users."""
    for path in (f"/?token={TOKEN}", "/", "/api/session"):
        assert "set-cookie" not in client.ask(path).headers
    for name in ("token", "steplens", f"steplens_{client.port}"):
        assert is_refused(client.ask("/api/session", token=None, headers={"Cookie": f"{name}={TOKEN}"}), 401)


@pytest.mark.parametrize("cookies", ['a={"b":[1,2]}', "flag", 'open="abc', "a[b]=1", "name=J\u00fcrgen", ";" * 61_000])
def test_cookies_of_other_programs_do_not_lock_the_owner_out(client: Client, cookies: str) -> None:
    with socket.create_connection(("127.0.0.1", client.port), timeout=DEADLINE_S) as one:
        told = ("GET /api/session HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {TOKEN}", f"Cookie: {cookies}")
        one.sendall("\r\n".join((*told, "Connection: close", "", "")).encode())
        assert one.recv(100).startswith(b"HTTP/1.1 200 ")


def test_a_strange_cookie_costs_no_more_than_its_length() -> None:
    """Escapes in quotes took the standard library's parser 12 s for 60 kB, in which nobody else was answered."""
    guard = Guard(_forbidden, TOKEN)
    length = 60_000
    plain = min(_takes_s(guard, b"a" * length) for _ in range(5))
    for piece in (b"\\", b'\\"', b";", b"a=;"):
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
    """A site is a host whatever the port, and a GET of a script brings no Origin."""
    for site in ("same-site", "cross-site"):
        assert is_refused(client.ask("/api/session", headers={"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}), 403)
        for path in PAGES:
            script = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"}
            assert is_refused(client.ask(path, token=None, headers=script), 403)
    assert client.ask("/api/session", headers={"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}).status == 200


@pytest.mark.parametrize("site", ["same-site", "cross-site"])
def test_a_link_of_another_page_leads_to_the_page_only(client: Client, site: str) -> None:
    followed = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate"}
    assert client.ask(f"/?token={TOKEN}", token=None, headers=followed).status == 200
    assert client.ask("/", token=None, headers=followed).status == 200
    for path in ("/api/session", "/api/runs/0/download", "/assets/main.js"):
        assert is_refused(client.ask(path, headers=followed), 403)


FILE = "/api/runs/9/tables/operators/csv?query=%7B%7D"


def ticket_for(client: Client, address: str) -> str:
    found: str = client.post("/api/tickets", {"address": address})["address"]
    return found


def test_a_ticket_stands_for_one_request_of_one_address(client: Client) -> None:
    asked = client.ask(FILE)
    assert asked.status == 404 and asked.json["where"] != "/tickets"
    ticket = ticket_for(client, FILE)
    assert TOKEN not in ticket
    # not for another method, and not from another site
    assert is_refused(client.ask(ticket, method="POST", token=None), 401)
    assert is_refused(client.ask(ticket, token=None, headers={"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate"}), 403)
    answer = client.ask(ticket, token=None)
    assert (answer.status, answer.body) == (asked.status, asked.body)
    assert is_refused(client.ask(ticket, token=None), 401)
    assert is_refused(client.ask(ticket_for(client, FILE) + "x", token=None), 401)


@pytest.mark.parametrize(
    "address",
    [
        "/api/session",
        "/api/runs/0/overview",
        "/api/runs/0/reopen",
        "/api/runs/0/download/../overview",
        "/api/runs/0/download#x",
        "/api/runs/0/tables/operators/csv?query=\u00fc",
        "/api/runs/0/tables/operators/csv?a\r\nX: y",
        "/api/runs/0/tables/operators/csv?" + "a" * 70_000,
        "http://evil.com/api/runs/0/download",
        "//evil.com/api/runs/0/download",
        "",
    ],
    ids=lambda text: text[:40],
)
def test_there_are_tickets_for_files_only(client: Client, address: str) -> None:
    told = client.post("/api/tickets", {"address": address}, expect=422)
    assert told["where"] == "body.address"


def test_a_ticket_needs_the_token(client: Client) -> None:
    body = b'{"address": "/api/runs/0/download"}'
    assert is_refused(client.ask("/api/tickets", method="POST", body=body, token=None), 401)


def test_a_ticket_ends_after_a_minute_and_few_are_held() -> None:
    now = 1000.0
    tickets = Tickets(lambda: now)
    early, late = tickets.make("/early"), tickets.make("/late")
    now += 59
    assert tickets.spend(early) == "/early"
    now += 2
    assert tickets.spend(late) is None
    made = [tickets.make(f"/{number}") for number in range(1000)]
    assert len(set(made)) == 1000
    found = [tickets.spend(one) for one in made]
    assert found[0] is None and found[-1] == "/999"
    assert 10 < sum(one is not None for one in found) < 100


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
        client.ask("/api/session", token=None),
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
        assert "server" not in answer.headers


def test_only_what_a_hash_in_its_name_tells_apart_is_kept_by_a_browser(client: Client) -> None:
    for path in ("/", "/api/session", "/api/x", "/icon.svg"):
        assert client.ask(path).headers["cache-control"] == "no-store", path
    assert client.ask("/assets/main.js").headers["cache-control"] == "private, max-age=31536000, immutable"
    # what was refused says nothing of the next time
    assert client.ask("/assets/main.js", token="wrong").headers["cache-control"] == "no-store"
    assert client.ask("/assets/other.js").headers["cache-control"] == "no-store"


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
    assert "make web" in text
    for path in client.get("/api/openapi.json")["paths"]:
        assert path in text, path
    assert os.fspath(tmp_path / "static") in text
    # it tells a path of the disk
    assert is_refused(client.ask("/", token=None), 401)
