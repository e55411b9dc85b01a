"""One recorded span of steps."""

from __future__ import annotations

import contextlib
import importlib
import os
import threading
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from steplens.collect.pytorch.window_recorders import WindowRecorders

#: saving has no more than this many open at a time
_SPARE_FILES = 8


class SpareFiles:
    """Open files that are held until a window is saved, because its program may have used up by then all that it may have.

    None where there are none left.
    """

    def __init__(self) -> None:
        self._descriptors: list[int] = []
        with contextlib.suppress(OSError):
            self._descriptors.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            while len(self._descriptors) < _SPARE_FILES:
                self._descriptors.append(os.dup(self._descriptors[0]))

    def give_back(self) -> None:
        """Close them."""
        while self._descriptors:
            os.close(self._descriptors.pop())

    def __del__(self) -> None:
        self.give_back()


class WindowState(Enum):
    """How far the recording of a window is."""

    OPEN = "open"
    #: nothing is recorded in it
    FAILED = "failed"
    RECORDING = "recording"
    STOPPED = "stopped"


@dataclass
class Span:
    """Which steps a window holds, and when it was recorded: Unix and monotonic ns; it begins where recording does."""

    first_step: int
    start_ns: int
    start_monotonic_ns: int
    last_step: int | None = None
    #: it begins where a step does and ends where one does, so that no step of it was cut
    whole_steps: bool = False
    end_ns: int = 0
    end_monotonic_ns: int = 0
    #: of each thread when recording began, and what all of them ran and waited until it ended (``processor_times``)
    thread_times: dict[str, tuple[int, int]] = field(default_factory=dict)
    processor_time: dict[str, int] | None = None


@dataclass
class Saving:
    """How far a window is on its way to the disk; what an interrupt cut off is taken up from here."""

    #: what saving needs where files have run out
    spare: SpareFiles | None = None
    #: where the trace is written until it is complete
    unfinished: Path | None = None
    #: what became of it, a value of ``state`` in the state file; empty until that is known
    outcome: str = ""
    #: the findings for the state file, once they are complete
    findings: list[dict[str, Any]] | None = None
    #: the program's handler was called with it
    handed_over: bool = False


@dataclass
class Window:
    """One recorded span of steps and its run directory."""

    run_directory: Path
    span: Span
    trace_id: str
    rank: int
    process: int
    #: where it records; not its number, which another thread may get when it has ended
    thread: threading.Thread
    state: WindowState = WindowState.OPEN
    saving: Saving = field(default_factory=Saving)
    #: PyTorch's object that records; None before its warmup, and when its result is saved or given up
    kineto: Any = None
    #: what steplens' own recorder says of the file that it has completed
    totals: Any = None
    #: what threads of the program that asked to be recorded join
    threads: Any = None
    #: any thread can end its recording
    ends_anywhere: bool = False
    #: made when the window has its run directory
    recorders: WindowRecorders = field(init=False)
    #: the backward pass inside of which it began, see ``collect.torch_internals.backward``
    began_in: int = -1
    #: whether the thread that ended it held its recording; None before it ends
    held: bool | None = None
    #: why its recording could not be ended, behind a colon
    reason: str = ""
    #: Kineto's result of a closed window, for what is not saved with it (``collect.torch_internals.memory_categories``)
    results: Any = None
    #: its events as PyTorch lists them, once somebody has asked (``collect.torch_internals.torch_events``)
    events: Any = None
    #: what it has cost the training, ns by part, and the bytes of its trace
    counters: dict[str, int] = field(default_factory=dict)

    @property
    def recording(self) -> bool:
        """Whether it records."""
        return self.state is WindowState.RECORDING

    @property
    def started(self) -> bool:
        """Whether it has recorded something, or does."""
        return self.state in (WindowState.RECORDING, WindowState.STOPPED)

    def can_be_ended(self) -> bool:
        """Whether the calling thread can end its recording, which PyTorch keeps with the thread that began it."""
        autograd: Any = importlib.import_module("torch.autograd")
        return bool(self.ends_anywhere or autograd._profiler_enabled())

    @property
    def failed(self) -> bool:
        """Whether nothing is recorded in it."""
        return self.state is WindowState.FAILED
