"""A long hunt on one reader: programs of random numbers, workers under limits, every new failure kept with its files."""

from __future__ import annotations

import json
import os
import pickle
import random
import re
import select
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from .mutations import LIMIT, Step, mutate
from .seeds import SEEDS, Seed, shared_samples

#: wall time after which a case counts as hanging, seconds; machines may be busy
HANG = 60.0
#: programs that led somewhere new are varied further, at most this many
KEPT = 400

_FRAME = re.compile(r'File "[^"]*/(steplens/[^"]+)", line (\d+), in (\w+)')


@dataclass
class Report:
    """What a campaign found.

    Attributes:
        cases: how many captures were read.
        seconds: wall time.
        outcomes: what became of them, in a few words -> how often.
        failures: where it failed -> the first example.
    """

    cases: int = 0
    seconds: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: dict[str, dict[str, Any]] = field(default_factory=dict)


def make_seeds(reader: str, folder: Path, *, recorded: bool = False) -> list[Seed]:
    """The good captures of a reader.

    Args:
        reader: a key of ``SEEDS``.
        folder: where they are made.
        recorded: also the recorded captures beside this checkout, where they are.
    """
    seeds = SEEDS[reader](folder)
    return [*seeds, *shared_samples(reader)] if recorded else seeds


def random_step(numbers: random.Random) -> Step:
    """One step of a program."""
    return tuple(numbers.randrange(LIMIT) for _ in range(5))  # type: ignore[return-value]


class Worker:
    """A worker process that is started again when it dies."""

    def __init__(self, reader: str, seeds: Path, scratch: Path) -> None:
        self._command = [sys.executable, "-m", "tests.fuzz.worker", reader, str(seeds), str(scratch)]
        self._errors = scratch.with_suffix(".stderr")
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, case: dict[str, Any]) -> dict[str, Any]:
        """The result of one case."""
        if self._process is None:
            root = Path(__file__).resolve().parents[2]
            with self._errors.open("wb") as errors:
                self._process = subprocess.Popen(
                    self._command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, bufsize=0
                )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(case).encode() + b"\n")
            line, ended = _line(process.stdout, HANG)
        except BrokenPipeError:
            line, ended = b"", True
        if line.endswith(b"\n"):
            result: dict[str, Any] = json.loads(line)
            return result
        hangs = not (ended and self._ended(process))
        self.close()
        tail = self._errors.read_bytes()[-3000:].decode("utf-8", "replace")
        what = f"no answer within {HANG:.0f} s" if hangs else f"the process died ({process.returncode})"
        return {"outcome": "failed: " + ("hang" if hangs else "died"), "failure": f"{what}\n{tail}", "seconds": HANG, "grown": 0}

    @staticmethod
    def _ended(process: subprocess.Popen[bytes]) -> bool:
        """Whether a process that closed its output has ended; on a busy machine that takes a moment longer."""
        try:
            process.wait(timeout=HANG)
        except subprocess.TimeoutExpired:
            return False
        return True

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def _line(stream: IO[bytes], seconds: float) -> tuple[bytes, bool]:
    """One line, or what there is of it when the time is over or the stream ends; and whether the stream has ended."""
    end, data = time.monotonic() + seconds, b""
    while not data.endswith(b"\n"):
        ready, _, _ = select.select([stream], [], [], max(end - time.monotonic(), 0))
        if not ready:
            break
        part = os.read(stream.fileno(), 1 << 16)
        if not part:
            return data, True
        data += part
    return data, False


def place(failure: str) -> str:
    """Where in steplens a traceback ends, and with what: the same for all examples of one mistake."""
    frames = _FRAME.findall(failure)
    last = failure.strip().splitlines()[-1] if failure.strip() else ""
    kind = re.sub(r"[\d.]+", "#", last)[:80]
    return f"{frames[-1][0]}:{frames[-1][1]} {frames[-1][2]}: {kind}" if frames else kind


def hunt(
    reader: str, minutes: float, *, seed: int = 0, recorded: bool = False, save: Path | None = None, cases: int | None = None
) -> Report:
    """Damage captures of one reader for some minutes (or for a number of cases).

    Args:
        reader: a key of ``SEEDS``.
        minutes: wall time.
        seed: of the random numbers.
        recorded: also damage recorded captures.
        save: folder for the files of the first example of every failure.
        cases: end after this many.
    """
    numbers = random.Random(f"{reader}:{seed}")
    report = Report()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="steplens-fuzz-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as scratch:
        seeds = make_seeds(reader, Path(scratch) / "made", recorded=recorded)
        seeds_file = Path(scratch) / "seeds"
        seeds_file.write_bytes(pickle.dumps(seeds))
        worker = Worker(reader, seeds_file, Path(scratch) / "case")
        kept: list[tuple[int, list[Step]]] = []
        seen: set[str] = set()
        try:
            while time.monotonic() - begin < minutes * 60 and (cases is None or report.cases < cases):
                if kept and numbers.random() < 0.4:
                    which, program = numbers.choice(kept)
                    program = [*program, random_step(numbers)]
                else:
                    which, program = numbers.randrange(len(seeds)), []
                    program += [random_step(numbers) for _ in range(numbers.choice((1, 1, 1, 2, 3, 5)))]
                result = worker.ask({"seed": which, "program": program})
                report.cases += 1
                outcome = result["outcome"]
                report.outcomes[outcome.split(":")[0]] += 1
                if outcome not in seen and not result["failure"]:
                    seen.add(outcome)
                    if len(kept) < KEPT and len(program) < 12:
                        kept.append((which, program))
                if result["failure"]:
                    where = place(result["failure"])
                    if where not in report.failures:
                        report.failures[where] = {"seed": which, "program": program, **result}
                        if save is not None:
                            _save(save / reader / f"{len(report.failures):03d}", seeds[which], program, result["failure"])
        finally:
            worker.close()
    report.seconds = time.monotonic() - begin
    return report


def _save(folder: Path, seed: Seed, program: list[Step], failure: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "failure.txt").write_text(failure)
    (folder / "program.json").write_text(json.dumps(program))
    for name, data in mutate(seed.files, seed.targets, program).items():
        path = folder / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
