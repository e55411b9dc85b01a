"""Runs cases in a process of its own, under limits: ``python -m tests.fuzz.worker READER SEEDS SCRATCH``.

Reads one JSON line per case (``{"seed": 0, "program": [...]}``), writes one JSON line per result. Whatever kills or blocks this
process is noticed by the one that started it.
"""

from __future__ import annotations

import json
import pickle
import resource
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from . import targets
from .mutations import Files, Step, mutate
from .seeds import Seed

#: address space above what the process has after reading one good capture
ADDRESS_LIMIT = 3 << 30
#: how much the peak of the resident memory may rise for one case, besides what its input explains
MEMORY_LIMIT = 400 << 20
MEMORY_PER_BYTE = 40
#: processor time of one case, seconds
TIME_LIMIT = 10.0


def peak_bytes() -> int:
    """Peak of the resident memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def limit_address_space() -> None:
    """Forbid allocations far beyond what the process uses now."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ADDRESS_LIMIT, resource.RLIM_INFINITY))


def run(reader: str, files: Files, scratch: Path) -> dict[str, Any]:
    """Read one damaged capture; the result as JSON knows it."""
    path = targets.write(files, scratch)
    if reader == "store":
        targets.touch_cache(scratch, files)
    before, begin = peak_bytes(), time.process_time()
    try:
        outcome, failure = targets.read(path, through_cache=reader == "store"), ""
    except BaseException as error:  # a panic of polars is no Exception
        if isinstance(error, KeyboardInterrupt):
            raise
        outcome, failure = f"failed: {type(error).__name__}", "".join(traceback.format_exception(error))[-6000:]
    seconds, grown = time.process_time() - begin, peak_bytes() - before
    if not failure and seconds > TIME_LIMIT:
        failure = f"took {seconds:.1f} s of processor time"
    if not failure and grown > MEMORY_LIMIT + MEMORY_PER_BYTE * sum(map(len, files.values())):
        failure = f"took {grown >> 20} MiB more than any case before"
    return {"outcome": outcome, "failure": failure, "seconds": seconds, "grown": grown}


def main(reader: str, seeds_file: Path, scratch: Path) -> None:
    """Answer cases until the input ends."""
    seeds: list[Seed] = pickle.loads(seeds_file.read_bytes())  # written by the process that started this one
    for seed in seeds:
        run(reader, seed.files, scratch)
    limit_address_space()
    for line in sys.stdin:
        case = json.loads(line)
        seed = seeds[case["seed"] % len(seeds)]
        program: list[Step] = [tuple(step) for step in case["program"]]
        result = run(reader, mutate(seed.files, seed.targets, program), scratch)
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
