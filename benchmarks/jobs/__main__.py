"""The command line; see the package."""

from __future__ import annotations

import argparse
import shutil
import time
from pathlib import Path

from benchmarks.jobs import __doc__ as about
from benchmarks.jobs import faults as kinds
from benchmarks.jobs.job import write_job
from benchmarks.jobs.layout import RANKS_PER_HOST, choose_layout, parse_layout
from benchmarks.jobs.noise import noise_of, stored_noise
from benchmarks.jobs.program import Model
from benchmarks.jobs.recording import KINETO, RUN

_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9}


def main(arguments: list[str] | None = None) -> None:
    """Write a job."""
    text = f"{about}\nFaults:\n{kinds.__doc__}"
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.jobs", description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, help="a folder, which must not hold anything")
    parser.add_argument("--ranks", type=int, help="of the job; 8, where no layout tells")
    parser.add_argument("--layout", help="DATAxPIPELINExTENSOR, such as 2x4x1; chosen from the number of ranks otherwise")
    parser.add_argument("--ranks-per-host", type=int, default=RANKS_PER_HOST, help="they share a clock and fast links")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--first-step", type=int, default=10, help="number of the first step")
    parser.add_argument("--form", choices=(RUN, KINETO), default=KINETO)
    parser.add_argument("--gzip", action="store_true", help="compress the files (of Kineto's form)")
    parser.add_argument("--layers", type=int, default=2, help="of every pipeline stage")
    parser.add_argument("--operators-per-layer", type=int, help="all that a transformer layer has otherwise")
    parser.add_argument("--batches", type=int, help="micro-batches of a step; as many as stages otherwise, and at least 4")
    parser.add_argument("--buckets", type=int, default=4, help="gradient collectives of a step, at most")
    parser.add_argument("--shard", action="store_true", help="reduce-scatter and all-gather in place of all-reduce")
    parser.add_argument("--bytes-per-rank", type=_size, help="more layers, until a rank's file has that size: 100MB")
    parser.add_argument("--fault", action="append", default=[], help="KIND[:name=value,...], see above; any number of times")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--noise", type=Path, help="a published job (Parquet) whose distributions are drawn from")
    parser.add_argument("--replace", action="store_true", help="remove what the folder holds")
    given = parser.parse_args(arguments)
    try:
        if given.layout:
            layout = parse_layout(given.layout, given.ranks, given.ranks_per_host)
        else:
            layout = choose_layout(given.ranks or 8, given.ranks_per_host)
        faults = kinds.parse_faults(given.fault, layout, given.steps, given.seed)
    except ValueError as error:
        parser.error(str(error))
    if given.out.exists() and any(given.out.iterdir()):
        if not given.replace:
            parser.error(f"{given.out} holds something; --replace removes it")
        shutil.rmtree(given.out)
    model = Model(given.layers, given.operators_per_layer, given.batches, given.buckets, given.shard)
    begin = time.perf_counter()
    size = write_job(
        given.out,
        layout,
        model,
        faults,
        seed=given.seed,
        steps=given.steps,
        first_step=given.first_step,
        form=given.form,
        compressed=given.gzip,
        bytes_per_rank=given.bytes_per_rank,
        noise=noise_of(given.noise) if given.noise else stored_noise(),
    )
    took = time.perf_counter() - begin
    print(f"{layout.ranks} ranks ({layout.data} x {layout.pipeline} x {layout.tensor}), {size / 1e6:.0f} MB in {took:.1f} s")
    for fault in faults:
        record = {**fault.as_record(), "ranks": f"{len(fault.ranks)} ranks"} if len(fault.ranks) > 16 else fault.as_record()
        print(record)


def _size(text: str) -> int:
    unit = next((unit for unit in _UNITS if text.upper().endswith(unit)), None)
    return round(float(text[: -len(unit)]) * _UNITS[unit]) if unit else int(text)


if __name__ == "__main__":
    main()
