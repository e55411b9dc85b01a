"""What a summary shows, as rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    import polars as pl


class FrameRows(Sequence[dict[str, Any]]):
    """The rows of a frame, each made when it is looked at: those of thousands of ranks take ten times what the frame does."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self._frame = frame

    def __len__(self) -> int:
        return self._frame.height

    @overload
    def __getitem__(self, place: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, place: slice) -> list[dict[str, Any]]: ...

    def __getitem__(self, place: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        return self._frame[place].to_dicts() if isinstance(place, slice) else self._frame.row(place, named=True)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self._frame.iter_rows(named=True)


@dataclasses.dataclass(frozen=True)
class Summary:
    """Everything the summary shows, as rows.

    Attributes:
        path: what the user asked for.
        verdict: what holds a step up: the fields of ``analysis.verdict.Verdict`` but its summary, and its ``sentence``.
        step: the figures of a step (``analysis.steps.summary``): step_time_ns, quartiles_ns, host_ns, device_ns, why these
            differ, of how many steps, of which (``of``), and every part of host and device, which are means over the steps
            ``usual`` and ``usual_on_device`` and add up to host_mean_ns and device_mean_ns.
        recorded_ranks: how many ranks of the job are here; job_ranks: how many it has, as far as the traces tell.
        unreadable: what could not be read of a folder: its path, the rank that its names say, and why (``problem``).
        rank_steps: where ranks spend their steps unlike each other, the same figures of two of them, with rank: of the one
            that the verdict names, else of the one that communicates the least, and of the one least like it.
        job: of a job of several ranks its ``layout``, the row of ``parallel_layout`` where it can be told, and ``bandwidths``: of
            some operations the row of ``bus_bandwidth`` of the messages that move most.
        phase_names: what the host called between its phases and while it waited for the device, in words.
        steps, memory, health: rows of the frames of the same name of ``Run``.
        operators: rows of ``Run.operators`` per step, by ``order`` from the largest on; only the first ones. Where ranks call
            different operators, those of the rank that the verdict names, which ``basis`` says.
        operator_count: how many such rows there are.
        order: ``self_ns`` on a CPU and where what the host does holds a step up, else ``device_self_ns``.
        self_ns, device_self_ns: these times of all of them, of which shares are made.
        basis: what the operators are of, in words: a mean of which steps.
        recorded: what operators can be grouped by with this data.
        results: folders of result files that are complete.
        unfinished: run directories whose results are not complete.
        advice: the first findings of ``advise`` that matter: id, level and one line of text.
        accelerator: whether device tasks ran on something other than the CPU.
        problem: why the picture is not whole, in one sentence; empty when it is.
        pipeline: rows of ``pipeline_rows``, of a data pipeline that was recorded.
    """

    path: str
    verdict: dict[str, Any]
    step: dict[str, Any]
    phase_names: list[dict[str, str]]
    steps: Sequence[dict[str, Any]]
    operators: list[dict[str, Any]]
    operator_count: int
    self_ns: float
    memory: list[dict[str, Any]]
    health: list[dict[str, Any]]
    recorded: list[str]
    results: list[str]
    unfinished: list[str]
    advice: list[dict[str, str]]
    accelerator: bool = False
    order: str = "self_ns"
    device_self_ns: float = 0.0
    basis: str = ""
    problem: str = ""
    pipeline: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    recorded_ranks: int = 0
    job_ranks: int = 0
    unreadable: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    rank_steps: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    job: dict[str, Any] = dataclasses.field(default_factory=dict)
