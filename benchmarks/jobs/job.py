"""A job from its description to its files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from benchmarks.jobs.clocks import clocks_of, step_clocks
from benchmarks.jobs.events import stage_events
from benchmarks.jobs.faults import Fault
from benchmarks.jobs.layout import Layout
from benchmarks.jobs.noise import Noise, stored_noise
from benchmarks.jobs.program import Model, stage_program
from benchmarks.jobs.recording import KINETO, Recorder
from benchmarks.jobs.simulation import Job, StageTimes
from benchmarks.jobs.truth import Truth

#: ns that recording goes on behind the last step
_BEHIND_NS = 5_000_000


def write_job(
    out: Path,
    layout: Layout,
    model: Model,
    faults: list[Fault],
    *,
    seed: int = 0,
    steps: int = 3,
    first_step: int = 10,
    form: str = KINETO,
    compressed: bool = False,
    bytes_per_rank: int | None = None,
    noise: Noise | None = None,
) -> int:
    """Write the traces of a job, and the truth beside them.

    Args:
        out: the folder.
        layout: of the job.
        model: what is trained.
        faults: that it has.
        seed: of all that is drawn.
        steps: how many are recorded.
        first_step: number of the first of them.
        form: KINETO or RUN.
        compressed: write files of Kineto's form with gzip.
        bytes_per_rank: take as many layers as make a file of about that size.
        noise: how durations vary; that of the stored job where it is left out.

    Returns:
        bytes of all traces, as they are before they are compressed.
    """
    if bytes_per_rank is not None:
        model = replace(model, layers=layers_for(layout, model, steps, bytes_per_rank))
    model = replace(model, batches=model.batches_on(layout))
    programs = [stage_program(model, layout, stage) for stage in range(layout.pipeline)]
    clocks = clocks_of(layout, faults)
    missing = {rank for fault in faults if fault.kind == "missing_ranks" for rank in fault.ranks}
    truth = Truth(layout)
    recorder = Recorder(out, layout, clocks, form, first_step=first_step, steps=steps, missing=missing, compressed=compressed)
    end_ns = 0
    for step, times in enumerate(Job(layout, programs, faults, noise or stored_noise(), seed).steps(steps)):
        step_clocks(clocks, faults, step, _middle(times))
        for program, of_stage in zip(programs, times, strict=True):
            recorder.add(stage_events(program, layout, step, first_step + step), of_stage)
        truth.add(first_step + step, times)
        end_ns = max(int(max(of_stage.begin.max(), of_stage.work_end.max())) for of_stage in times)
    recorder.finish(end_ns + _BEHIND_NS)
    truth.write(out, layout, model, faults, clocks, seed=seed, form=form)
    return recorder.bytes


def _middle(times: list[StageTimes]) -> int:
    """The true time in the middle of a step of the whole job."""
    begin, end = min(int(of_stage.begin[0].min()) for of_stage in times), max(int(of_stage.begin[-1].max()) for of_stage in times)
    return (begin + end) // 2


def layers_for(layout: Layout, model: Model, steps: int, size: int) -> int:
    """How many layers make a file of a rank of about so many bytes."""
    few, more = 2, 6
    lengths = []
    for layers in (few, more):
        program = stage_program(replace(model, layers=layers), layout, layout.pipeline // 2)
        lengths.append(len(stage_events(program, layout, 0, 0).text) * steps)
    per_layer = (lengths[1] - lengths[0]) / (more - few)
    return max(round((size - lengths[0]) / per_layer + few), 1)
