"""One recorded span of steps."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steplens.collect.common.spare_files import SpareFiles
from steplens.collect.pytorch.window_recorders import WindowRecorders
from steplens.collect.torch_internals.gc_detector import GcDetector
from steplens.collect.torch_internals.modules import ModuleHooks


@dataclass
class Window:
    """One recorded span of steps and its run directory."""

    run_directory: Path
    first_step: int
    start_ns: int
    start_monotonic_ns: int
    trace_id: str
    rank: int
    owner: int
    process: int
    #: the same thread as ``owner``, whose number another thread may get when it has ended
    thread: threading.Thread
    kineto: Any = None
    #: Kineto's result of a closed window, for what is not saved with it (``collect.torch_internals.memory_categories``)
    results: Any = None
    #: its events as PyTorch lists them, once somebody has asked (``collect.torch_internals.torch_events``)
    events: Any = None
    #: whether the thread that ended it held its recording; None before it ends
    held: bool | None = None
    #: what saving it needs
    spare: SpareFiles | None = None
    #: why its recording could not be ended, behind a colon
    reason: str = ""
    #: where its trace is written until it is complete
    unfinished: Path | None = None
    #: what became of it, a value of ``state`` in its state file; empty until that is known
    outcome: str = ""
    #: the findings for its state file, once they are complete
    findings: list[dict[str, Any]] | None = None
    #: the program's handler was called with it
    handed_over: bool = False
    recording: bool = False
    started: bool = False
    failed: bool = False
    last_step: int | None = None
    #: it begins where a step does and ends where one does, so that no step of it was cut
    whole_steps: bool = False
    #: the backward pass inside of which it began, see ``collect.torch_internals.backward``
    began_in: int = -1
    end_ns: int = 0
    end_monotonic_ns: int = 0
    modules: ModuleHooks | None = None
    gc: GcDetector | None = None
    recorders: WindowRecorders | None = None
    #: what threads of the program that asked to be recorded join
    threads: Any = None
    counters: dict[str, int] = field(default_factory=dict)
