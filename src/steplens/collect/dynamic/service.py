"""The thread that watches the configuration and answers questions about the process, also while a step takes minutes."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from steplens.collect.dynamic.job import job_folder
from steplens.collect.dynamic.job.process import Process
from steplens.collect.dynamic.plan import EDIT, TRIGGER
from steplens.collect.dynamic.watched_file import Change, WatchedFile
from steplens.common import json_text

#: how often the files are looked at; a trigger is told of at once
POLL_S = 0.2
#: the same while a capture runs, when a change would wait anyway
POLL_RECORDING_S = 0.5
#: on slow storage looking takes at most this share of the time
_SHARE = 0.01
_SLOWEST_POLL_S = 2.0
_UNSETTLED_S = 0.01

_LARGEST_QUESTION = 1 << 16
_ANSWER_S = 1.0

ASK_STATUS = "status"
#: look at the files now, then answer
ASK_LOOK = "look"


class RequestReceiver(Protocol):
    """Whom the service works for: gets requests, and answers questions about the process."""

    directory: Path
    process: Process
    #: the folder in which the processes of the job meet; None where there is none
    job_folder: Path | None

    @property
    def capturing(self) -> bool:
        """Whether a capture is running."""

    def offer(self, id: str, origin: str, document: Mapping[str, Any]) -> None:
        """A request was found."""

    def cannot_read(self, name: str, problem: str) -> None:
        """A file does not hold what it should."""

    def failed(self, what: str, error: BaseException) -> None:
        """Something went wrong in here."""

    def record(self) -> dict[str, Any]:
        """What others may know about this process."""


class Service:
    """Watches and answers for one agent, which gets the requests and gives the answers."""

    def __init__(self, agent: RequestReceiver) -> None:
        self._agent = agent
        self._edit = WatchedFile(agent.directory / job_folder.CONFIGURATION_FILE)
        self._trigger = WatchedFile(agent.directory / job_folder.REQUEST_FILE, settle=False)
        self._socket: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._wake, self._awake = os.pipe()
        self._stopping = threading.Event()
        self._took_s = 0.0

    def first_look(self) -> None:
        """Take the configuration as it stands; a trigger from before our time is not for us."""
        change = self._edit.poll(settle=False)
        if change is not None:
            self._report(change, EDIT)
        self._trigger.poll(settle=False)

    def start(self) -> None:
        """Begin to watch.

        Raises:
            OSError, RuntimeError: there is no socket or no thread to be had.
        """
        if self._agent.job_folder is not None:
            self._socket = _open_socket(self._agent.job_folder / f"{self._agent.process.name}{job_folder.SOCKET_SUFFIX}")
        self._thread = threading.Thread(target=self._serve_until_stopped, name="steplens dynamic", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
        with contextlib.suppress(OSError):
            os.write(self._awake, b".")
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=2.0)
        self.abandon()

    def abandon(self) -> None:
        """Close what we hold; all that a forked child may do."""
        if self._socket is not None:
            self._socket.close()
        for descriptor in (self._wake, self._awake):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._wake = self._awake = -1

    # --- the thread

    def _serve_until_stopped(self) -> None:
        poller = select.poll()
        poller.register(self._wake, select.POLLIN)
        if self._socket is not None:
            poller.register(self._socket, select.POLLIN)
        while not self._stopping.is_set():
            try:
                ready = poller.poll(self._pause_s() * 1000)
                if self._agent.capturing:
                    # A capture with stacks traces every thread; what this one does is none of its business.
                    sys.setprofile(None)
                if self._stopping.is_set():
                    return
                if self._socket is not None and ready:
                    self._serve_connection(self._socket)
                self._poll_files()
            except Exception as error:  # the thread must outlive whatever one file or one question does to it
                if self._stopping.is_set():
                    return
                self._agent.failed("watching", error)
                time.sleep(POLL_S)

    def _pause_s(self) -> float:
        if self._edit.unsettled or self._trigger.unsettled:
            return _UNSETTLED_S
        pause = POLL_RECORDING_S if self._agent.capturing else POLL_S
        return min(max(pause, self._took_s / _SHARE), _SLOWEST_POLL_S)

    def _poll_files(self) -> None:
        begin = time.monotonic()
        changes = ((self._edit.poll(), EDIT), (self._trigger.poll(), TRIGGER))
        self._took_s = time.monotonic() - begin
        for change, origin in changes:
            if change is not None:
                self._report(change, origin)

    def _report(self, change: Change, origin: str) -> None:
        name = job_folder.CONFIGURATION_FILE if origin == EDIT else job_folder.REQUEST_FILE
        if change.document is None:
            # There is no request file before the first trigger.
            if origin == EDIT or change.id:
                self._agent.cannot_read(name, change.problem)
        elif origin == EDIT:
            self._agent.offer(change.id, origin, change.document)
        else:
            id, configuration = change.document.get("id"), change.document.get("configuration")
            if isinstance(id, str) and 0 < len(id) <= 64 and isinstance(configuration, dict):
                self._agent.offer(id, origin, configuration)
            else:
                self._agent.cannot_read(name, "does not hold a request of steplens trigger")

    # --- answers

    def _serve_connection(self, listening: socket.socket) -> None:
        try:
            connection, _ = listening.accept()
        except (BlockingIOError, ConnectionError):
            return
        with connection:
            connection.settimeout(_ANSWER_S)
            if not job_folder.peer_is_allowed(connection):
                return
            with contextlib.suppress(OSError, ValueError):
                if _read_question(connection.recv).get("ask") == ASK_LOOK:
                    self._poll_files()
                connection.sendall(json.dumps(self._agent.record(), default=str).encode() + b"\n")


def _open_socket(path: Path) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    try:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        with job_folder.socket_address(path) as address:
            listening.bind(address)
        listening.listen(64)
    except OSError:
        listening.close()
        raise
    return listening


def _read_question(receive: Callable[[int], bytes]) -> dict[str, Any]:
    text = b""
    while b"\n" not in text and len(text) <= _LARGEST_QUESTION:
        piece = receive(4096)
        if not piece:
            break
        text += piece
    value = json_text.loads(text)
    return value if isinstance(value, dict) else {}
