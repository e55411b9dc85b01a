"""``python -m tests.fuzz READER --minutes 10``: damage captures of one reader until the time is over.

READER is one of the formats in ``seeds.SEEDS``, or ``all``. Exit code 1 means that something other than a trace or an
InputError came of a damaged capture; the first example of each failure is kept with its files.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .campaign import hunt
from .seeds import SEEDS


def main() -> int:
    """Command line; see the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Damage captures and read them.")
    parser.add_argument("reader", choices=[*SEEDS, "all"])
    parser.add_argument("--minutes", type=float, default=10.0, help="wall time per reader")
    parser.add_argument("--seed", type=int, default=0, help="of the random numbers")
    parser.add_argument("--recorded", action="store_true", help="also damage the recorded captures beside this checkout")
    parser.add_argument("--save", type=Path, default=Path("fuzz_failures"), help="folder for failing captures")
    options = parser.parse_args()
    failed = False
    for reader in SEEDS if options.reader == "all" else [options.reader]:
        report = hunt(reader, options.minutes, seed=options.seed, recorded=options.recorded, save=options.save)
        rate = report.cases / max(report.seconds, 1e-9) * 60
        outcomes = ", ".join(f"{count} {what}" for what, count in report.outcomes.most_common())
        print(f"{reader}: {report.cases} cases in {report.seconds:.0f} s ({rate:.0f} a minute): {outcomes}", flush=True)
        for where, example in report.failures.items():
            failed = True
            print(f"  {where}\n    {example['failure'].strip().splitlines()[-1]}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
