"""One side of a comparison as figures: all that a comparison rests on, whether its recordings are there or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import polars as pl

from steplens.common.errors import InputError
from steplens.comparison.call_tree import CallPaths
from steplens.comparison.causes.cause_side import CauseSource
from steplens.comparison.circumstances import Circumstances
from steplens.comparison.noise import LEAST_STEPS, Sample
from steplens.comparison.recordings import Recording
from steplens.run import Run


class Figures(Protocol):
    """Figures of a side that cost something, each worked out when it is first asked for. Times and calls are per step.

    Steps are the chosen ones of all recordings; where there are none, sums are of the whole recordings.
    """

    @property
    def operator_rows(self) -> pl.DataFrame:
        """Operators: name, calls, self_ns."""

    @property
    def shape_rows(self) -> pl.DataFrame | None:
        """Operators by shapes of their inputs: name, input_shapes, calls, self_ns; None where a trace has not recorded shapes."""

    @property
    def task_rows(self) -> pl.DataFrame:
        """Device tasks: name, calls, total_ns; where there is no accelerator these are operator calls."""

    @property
    def call_paths(self) -> CallPaths:
        """Operators by call path, with their calls, self time and device time."""

    @property
    def memory_peaks(self) -> Sequence[int | None]:
        """Of each recording the most memory allocated on a device, bytes; None where that was not recorded."""

    @property
    def held_memory(self) -> Sequence[pl.DataFrame | None]:
        """Of each recording what holds memory at its peak (``held_memory.measure_peak``); None where that was not recorded."""

    @property
    def cause_source(self) -> CauseSource | None:
        """What tells the causes of a change; None of a baseline that an earlier steplens saved, as of memory."""

    def sample_times(self, time: str, name: str) -> Sequence[Sample]:
        """The time of an operator or a device task per usual step, ns, of each recording with such and with steps.

        Args:
            time: ``item_times.SELF`` or ``DEVICE`` of operators, or ``TASK``.
            name: of the operator or task; one that a recording has not took 0 there.
        """

    def all_samples(self, time: str) -> Sequence[Mapping[str, Sample] | None]:
        """``sample_times`` of all that took any time, by name, of each recording; None of one in which there are no such items.

        Args:
            time: as for ``sample_times``.
        """


@dataclass(frozen=True)
class Side:
    """One of the sides.

    Attributes:
        path: what was opened.
        recordings: the times that the program ran, those with ``LEAST_STEPS`` steps; where none has, those with any.
        step_ns: the usual step: the median of each recording, over several their geometric mean; None without steps.
        has_device: whether anything ran on an accelerator.
        circumstances: how it was recorded.
        figures: the rest.
        run: the run, where the recordings are there.
    """

    path: Path
    recordings: tuple[Recording, ...]
    step_ns: float | None
    has_device: bool
    circumstances: Circumstances
    figures: Figures
    run: Run | None = None

    @property
    def step_count(self) -> int:
        """Over how many steps, those of all recordings."""
        return sum(recording.steps.height for recording in self.recordings)

    @property
    def too_few_steps(self) -> InputError | None:
        """What to say of a side with too few steps; its operators and tasks can be compared all the same."""
        if self.recordings and self.recordings[0].steps.height >= LEAST_STEPS:
            return None
        count_text = "no steps" if not self.step_count else "one step" if self.step_count == 1 else f"{self.step_count} steps"
        return InputError(
            self.path,
            f"has {count_text}, and {LEAST_STEPS} are the least that tell whether a step became longer",
            "Record more steps, and mark each with step() (docs/recording.md)",
        )
