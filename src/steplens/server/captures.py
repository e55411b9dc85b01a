"""Captures of a training that runs: what its processes do, and asking them to record a few steps.

The server knows no collector. What asks the processes is given to it (``Control``), by the command that starts it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field

from steplens.server.http.errors import Refusal, path_text
from steplens.server.http.routing import create_router
from steplens.server.requests import Chosen
from steplens.server.runs import OpenedRun

router = create_router("/api/runs/{run}/captures", "live")

#: requests of one process that are told, the newest
_MOST_REQUESTS = 20
#: states of a process that records nothing more
_ENDED = ("exited", "killed")
#: processes that are told
_MOST_PROCESSES = 1024


class Control(Protocol):
    """Knows the trainings that watch folders."""

    def folder(self, run: Path) -> Path | None:
        """The folder at or directly below ``run`` in which a training looks for requests; None without one."""

    def processes(self, folder: Path) -> Sequence[Mapping[str, Any]]:
        """What the processes that watch a folder do; fields as ``Process`` has them."""

    def ask(self, folder: Path, changes: Mapping[str, Any]) -> str:
        """Ask for a capture and return the request's id; ``changes`` differ from what the folder's configuration says.

        Raises:
            SteplensError: it cannot be asked for.
        """


class CaptureRequest(BaseModel):
    """What became of one request in one process.

    Attributes:
        id: of the request; the same in all processes.
        state: "seen", "scheduled", "recording", "saving", "done", "failed", "refused", "missed" or "superseded".
        first_step: that is recorded, null where not known yet.
        last_step: the one behind the last.
        reason: why it ended early, or took no part.
        result: the run directory; empty without one.
        analysed: whether it can be opened.
    """

    id: str
    state: str
    first_step: int | None
    last_step: int | None
    reason: str
    result: str
    analysed: bool


class Process(BaseModel):
    """One process that watches the folder.

    Attributes:
        pid: of the process.
        rank: in its job; -1 when it is no distributed job.
        program: the script.
        state: "waiting", "idle", "ready", "recording", "saving", "exited" or "killed".
        step: the step that runs; null before the first.
        step_age_ns: how long it has run; null when unknown.
        eligible: whether it can capture now.
        why_not: why it cannot.
        problem: what is wrong with its configuration file.
        recorded: steps of the running capture that have ended, negative while it warms up; null without one.
        wanted: how many there are to be.
        requests: oldest first.
    """

    pid: int
    rank: int
    program: str
    state: str
    step: int | None
    step_age_ns: int | None
    eligible: bool
    why_not: str
    problem: str
    recorded: int | None
    wanted: int | None
    requests: list[CaptureRequest]


class Captures(BaseModel):
    """The trainings that write into this run.

    Attributes:
        folder: where requests are left; null where no training watches.
        processes: ordered by rank and process id.
    """

    folder: str | None
    processes: list[Process]


class Wanted(BaseModel):
    """What to record."""

    model_config = ConfigDict(extra="forbid")

    steps: Annotated[int, Field(ge=1, le=1000)] = 1
    warmup: Annotated[int, Field(ge=0, le=1000)] = 0
    analyse: bool = True
    record: Annotated[
        list[Literal["record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules"]], Field(max_length=5)
    ] = []
    ranks: Annotated[list[Annotated[int, Field(ge=0, le=1 << 20)]], Field(max_length=1024)] | None = None


class Asked(BaseModel):
    """The request that was left."""

    request: str
    folder: str


@router.get("")
def captures(chosen: Chosen, request: Request) -> Captures:
    """What the processes do that watch this run's folder, and what became of requests for captures."""
    watched = watched_folder(chosen, request)
    if watched is None:
        return Captures(folder=None, processes=[])
    control, folder = watched
    processes_told = control.processes(folder)[:_MOST_PROCESSES]
    processes = [
        Process.model_validate({**process, "requests": process["requests"][-_MOST_REQUESTS:]}) for process in processes_told
    ]
    return Captures(folder=path_text(folder), processes=processes)


@router.post("")
def ask_for_capture(chosen: Chosen, request: Request, wanted: Wanted) -> Asked:
    """Ask a running training to record its next steps into this run's folder."""
    watched = watched_folder(chosen, request)
    if watched is None:
        raise Refusal(
            409,
            "no training watches this folder",
            path_text(chosen.path),
            "Start the training with PROF_CONFIG_PATH set to this folder, or to a folder in it",
        )
    control, folder = watched
    if not any(process["eligible"] for process in control.processes(folder)):
        raise Refusal(409, "no process of the training can capture now", path_text(folder), "The page says why of each process")
    changes: dict[str, Any] = {
        "start_step": -1,
        "active": wanted.steps,
        "warmup": wanted.warmup,
        "analyse": wanted.analyse,
        "async_mode": True,
        # what is recorded arrives where it is looked for
        "prof_dir": str(chosen.path.resolve()),
        **dict.fromkeys(wanted.record, True),
    }
    if wanted.ranks is not None:
        changes |= {"is_rank": True, "rank_list": wanted.ranks}
    return Asked(request=control.ask(folder, changes), folder=path_text(folder))


def is_watched(chosen: OpenedRun, request: Request) -> bool:
    """Whether a process that runs now watches this run's folder; the configuration of a job that ended may still lie there."""
    watched = watched_folder(chosen, request)
    return watched is not None and any(process["state"] not in _ENDED for process in watched[0].processes(watched[1]))


def watched_folder(chosen: OpenedRun, request: Request) -> tuple[Control, Path] | None:
    """Who knows the training that watches this run's folder, and the folder in which it does; None without one."""
    control: Control | None = getattr(request.app.state, "captures", None)
    folder = control.folder(chosen.path) if control is not None and chosen.path.is_dir() else None
    # a link may lead elsewhere, where this run has no business
    if control is None or folder is None or not folder.resolve().is_relative_to(chosen.path.resolve()):
        return None
    return control, folder
