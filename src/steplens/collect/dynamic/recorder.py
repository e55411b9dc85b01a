"""The capture that runs, from its first step to its result."""

from __future__ import annotations

import time
from collections.abc import Callable

from steplens.collect.dynamic.job.ledger import Ledger
from steplens.collect.dynamic.plan import DONE, FAILED, RECORDING, SAVING, Capture, Form, Plan, Request


class Recorder:
    """Carries out one request after the other.

    Args:
        form: makes captures.
        ledger: is told what becomes of requests.
        on_change: called when something happens that takes time, so that others may know.
    """

    def __init__(self, form: Form, ledger: Ledger, on_change: Callable[[], None]) -> None:
        self._form = form
        self._ledger = ledger
        self._on_change = on_change
        self._capture: Capture | None = None
        self._remaining = 0
        #: the request that is being carried out
        self.current: Request | None = None
        #: the step in which nothing is recorded any more; 0 without a capture
        self.busy_until = 0

    def begin(self, request: Request, plan: Plan, step: int) -> None:
        """Begin to record at the start of ``step``."""
        try:
            obstacle = self._form.obstacle()
            if obstacle:
                self._ledger.end(request, FAILED, obstacle)
                return
            self._capture = self._form.capture(plan, step)
        except Exception as error:  # whatever a framework says, the training goes on
            self._ledger.end(request, FAILED, f"{type(error).__name__}: {error}")
            return
        self.current = request
        self._remaining = plan.steps
        self.busy_until = step + plan.steps
        request.state, request.began_ns = RECORDING, time.time_ns()
        directory = self._capture.directory
        request.result = str(directory) if directory is not None else ""
        warmup = f" after {request.warmup} to warm up" if request.warmup else ""
        self._ledger.say(f"recording {request.recorded_steps()}{warmup}")

    def step(self) -> None:
        """A step has ended."""
        capture, request = self._capture, self.current
        if capture is None or request is None:
            return
        self._remaining -= 1
        problem = ""
        if self._remaining == 0:
            request.state = SAVING
            self._on_change()
        try:
            capture.step()
        except Exception as error:  # the boundary to the framework
            problem = f"{type(error).__name__}: {error}"
        if problem or self._remaining == 0:
            self._finish_capture(capture, request, problem)

    def cut_short(self, step: int, reason: str) -> None:
        """End the capture that runs in the middle of ``step``."""
        if self._capture is not None and self.current is not None:
            self.current.stop_step = step + 1
            self._ledger.complain(f"the capture ends {self._remaining} steps early: {reason}.")
            self._finish_capture(self._capture, self.current, "", f"ended {self._remaining} steps early: {reason}")

    def _finish_capture(self, capture: Capture, request: Request, problem: str, remark: str = "") -> None:
        try:
            outcome = capture.finish()
            request.result = str(outcome.directory or request.result)
            problem = problem or outcome.problem
        except Exception as error:  # the boundary to the framework
            problem = problem or f"{type(error).__name__}: {error}"
        self._capture = self.current = None
        self._remaining = self.busy_until = 0
        self._ledger.end(request, FAILED if problem else DONE, problem or remark)
        if not problem:
            self._ledger.say(f"recorded {request.result}")
