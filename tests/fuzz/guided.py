"""The same hunt led by coverage: ``python -m tests.fuzz.guided READER --minutes 10`` (needs atheris, ``pip install atheris``).

libFuzzer varies the bytes of a program (see ``mutations``) and keeps those that reach new lines of the readers. It runs in
one process, so a crash or a hang of the process ends it; libFuzzer then leaves the bytes that led there.
"""

from __future__ import annotations

import argparse
import json
import struct
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["steplens"]):
    import steplens.readers.detect
    import steplens.run  # noqa: F401

from . import worker
from .campaign import make_seeds, place
from .mutations import LIMIT, Step, mutate
from .seeds import SEEDS

_STEP_BYTES = 20


def program_of(data: bytes) -> tuple[int, list[Step]]:
    """The number of a good capture, and a program, from any bytes."""
    steps = [struct.unpack_from("<5I", data, start) for start in range(1, len(data) - _STEP_BYTES + 1, _STEP_BYTES)]
    return (data[0] if data else 0), [tuple(number % LIMIT for number in step) for step in steps[:8]]  # type: ignore[misc]


def main() -> None:
    """Command line; see the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.guided", description="Damage captures, led by coverage.")
    parser.add_argument("reader", choices=[*SEEDS])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--save", type=Path, default=Path("fuzz_failures"))
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="steplens-fuzz-"))
    seeds = make_seeds(options.reader, folder / "made")
    found: dict[str, str] = {}
    report = options.save / f"{options.reader}-guided.json"
    options.save.mkdir(parents=True, exist_ok=True)
    cases = 0

    def one(data: bytes) -> None:
        nonlocal cases
        which, program = program_of(data)
        seed = seeds[which % len(seeds)]
        result = worker.run(options.reader, mutate(seed.files, seed.targets, program), folder / "case")
        cases += 1
        failure = result["failure"]
        if failure and place(failure) not in found:
            found[place(failure)] = failure
        if failure or cases % 200 == 0:
            report.write_text(json.dumps({"cases": cases, "failures": found}, indent=2))

    limits = ["-timeout=60", "-rss_limit_mb=6000", f"-max_len={1 + 6 * _STEP_BYTES}", "-verbosity=0"]
    corpus = folder / "corpus"
    corpus.mkdir()
    arguments = [sys.argv[0], f"-max_total_time={int(options.minutes * 60)}", f"-artifact_prefix={options.save}/", *limits]
    atheris.Setup([*arguments, str(corpus)], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
