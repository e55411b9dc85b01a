"""Does ``steplens compare`` name the cause? A program recorded before and after changes whose cause is known.

Usage: ``python benchmarks/compare_causes.py OUT [--recordings 5] [--steps 40] [--variants 3] [--only NAME]`` records a small
transformer (``causes_program.py``) before and after each change, each recording in a process of its own, and prints what is the
first named cause, how much of the change of the step the causes beyond chance explain, and whether the first one is the true one.
Each variant has another size and another seed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from causes_program import Settings, train

import steplens
from steplens.comparison.causes import cause as causes
from steplens.comparison.causes.cause import Cause, Causes


@dataclass(frozen=True)
class Change:
    """A change of the program.

    Attributes:
        text: what it is.
        after: settings of the later version.
        kinds: of which the first cause has to be one.
        about: a pattern that one of the operators of the first cause, or what is different, matches.
        before: settings of the earlier version that are not those of the variant.
    """

    text: str
    after: dict[str, Any]
    kinds: tuple[str, ...]
    about: str = ""
    before: dict[str, Any] = field(default_factory=dict)


_ATTENTION = "matmul|softmax|Bmm|Soft"
#: many small parameters, whose optimizer is much of a step; many large ones, with few words; attention that is much of a step
_SMALL = {"layers": 8, "width": 32, "inner": 64, "heads": 2, "batch": 2, "length": 16}
_LARGE = {"width": 384, "inner": 1536, "heads": 6, "batch": 2, "length": 16, "optimizer": "SGD"}
_LONG = {"length": 256, "batch": 2}

CHANGES = {
    "gelu": Change("GELU computed exactly, not by tanh", {"gelu": "none"}, (causes.SPEED,), "gelu"),
    "sort": Change(
        "what is sorted is in no order", {"is_sorted": False}, (causes.SPEED,), "sort", before={"sorted_scores": 100_000}
    ),
    "wider": Change("feed-forward layers twice as wide", {"inner": "x2"}, (causes.SHAPES,), "mm|gelu"),
    "longer": Change("sequences longer by half", {"length": "x1.5"}, (causes.SHAPES,), "."),
    "batch": Change("a batch larger by half", {"batch": "x1.5"}, (causes.SHAPES,), "."),
    "repeated": Change("feed-forward layers run twice", {"repeated": 2}, (causes.CALLS,), "linear|Addmm"),
    "attention": Change("attention that is not fused", {"fused_attention": False}, (causes.REPLACED,), _ATTENTION),
    "long attention": Change(
        "attention over 256 words that is not fused", {"fused_attention": False}, (causes.REPLACED,), _ATTENTION, before=_LONG
    ),
    "bfloat16": Change("bfloat16 instead of float32", {"dtype": "bfloat16"}, (causes.TYPES,), "."),
    "float64": Change("float64 instead of float32", {"dtype": "float64"}, (causes.TYPES,), "."),
    "optimizer": Change(
        "AdamW instead of SGD", {"optimizer": "AdamW"}, (causes.OPTIMIZER,), "AdamW", before=_LARGE
    ),
    "foreach": Change("an optimizer for each parameter, not foreach", {"way": "single"}, (causes.OPTIMIZER,), "each parameter"),
    "foreach of many": Change(
        "the same of 99 small parameters", {"way": "single"}, (causes.OPTIMIZER,), "each parameter", before=_SMALL
    ),
    "fused": Change("a fused optimizer", {"way": "fused"}, (causes.OPTIMIZER,), "fused"),
    "fused of many": Change("the same of 99 small parameters", {"way": "fused"}, (causes.OPTIMIZER,), "fused", before=_SMALL),
    "zero": Change("zero_grad fills with zeros", {"set_to_none": False}, (causes.ADDED, causes.CALLS), "zero|add"),
    "zero of large": Change(
        "the same of large parameters", {"set_to_none": False}, (causes.ADDED, causes.CALLS, causes.REPLACED), "zero|add_",
        before=_LARGE,
    ),
    "recompute": Change("activation checkpointing", {"recompute": True}, (causes.RECOMPUTED,), "."),
    "twice": Change("two backward passes", {"twice": True}, (causes.CALLS, causes.ADDED), "Backward"),
    "loader": Change("a loader slower by 10 ms", {"loader_ms": 10.0}, (causes.LOADER,)),
    "hook": Change("a hook that sleeps 10 ms", {"hook_ms": 10.0}, (causes.GAPS,), "linear"),
    "logging": Change("Python that formats numbers", {"logging": 20_000}, (causes.GAPS,)),
    "read": Change("losses read one by one, 1,000 of them", {"read_loss": 1000}, (causes.ADDED, causes.CALLS), "item|select"),
    "reduced": Change(
        "more that ranks add up", {"reduced": 4_000_000}, (causes.COMMUNICATION,), "all_?reduce",
        before={**_SMALL, "reduced": 1000},
    ),
    "late": Change(
        "a rank that comes 15 ms late", {"late_ms": 15.0}, (causes.COMMUNICATION,), "all_?reduce",
        before={**_SMALL, "reduced": 1000},
    ),
}  # fmt: skip
#: a change of what is held in memory, and the operator that allocates it
HELD = Change("the outputs of 30 steps are kept", {"kept": 30}, (), "aten::addmm|aten::linear", before={"memory": True})

#: sizes and seeds of the program
VARIANTS = (
    {},
    {"width": 96, "inner": 384, "heads": 3, "layers": 3, "length": 48, "batch": 6, "seed": 1},
    {"width": 192, "inner": 256, "heads": 6, "layers": 1, "length": 96, "batch": 10, "seed": 2},
)


@dataclass(frozen=True)
class Outcome:
    """What was found of a change."""

    first: Cause | None
    found: Causes | None
    is_right: bool


def settings_of(variant: int, change: Change) -> tuple[Settings, Settings]:
    """The version before a change and the one after it."""
    before = Settings(**{**VARIANTS[variant], **change.before})
    later = {name: _scaled(before, name, value) for name, value in change.after.items()}
    return before, replace(before, **later)


def _scaled(before: Settings, name: str, value: Any) -> Any:
    is_factor = isinstance(value, str) and re.fullmatch(r"x[\d.]+", value)
    return round(getattr(before, name) * float(value[1:])) if is_factor else value


def record_pair(folder: Path, sides: tuple[Settings, Settings], count: int, steps: int) -> list[Path]:
    """Record both versions as often as there are not yet recordings.

    Both at once, each on a core of its own, and the next time the other way round: what else the machine does meets both.
    Versions of two ranks need both cores, and take turns.
    """
    forked = multiprocessing.get_context("fork")
    folders = [folder / name for name in ("before", "after")]
    for number in range(len(list(folders[1].glob("*"))), count):
        turns = []
        for side, (settings, place) in enumerate(zip(sides, folders, strict=True)):
            ranks = 2 if settings.reduced else 1
            port = _free_port() if ranks > 1 else 0
            places = [place / str(number), folder / "other ranks" / f"{side} {number}"]
            cores = [(rank if ranks > 1 else side + number) % 2 for rank in range(ranks)]
            of_ranks = zip(range(ranks), cores, places, strict=False)
            turns.append(
                [forked.Process(target=_train_on, args=(core, settings, out, steps, rank, port)) for rank, core, out in of_ranks]
            )
        if all(len(turn) == 1 for turn in turns):
            turns = [[process for turn in turns for process in turn]]
        for turn in turns if number % 2 else turns[::-1]:
            for process in turn:
                process.start()
            for process in turn:
                process.join()
            if any(process.exitcode for process in turn):
                raise SystemExit(f"recording {sides} failed")
    return folders


def _train_on(core: int, settings: Settings, out: Path, steps: int, rank: int, port: int) -> None:
    if os.cpu_count() == 2:
        os.sched_setaffinity(0, {core})
    train(settings, out, steps, rank, port)


def _free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def judge(change: Change, before: Path, after: Path) -> Outcome:
    """What is found of a change, and whether its first cause is the true one."""
    comparison = steplens.compare(before, after)
    found = comparison.causes
    first = found.causes[0] if found is not None and found.causes else None
    if first is None:
        return Outcome(None, found, False)
    said = " ".join((*first.names, first.before_text, first.after_text))
    return Outcome(first, found, first.kind in change.kinds and bool(re.search(change.about, said)))


def print_held(out: Path, variant: int, count: int, steps: int) -> None:
    """Record the change of what is held, and print what is said of the peak of memory."""
    sides = record_pair(out / f"held {variant}", settings_of(variant, HELD), count, steps)
    totals, *of_operators = steplens.compare(*sides).memory_changes
    first = of_operators[0]
    share = 100 * first.difference_bytes / totals.difference_bytes
    is_right = "yes" if re.search(HELD.about, first.name) else "no"
    change_text = f"{totals.difference_bytes / 2**20:+.1f} MiB"
    print("|", " | ".join((HELD.text, str(variant), change_text, f"held by {first.name}", "", f"{share:.1f} %", is_right)), "|")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="a folder for the recordings")
    parser.add_argument("--recordings", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--variants", type=int, default=len(VARIANTS))
    parser.add_argument("--only", choices=(*CHANGES, "held"), action="append", help="this change; several times for several")
    given = parser.parse_args()
    print("| change | variant | step | first cause | its share | explained | right |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, change in CHANGES.items():
        for variant in range(given.variants) if not given.only or name in given.only else ():
            folder = given.out / f"{name} {variant}"
            sides = record_pair(folder, settings_of(variant, change), given.recordings, given.steps)
            outcome = judge(change, *sides)
            print("|", " | ".join(_cells(change, variant, outcome)), "|", flush=True)
    for variant in range(given.variants) if not given.only or "held" in given.only else ():
        print_held(given.out, variant, given.recordings, given.steps)


def _cells(change: Change, variant: int, outcome: Outcome) -> Sequence[str]:
    first, found = outcome.first, outcome.found
    if first is None or found is None:
        return change.text, str(variant), "", "none", "", "", "no"
    share = "" if first.share is None else f"{100 * first.share:.0f} %"
    explained = "" if found.explained is None else f"{100 * found.explained:.1f} %"
    words = first.sentence.rpartition(":")[0]
    change_text = f"{found.change_ns / 1e6:+.2f} ms"
    return change.text, str(variant), change_text, words, share, explained, "yes" if outcome.is_right else "no"


if __name__ == "__main__":
    main()
