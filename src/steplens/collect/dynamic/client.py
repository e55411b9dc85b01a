"""The other side: what a command learns of the processes that watch a configuration folder, and how it asks them to capture."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import socket
import time
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from steplens.collect.dynamic.job import job_folder, shared_board
from steplens.collect.dynamic.job.process import Process
from steplens.collect.dynamic.service import ASK_LOOK, ASK_STATUS
from steplens.common import json_text, rundir

_ANSWER_S = 0.5
_LARGEST_ANSWER = 1 << 22
_AT_ONCE = 16

#: states of a process that has ended: by itself, or not
EXITED = "exited"
KILLED = "killed"


@dataclasses.dataclass(frozen=True)
class Participant:
    """One process that watches a configuration folder, or did.

    Attributes:
        process: which.
        rank: in its job; -1 when it is no distributed job.
        world_size: number of ranks, if known.
        program: the script.
        how: what made it watch.
        bystander: it has only imported the framework, and watches nothing yet.
        state: what it does, an element of ``shared_board.STATES``, or ``killed``.
        step: the step that runs; None before the first.
        step_age_ns: how long it has run; None when unknown.
        eligible: it can capture now.
        why_not: why it cannot; empty if it can.
        answered: it has answered; else this is what it wrote down before.
        problem: what is wrong with its configuration file.
        progress: recorded steps of the running capture that have ended (negative while it warms up), and how many there
            are to be; None without one.
        requests: what became of requests, oldest first, see ``plan.Request``.
        log: its log file.
        status: ``profiler_status``, ``current_step``, ``start_step`` and ``stop_step`` as monitors know them.
    """

    process: Process
    rank: int
    world_size: int | None
    program: str
    how: str
    bystander: bool
    state: str
    step: int | None
    step_age_ns: int | None
    eligible: bool
    why_not: str
    answered: bool
    problem: str
    progress: tuple[int, int] | None
    requests: tuple[Mapping[str, Any], ...]
    log: str
    status: Mapping[str, str]

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self.state not in (EXITED, KILLED)

    @property
    def watches(self) -> bool:
        """Whether it learns of requests."""
        return self.alive and not self.bystander

    def request(self, id: str) -> Mapping[str, Any] | None:
        """What became of a request; None if the process does not know it."""
        return next((request for request in self.requests if request.get("id") == id), None)


def find_participants(directory: Path, *, look: bool = False) -> list[Participant]:
    """All processes on this machine that watch a folder, dead ones of the last job too, ordered by rank and process id.

    Args:
        directory: the configuration folder.
        look: make each of them look at its files before it answers.
    """
    folders = job_folder.find_folders(directory)
    records = [(folder, owner, record) for folder in folders for owner, record in job_folder.read_records(folder)]
    if not records:
        return []
    with ThreadPoolExecutor(min(len(records), _AT_ONCE)) as pool:
        views = list(pool.map(lambda item: _query_participant(*item, look=look), records))
    listed = [view for view in views if view.alive or not view.bystander]
    return sorted(listed, key=lambda view: (view.rank, view.process.pid))


def _query_participant(folder: Path, owner: Process, record: Mapping[str, Any], *, look: bool) -> Participant:
    alive = owner.alive()
    answer = (
        _query_process(folder / f"{owner.name}{job_folder.SOCKET_SUFFIX}", ASK_LOOK if look else ASK_STATUS) if alive else None
    )
    answers = answer or record
    seat = next((seat for seat in shared_board.read_seats(folder, _text_field(answers, "group")) if seat.process == owner), None)
    state, why_not = _text_field(answers, "state"), _text_field(answers, "why_not")
    if not alive:
        state = EXITED if state == EXITED else KILLED
        why_not = "it ended without a word (killed, crashed or by os._exit)" if state == KILLED else "the program has ended"
    elif seat is not None and 0 <= seat.state < len(shared_board.STATES):
        state = shared_board.STATES[seat.state]
    step = seat.step if seat is not None and seat.step >= 0 else _optional_integer(answers, "step")
    requests = tuple(request for request in answers.get("requests", ()) if isinstance(request, dict))
    return Participant(
        process=owner,
        rank=_optional_integer(answers, "rank", -1) or 0,
        world_size=_optional_integer(answers, "world_size"),
        program=_text_field(answers, "program"),
        how=_text_field(answers, "how"),
        bystander=answers.get("bystander") is True,
        state=state,
        step=step,
        step_age_ns=time.monotonic_ns() - seat.step_ns if alive and seat is not None and seat.step_ns else None,
        eligible=alive and not why_not,
        why_not=why_not,
        answered=answer is not None,
        problem=_text_field(answers, "problem"),
        progress=_recording_progress(requests, step) if alive else None,
        requests=requests,
        log=_text_field(answers, "log"),
        status={name: _text_field(answers, name) for name in ("profiler_status", "current_step", "start_step", "stop_step")},
    )


def _recording_progress(requests: tuple[Mapping[str, Any], ...], step: int | None) -> tuple[int, int] | None:
    current = next((request for request in requests if request.get("state") in ("recording", "saving")), None)
    if current is None or step is None:
        return None
    start, warmup, stop = (_optional_integer(current, name) for name in ("start_step", "warmup", "stop_step"))
    if start is None or warmup is None or stop is None:
        return None
    return min(step, stop) - start - warmup, stop - start - warmup


def _text_field(answers: Mapping[str, Any], name: str) -> str:
    value = answers.get(name)
    return value if isinstance(value, str) else ""


def _optional_integer(answers: Mapping[str, Any], name: str, default: int | None = None) -> int | None:
    value = answers.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def _query_process(path: Path, question: str) -> dict[str, Any] | None:
    """A process's answer; None if it gives none in time, as when it is stopped or holds Python's lock."""
    limit = time.monotonic() + _ANSWER_S
    text = b""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection, job_folder.socket_address(path) as address:
            connection.settimeout(_ANSWER_S)
            connection.connect(address)
            connection.sendall(json.dumps({"ask": question}).encode() + b"\n")
            while not text.endswith(b"\n") and len(text) < _LARGEST_ANSWER:
                connection.settimeout(max(limit - time.monotonic(), 0.001))
                piece = connection.recv(1 << 16)
                if not piece:
                    break
                text += piece
        value = json_text.loads(text)
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def send_request(directory: Path, configuration: Mapping[str, Any]) -> tuple[str, list[Participant]]:
    """Ask all processes that watch a folder to capture, on every machine that shares it.

    Args:
        directory: the configuration folder.
        configuration: as in ``profiler_config.json``.

    Returns:
        the id of the request, and the processes of this machine after they have been told.

    Raises:
        OSError: the request cannot be written.
    """
    id = uuid.uuid4().hex[:12]
    target = directory / job_folder.REQUEST_FILE
    # A request that follows another at once must not take its place before it was seen.
    with _one_at_a_time(directory):
        rundir.write_json(target, {"id": id, "time_ns": time.time_ns(), "configuration": dict(configuration)}, indent=4)
        _give_to_owner(target, directory)
        return id, find_participants(directory, look=True)


@contextlib.contextmanager
def _one_at_a_time(directory: Path) -> Iterator[None]:
    folders = job_folder.find_folders(directory)
    if not folders:
        yield
        return
    descriptor = os.open(folders[0] / "trigger.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _give_to_owner(path: Path, directory: Path) -> None:
    """Root may ask another user's job, which must be able to read the request."""
    owner = directory.stat()
    if os.geteuid() == 0 and owner.st_uid != 0:
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
