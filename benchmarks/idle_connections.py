"""How long the owner of ``steplens view`` waits while strangers hold as many connections as they can.

    python benchmarks/idle_connections.py [--connections 2000] [--seconds 60] [--files 1024] [CAPTURE]

The server runs with so many file descriptors. A second process connects and sends nothing, or half a request (``--halves``),
and opens again, once a second (``--pause``, in seconds; 0 is a flood), whatever the server dropped. Meanwhile the owner
asks, ten times a second, over a connection that is kept, as a browser does, and over a new one each time.
"""

from __future__ import annotations

import argparse
import http.client
import re
import resource
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_PAUSE_S = 0.1


def hold(port: int, count: int, halves: bool, pause_s: float) -> None:
    """Hold ``count`` connections until the end of input, opening again what was dropped; print how many were opened."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(count + 100, 1024), resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    waiting = selectors.DefaultSelector()
    waiting.register(sys.stdin.fileno(), selectors.EVENT_READ)
    opened, missing, left, due = 0, count, count, time.monotonic()
    while True:
        for key, _ in waiting.select(max(due - time.monotonic(), 0) if missing else None):
            if key.fileobj == sys.stdin.fileno():
                print(opened)
                return
            waiting.unregister(key.fileobj)
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
            missing += 1
        if time.monotonic() < due:
            continue
        # a few at a time, so that the end is noticed
        for _ in range(min(left, 50)):
            one = socket.create_connection(("127.0.0.1", port), timeout=60)
            if halves:
                one.send(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")
            waiting.register(one, selectors.EVENT_READ)
            opened, missing, left = opened + 1, missing - 1, left - 1
        if not left:
            left, due = missing, time.monotonic() + pause_s


def ask(connection: http.client.HTTPConnection, headers: dict[str, str]) -> float:
    """Seconds until a whole answer."""
    begin = time.perf_counter()
    connection.request("GET", "/api/session", headers=headers)
    answer = connection.getresponse()
    answer.read()
    if answer.status != 200:
        raise RuntimeError(f"the owner got {answer.status}")
    return time.perf_counter() - begin


def owner(port: int, token: str, seconds: float) -> tuple[list[float], list[float], int]:
    """Times over one kept connection and over new ones, and how often the kept one was lost."""
    headers = {"Authorization": f"Bearer {token}"}
    kept, new, lost = [], [], 0
    held = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    end = time.monotonic() + seconds
    before = None
    while time.monotonic() < end:
        kept.append(ask(held, headers))
        lost += before is not None and held.sock is not before
        before = held.sock
        fresh = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        new.append(ask(fresh, headers))
        fresh.close()
        time.sleep(_PAUSE_S)
    return kept, new, lost


def told(times: list[float]) -> str:
    """Median, 95th percentile and slowest, ms."""
    found = sorted(times)
    return " | ".join(f"{1000 * found[min(int(len(found) * part), len(found) - 1)]:.1f}" for part in (0.5, 0.95, 1.0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("capture", nargs="?", type=Path)
    parser.add_argument("--connections", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--files", type=int, default=1024)
    parser.add_argument("--pause", type=float, default=1.0)
    parser.add_argument("--halves", action="store_true")
    parser.add_argument("--hold", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.hold is not None:
        hold(chosen.hold, chosen.connections, chosen.halves, chosen.pause)
        return
    with tempfile.TemporaryDirectory() as nothing:
        server = subprocess.Popen(
            [sys.executable, "-m", "steplens", "view", "--no-browser", str(chosen.capture or nothing)],
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (chosen.files, chosen.files)),
        )
        assert server.stdout is not None
        found = re.search(r"127\.0\.0\.1:(\d+)/\?token=([\w-]+)", server.stdout.readline())
        assert found is not None
        port = int(found[1])
        try:
            print("| | connections opened | lost by the owner | median, ms | p95, ms | slowest, ms |")
            print("| --- | --- | --- | --- | --- | --- |")
            for count in (0, chosen.connections):
                command = [sys.executable, __file__, "--hold", str(port), "--connections", str(count)]
                command += ["--pause", str(chosen.pause)]
                with subprocess.Popen(
                    command + ["--halves"] * chosen.halves, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                ) as strangers:
                    kept, new, lost = owner(port, found[2], chosen.seconds if count else 5)
                    assert strangers.stdin is not None
                    assert strangers.stdout is not None
                    strangers.stdin.close()
                    opened = strangers.stdout.read().strip()
                print(f"| {count:,} strangers, the owner's kept connection | {opened} | {lost} | {told(kept)} |")
                print(f"| the same, a new connection each time | | | {told(new)} |", flush=True)
        finally:
            server.send_signal(2)
            server.wait(60)


if __name__ == "__main__":
    main()
