"""``steplens status``: the processes of a running job, whether they can capture, and what became of requests."""

from __future__ import annotations

import dataclasses
import shlex
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from steplens.cli.line.arguments import JobPath, Json
from steplens.cli.text.text import console, duration, plain, print_json
from steplens.collect.dynamic import client
from steplens.collect.dynamic.client import Participant
from steplens.collect.dynamic.job import job_folder
from steplens.collect.dynamic.plan import DONE, RECORDING, SAVING, SCHEDULED, SEEN, steps_text
from steplens.common import rundir
from steplens.common.errors import InputError

#: requests that are shown, the newest
_SHOWN_REQUESTS = 5
#: so long after its status the completion marker of an analysis follows, if it does
_ENDED_S = 2.0

_COLOURS = {"recording": "green", "saving": "green", "ready": "cyan", "killed": "red", "waiting": "yellow", "exited": "dim"}


def status(
    path: JobPath,
    json: Json = False,
) -> None:
    """Say what the processes that watch PATH do: step, state, whether they can capture, and where captures went.

    Only processes on this machine are shown. A job watches PATH when it was started with PROF_CONFIG_PATH or calls
    steplens.dynamic_profile.init.
    """
    directory = existing_directory(path)
    participants = client.find_participants(directory)
    if json:
        print_json({"path": str(directory), "processes": [describe_process(item) for item in participants]})
        return
    out = console()
    out.print(plain(directory, "bold"), soft_wrap=True)
    if not participants:
        out.print(plain("no process on this machine watches this folder"))
        out.print(plain(f"next: PROF_CONFIG_PATH={shlex.quote(str(directory))} python SCRIPT"), soft_wrap=True)
        return
    show_processes(out, participants)
    for id in request_ids(participants)[-_SHOWN_REQUESTS:]:
        out.print()
        show_request(out, id, participants)
    if any(item.eligible for item in participants):
        out.print()
        out.print(plain(f"next: steplens trigger {shlex.quote(str(path))} --steps 3"), soft_wrap=True)


def existing_directory(path: Path) -> Path:
    """The configuration folder that ``path`` means.

    Raises:
        InputError: there is none.
    """
    directory = job_folder.configuration_directory(path)
    if not directory.is_dir():
        raise InputError(path, "there is no such folder", "Give the folder of profiler_config.json")
    return directory


def describe_process(participant: Participant) -> dict[str, Any]:
    """A process as JSON has it."""
    values = {field.name: getattr(participant, field.name) for field in dataclasses.fields(participant)}
    values["process"] = {"pid": participant.process.pid, "start": participant.process.start}
    values["requests"] = [{**request, "analysed": is_analysed(request)} for request in participant.requests]
    return {"pid": participant.process.pid, **values}


def request_ids(found: list[Participant]) -> list[str]:
    """The requests that any process knows, oldest first."""
    counts: dict[str, int] = {}
    for participant in found:
        for request in participant.requests:
            id, when = request.get("id"), request.get("seen_ns")
            if isinstance(id, str) and isinstance(when, int):
                counts[id] = min(when, counts.get(id, when))
    return sorted(counts, key=counts.__getitem__)


def show_processes(out: Console, found: list[Participant]) -> None:
    """The table of processes; those that have only imported PyTorch are counted."""
    idle = [item for item in found if item.bystander]
    listed = [item for item in found if item not in idle] or found
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("rank", "pid", "step", "since", "state"):
        table.add_column(title, justify="right" if title != "state" else "left", no_wrap=True)
    table.add_column("can capture")
    for item in listed:
        table.add_row(
            plain(item.rank if item.rank >= 0 else "-"),
            plain(item.process.pid),
            plain("-" if item.step is None else item.step),
            plain("-" if item.step_age_ns is None else duration(max(item.step_age_ns, 0))),
            plain(state_text(item), _COLOURS.get(item.state, "")),
            plain("yes" if item.eligible else f"no: {item.why_not}", "" if item.eligible else "yellow"),
        )
    out.print(table)
    if len(listed) < len(found):
        pids = ", ".join(str(item.process.pid) for item in idle)
        subject = "process that imports" if len(idle) == 1 else "processes that import"
        out.print(plain(f"and {len(idle)} {subject} PyTorch without an optimizer: {pids}", "dim"), soft_wrap=True)
    for problem in dict.fromkeys(item.problem for item in found if item.problem and item.alive):
        out.print(plain(problem, "yellow"), soft_wrap=True)
    for item in found:
        if item.watches and not item.answered:
            text = f"process {item.process.pid} gave no answer (it may be stopped or busy); what it wrote down before is shown"
            out.print(plain(text, "yellow"), soft_wrap=True)


def state_text(item: Participant) -> str:
    """What a process does, with how far it is."""
    if item.progress is None:
        return item.state
    done, total = item.progress
    if item.state != "recording":
        return item.state
    return f"{item.state} {done + 1}/{total}" if done >= 0 else "warming up"


def show_request(out: Console, id: str, found: list[Participant]) -> None:
    """What became of a request, per process."""
    requests = [(item, request) for item in found if (request := item.request(id)) is not None]
    origin = next((str(request.get("origin")) for _, request in requests), "")
    out.print(plain(f"request {id} by {origin}", "bold"), soft_wrap=True)
    for item, request in requests:
        who = f"rank {item.rank} " if item.rank >= 0 else ""
        out.print(plain(f"  {who}pid {item.process.pid}: {request_text(item, request)}"), soft_wrap=True)
    lists = [texts for _, request in requests if isinstance(texts := request.get("warnings"), list)]
    for warning in dict.fromkeys(text for texts in lists for text in texts if isinstance(text, str)):
        out.print(plain(f"  {warning}", "yellow"), soft_wrap=True)


def request_text(item: Participant, request: Any) -> str:
    """What became of a request in one process, as a phrase."""
    state, steps = str(request.get("state")), ""
    start, warmup, stop = (request.get(name) for name in ("start_step", "warmup", "stop_step"))
    if isinstance(start, int) and isinstance(warmup, int) and isinstance(stop, int) and stop > start + warmup:
        steps = steps_text(start + warmup, stop)
    reason = str(request.get("reason") or "")
    result = str(request.get("result") or "")
    if not item.alive and state in (SEEN, SCHEDULED, RECORDING, SAVING):
        return f"{item.state} while {state}" + (f", what there is lies in {result}" if result else "")
    if state == SEEN:
        return "seen, begins when a step ends" if item.step is not None else f"seen, but {item.why_not}"
    if state == SCHEDULED:
        return f"will record {steps}, step {item.step} runs"
    if state in (RECORDING, SAVING):
        return f"{state} {steps}"
    if state == DONE:
        analysed = " (analysed)" if is_analysed(request) else " (raw)"
        return f"recorded {steps} in {result}{analysed}" + (f"; {reason}" if reason else "")
    return f"{state}: {reason}"


def is_analysed(request: Any) -> bool:
    """Whether the results of a request are complete."""
    result = request.get("result")
    if not isinstance(result, str) or not result or "\0" in result:
        return False
    return (Path(result) / rundir.OUTPUT_DIRECTORY / rundir.COMPLETION_MARKER).is_file()


def has_failed(request: Any) -> bool:
    """Whether the analysis of a request has ended without complete results; it writes its status last but one."""
    status = Path(str(request.get("result"))) / rundir.OUTPUT_DIRECTORY / rundir.STATUS_FILE
    try:
        age_s = time.time() - status.stat().st_mtime
    except (OSError, ValueError):
        return False
    return age_s > _ENDED_S and not is_analysed(request)
