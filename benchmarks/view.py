"""``steplens view`` as a process of its own, and a client that asks it (part of ``timeline.py``)."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from large import tree

_TICKS = os.sysconf("SC_CLK_TCK")
_POLL_S = 0.02
#: how the command line is run
VIEW = ("-m", "steplens")


class View:
    """``steplens view`` and a client of it.

    Attributes:
        started: when the command was started, seconds of ``time.perf_counter``.
        link_s: how long it took to print its link.
        link: with the token.
    """

    def __init__(self, path: Path) -> None:
        self.started = time.perf_counter()
        command = [sys.executable, *VIEW, "view", "--no-browser", str(path)]
        # a user's Python keeps the byte code of what it imports
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment = {**inherited, "PYTHONUNBUFFERED": "1", "COLUMNS": "200"}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert self.process.stdout is not None
        found = re.search(r"http://([\d.:]+)/\?token=([\w-]+)", self.process.stdout.readline())
        assert found is not None
        self.link_s = time.perf_counter() - self.started
        self.link = found[0]
        self.connection = http.client.HTTPConnection(found[1], timeout=600)
        self.headers = {"Authorization": f"Bearer {found[2]}", "Content-Type": "application/json"}
        self.slowest_ms = 0.0
        self.peak_mb = 0.0
        self._watching = threading.Event()
        self._watcher = threading.Thread(target=self._watch, args=(found[1],), daemon=True)
        self._watcher.start()

    def _watch(self, address: str) -> None:
        """Ask how far it is ten times a second, as a page does, and look at its memory, until ``close``."""
        connection = http.client.HTTPConnection(address, timeout=600)
        while not self._watching.wait(0.1):
            begin = time.perf_counter()
            connection.request("GET", "/api/session", headers=self.headers)
            connection.getresponse().read()
            self.slowest_ms = max(self.slowest_ms, (time.perf_counter() - begin) * 1000)
            self.peak_mb = max(self.peak_mb, own_mb(self.process.pid))

    def ask(self, path: str, body: Any = None, **parameters: Any) -> tuple[float, bytes]:
        """Milliseconds until the whole answer is there, and the answer."""
        address = f"{path}?{urlencode(parameters)}" if parameters else path
        begin = time.perf_counter()
        if body is None:
            self.connection.request("GET", address, headers=self.headers)
        else:
            self.connection.request("POST", address, json.dumps(body).encode(), self.headers)
        answer = self.connection.getresponse()
        content = answer.read()
        taken = (time.perf_counter() - begin) * 1000
        if answer.status != 200:
            raise RuntimeError(f"{address}: {answer.status} {content[:300]!r}")
        return taken, content

    def wait(self, ready: Any) -> float:
        """Seconds since the start of the command until the run's progress is as wanted."""
        while not ready(json.loads(self.ask("/api/runs/0")[1])["progress"]):
            time.sleep(_POLL_S)
        return time.perf_counter() - self.started

    @property
    def cpu_s(self) -> float:
        """Processor time of the server and what it started, so far."""
        return sum(cpu_s(pid) for pid in tree(self.process.pid))

    def close(self) -> None:
        """End it as Ctrl-C does."""
        self._watching.set()
        self._watcher.join()
        self.process.send_signal(2)
        self.process.communicate(timeout=60)


def cpu_s(pid: int) -> float:
    """Processor time of a process and of its children that have ended, s; 0 where it is gone."""
    try:
        times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]
    except OSError:
        return 0.0
    return sum(map(int, times)) / _TICKS


def own_mb(pid: int) -> float:
    """Memory of a process and all below it without mapped files, which the system can take back at any time, MB."""
    total = 0.0
    for one in tree(pid):
        try:
            status = Path(f"/proc/{one}/status").read_text()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon")) / 1e3
    return total
