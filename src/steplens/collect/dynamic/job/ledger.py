"""The requests a process knows, what became of them, and what it says about that."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from steplens.collect.common import log
from steplens.collect.dynamic.job.logs import Logs
from steplens.collect.dynamic.plan import DONE, ENDED, FAILED, MISSED, REFUSED, SUPERSEDED, Form, Plan, Request

#: requests that are kept for the status after they have ended
_KEPT = 16
#: a complaint is printed once, and not more than so many different ones
_COMPLAINTS = 20


class Ledger:
    """Keeps requests, and keeps the logs.

    Args:
        directory: the configuration folder.
        form: reads configurations.
        rank: of this process; may be set again when it becomes known.
    """

    def __init__(self, directory: Path, form: Form, rank: int) -> None:
        self.logs = Logs(directory, rank)
        self._directory = directory
        self._form = form
        self._rank = rank
        self._requests: dict[str, Request] = {}
        #: held while requests change; what others are told is consistent
        self.lock = threading.RLock()
        self._complaints: set[str] = set()

    @property
    def rank(self) -> int:
        """The rank of this process."""
        return self._rank

    @rank.setter
    def rank(self, rank: int) -> None:
        if rank != self._rank:
            self._rank = rank
            self.logs.close()
            self.logs = Logs(self._directory, rank)

    # --- requests

    def add(self, request: Request) -> bool:
        """Keep a request; False if it is known already."""
        with self.lock:
            if request.id in self._requests:
                return False
            request.seen_ns = time.time_ns()
            self._requests[request.id] = request
            ended = [id for id, item in self._requests.items() if item.state in ENDED]
            for id in ended[: max(len(self._requests) - _KEPT, 0)]:
                del self._requests[id]
            return True

    def get(self, id: str) -> Request | None:
        """A request by its id."""
        return self._requests.get(id)

    def plan(self, request: Request) -> Plan:
        """The plan of a request for this process, whose rank may only be known once the job has set itself up."""
        if request.plan is None or request.planned_for != self._rank:
            request.plan, request.planned_for = self._form.plan(request.document, self._rank), self._rank
            for warning in request.plan.warnings:
                if warning not in request.warnings:
                    self.logs.actions.warning("request %s: %s", request.id, warning)
                    log.warning(warning)
            request.warnings = request.plan.warnings
        return request.plan

    def end(self, request: Request, state: str, reason: str = "") -> None:
        """Nothing more happens to a request."""
        request.state, request.reason, request.ended_ns = state, reason, time.time_ns()
        if state == DONE:
            return
        level = self.logs.actions.error if state == FAILED else self.logs.actions.warning
        level("request %s %s: %s", request.id, state, reason)
        # That a rank is not asked is no news; a capture that fails is, on every rank.
        if state == FAILED:
            log.error(f"dynamic_profile: the capture failed: {reason}")
        elif state in (MISSED, SUPERSEDED) or (state == REFUSED and not (request.plan and request.plan.refusal)):
            log.warning(f"dynamic_profile: no capture: {reason}")

    def end_all(self, reason: str) -> None:
        """Nothing more happens to any request."""
        with self.lock:
            for request in self._requests.values():
                if request.state not in ENDED:
                    self.end(request, MISSED, reason)

    def records(self) -> list[dict[str, Any]]:
        """The requests as others may know them, oldest first."""
        with self.lock:
            return [request.record() for request in self._requests.values()]

    def states(self) -> list[tuple[str, str]]:
        """Ids and states, to see whether something has changed."""
        with self.lock:
            return [(request.id, request.state) for request in self._requests.values()]

    # --- messages

    def say(self, message: str) -> None:
        """Something was done."""
        self.logs.actions.info("%s", message)
        if self._rank <= 0:
            log.info(f"dynamic_profile: {message}")

    def complain(self, message: str) -> None:
        """Something has no effect."""
        self.logs.actions.warning("%s", message)
        log.warning(f"dynamic_profile: {message}")

    def failed(self, what: str, error: BaseException) -> None:
        """Something went wrong in here: say so once."""
        text = f"{what}: {type(error).__name__}: {error}"
        if text in self._complaints or len(self._complaints) >= _COMPLAINTS:
            return
        self._complaints.add(text)
        self.logs.actions.error("%s", text)
        log.report_failure(f"dynamic_profile ({what})", error)
