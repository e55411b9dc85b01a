"""How good the advice is: real trainings with one fault each, and healthy ones.

    python benchmarks/advice.py --rounds 5            # everything, five times
    python benchmarks/advice.py --rounds 1 --only workers source --keep build/advice.json   # a part, added to what is kept
    python benchmarks/advice.py --rounds 0 --keep build/advice.json                         # the table of what is kept

Recall: in how many of the runs with a fault its rule is among the first two findings. Price: what the finding promises divided
by how much shorter a step of the same training without the fault is, by the loop's own clock; only of pairs of runs in which the
loop did not wait for a processor for more than a tenth of its time. Precision: findings above low in
trainings without a fault (healthy ones, and those whose fault was removed).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "advice"))

from seeded_job import BUSY, FAULTS, HEALTHY, Fault, Trained, Trainer, saved_ns  # noqa: E402


@dataclass
class Kept:
    """What the runs gave.

    Attributes:
        named: fault and ranks -> for every run, whether its rule was among the first two findings.
        prices: fault and ranks -> promised / saved, where something was promised.
        healthy: training and ranks -> for every run, the rules with findings above low.
        disturbed: for every run, whether the loop had to wait for a processor, as on a busy machine.
    """

    named: dict[str, list[bool]] = field(default_factory=dict)
    prices: dict[str, list[float]] = field(default_factory=dict)
    healthy: dict[str, list[list[str]]] = field(default_factory=dict)
    disturbed: list[bool] = field(default_factory=list)


def key(name: str, ranks: int) -> str:
    return f"{name}, {ranks} ranks" if ranks > 1 else name


def judge(kept: Kept, fault: Fault, faulty: Trained, cured: Trained) -> None:
    """Add one run with a fault and one without it."""
    own = key(fault.name, fault.ranks)
    first = [finding for finding in faulty.advice.findings[:2] if finding.rule in fault.rules]
    kept.named.setdefault(own, []).append(bool(first))
    if first and first[0].saving is not None and max(faulty.delayed, cured.delayed) <= BUSY:
        kept.prices.setdefault(own, []).append(first[0].saving.likely_ns / saved_ns(fault, faulty, cured))


def one_round(kept: Kept, given: argparse.Namespace, trainer: Trainer, folder: Path) -> None:
    """Every training once; what is done is kept when the rest is interrupted."""
    only: list[str] = given.only
    runs: dict[str, Trained] = {}

    def run(name: str, ranks: int) -> Trained:
        own = key(name, ranks)
        if own not in runs:
            runs[own] = trainer.train(name, folder / own, ranks)
            kept.disturbed.append(runs[own].delayed > BUSY)
        return runs[own]

    healthy = set()
    for fault in FAULTS:
        if not only or fault.name in only:
            judge(kept, fault, run(fault.name, fault.ranks), run(fault.cured, fault.ranks))
            healthy.add((fault.cured, fault.ranks))
            save(kept, given.keep)
    for name, ranks in sorted(healthy | {one for one in HEALTHY if not only or "healthy" in only}):
        rules = [finding.rule for finding in run(name, ranks).advice.findings if finding.level != "low"]
        kept.healthy.setdefault(key(name, ranks), []).append(rules)
    save(kept, given.keep)


def save(kept: Kept, to: Path | None) -> None:
    """Write what is known."""
    if to is not None:
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text(json.dumps(asdict(kept)))


def show(kept: Kept) -> None:
    """The tables."""
    false = Counter(rule for runs in kept.healthy.values() for rules in runs for rule in rules)
    healthy = sum(len(runs) for runs in kept.healthy.values())
    print("| rule | fault | runs | among the first two | promised / saved, median (range) | above low without the fault |")
    print("|---|---|---|---|---|---|")
    for fault in FAULTS:
        own = key(fault.name, fault.ranks)
        runs, prices = kept.named.get(own, []), kept.prices.get(own, [])
        price = f"{statistics.median(prices):.2f} ({min(prices):.2f}-{max(prices):.2f}, {len(prices)} runs)" if prices else ""
        price = price if fault.priced else "promises no time"
        wrong = sum(false[rule] for rule in fault.rules)
        print(f"| `{fault.rules[0]}` | {own} | {len(runs)} | {sum(runs)} | {price} | {wrong} of {healthy} |")
    expected = {rule for fault in FAULTS for rule in fault.rules}
    others = ", ".join(f"`{rule}` {count}" for rule, count in sorted(false.items()) if rule not in expected)
    print(f"\nThe loop waited for a processor in {sum(kept.disturbed)} of {len(kept.disturbed)} trainings.")
    print(f"\nOther rules above low in the {healthy} trainings without a fault: {others or 'none'}.")


def main() -> None:
    """Run the trainings and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[], help="names of faults, and healthy")
    parser.add_argument("--keep", type=Path, help="JSON file to which the runs are added")
    given = parser.parse_args()
    kept = Kept(**json.loads(given.keep.read_text())) if given.keep and given.keep.exists() else Kept()
    for _ in range(given.rounds):
        with tempfile.TemporaryDirectory() as folder, Trainer() as trainer:
            one_round(kept, given, trainer, Path(folder))
    show(kept)


if __name__ == "__main__":
    main()
