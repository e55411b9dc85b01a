"""Does ``steplens bench`` cry wolf? Rounds of a program beside itself, and beside itself with a slowdown put in.

Usage: ``python benchmarks/bench_noise.py OUT --rounds 80`` runs a small transformer twice a round, each time in a
process of its own whose steps are timed as ``steplens bench`` times them, and prints, for 30 and 200 steps and for
benches of 20, 40 and 60 rounds at most drawn at random from these: how often the interval covers the truth, how often
``step>2%`` raises a false alarm, how often a slowdown of 5 % and of 2 % is found (the whole interval lies above 0) and
after how many rounds; and how often fixed gates on one run of each alarm, among them what two tools document: nsys-ai
0.3 (``--gate``, 5 % by default, of the time of one capture a side; never below 2 %) and TraceML 0.3 (``--max-step-time-
regression-pct 5``, of the mean step of one run a side). A slowdown is put in by making each step of one side longer by
that factor; which side of a round is the base is drawn by lot.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from steplens.bench.checkouts import Version
from steplens.bench.program import Plan, run_program
from steplens.bench.rounds import confidence_of_looks, plan_looks
from steplens.bench.signed_ranks import PairedDifference, find_paired_difference
from steplens.comparison.comparison import LEAST_CHANGE
from steplens.comparison.noise import Floats

SKIP, TIMED, COUNTED = 5, 200, (30, 200)
ROUNDS = (20, 40, 60)
GATE = 0.02
SLOWDOWNS = (0.05, 0.02)
TRAIN = """
import torch
torch.set_num_threads(1)
torch.manual_seed(0)
layer = torch.nn.TransformerEncoderLayer(128, 4, 256, batch_first=True, dropout=0.0)
model = torch.nn.Sequential(torch.nn.Embedding(1000, 128), layer, torch.nn.Linear(128, 1000))
optimizer = torch.optim.AdamW(model.parameters())
while True:
    tokens = torch.randint(0, 1000, (8, 64))
    torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()
"""

#: whether what a look says suffices
IsTold = Callable[[PairedDifference], bool]


@dataclass(frozen=True)
class Pool:
    """Rounds that ran.

    Attributes:
        steps: ns of each step, shape (rounds, 2, steps).
        waited: share of their time that the programs waited for a processor, shape (rounds, 2).
    """

    steps: Floats
    waited: Floats


def record(out: Path, count: int, seconds: float) -> None:
    """Run as many rounds as there are not yet."""
    out.mkdir(parents=True, exist_ok=True)
    plan = Plan(SKIP, TIMED, 0, "optimizer", {}, to_the_end=False, patience_s=300.0)
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "train.py").write_text(TRAIN)
        for number in range(len(list(out.glob("*.json"))), count):
            if time.monotonic() - begin > seconds:
                return
            runs = [run_program(Version("same", Path(folder)), ["train.py"], plan, out / "none") for _ in range(2)]
            processes = [{"step_ns": run.step_times_ns[0], "waited": run.waited_share} for run in runs]
            (out / f"{number:04}.json").write_text(json.dumps({"runs": processes}))


def read_pool(out: Path) -> Pool:
    """What ``record`` wrote."""
    rounds = [json.loads(path.read_text())["runs"] for path in sorted(out.glob("*.json"))]
    steps = [[run["step_ns"][:TIMED] for run in runs] for runs in rounds]
    return Pool(np.array(steps, dtype=np.float64), np.array([[run["waited"] for run in runs] for runs in rounds]))


def run_looks(differences: Floats, looks: Sequence[int], is_told: IsTold) -> tuple[PairedDifference, int]:
    """What a bench says at its end, and after how many rounds that is."""
    confidence = confidence_of_looks(looks)
    for look in looks:
        found = find_paired_difference(differences[:look], confidence)
        if is_told(found):
            break
    return found, look


def is_verdict(found: PairedDifference) -> bool:
    """Slower, faster, or alike within 2 %, as ``steplens bench`` says it without limits."""
    least = math.log1p(LEAST_CHANGE)
    return found.low_end > 0.0 or found.high_end < 0.0 or (found.low_end >= -least and found.high_end <= least)


def is_judged(found: PairedDifference) -> bool:
    """Whether ``step>2%`` is exceeded or kept."""
    return found.low_end > math.log1p(GATE) or found.high_end <= math.log1p(GATE)


def judge_pool(pool: Pool, steps: int, rounds: int, benches: int) -> list[str]:
    """The cells of a row of the table."""
    draws = np.random.default_rng(rounds + steps)
    medians = np.log(np.median(pool.steps[:, :, :steps], axis=2))
    means = np.log(np.mean(pool.steps[:, :, :steps], axis=2))
    looks = plan_looks(rounds)
    counts = dict.fromkeys(["covers", "alarm", "fixed 2", "fixed 5", "fixed 10", "nsys-ai 5", "nsys-ai 3", "TraceML 5"], 0)
    found = dict.fromkeys(SLOWDOWNS, 0)
    taken: dict[float, list[int]] = {slowdown: [] for slowdown in (0.0, *SLOWDOWNS)}
    for _ in range(benches):
        drawn = draws.permutation(len(medians))[:rounds]
        signs = draws.choice([-1.0, 1.0], rounds)
        differences = (medians[drawn, 1] - medians[drawn, 0]) * signs
        verdict, look = run_looks(differences, looks, is_verdict)
        counts["covers"] += verdict.low_end <= 0.0 <= verdict.high_end
        taken[0.0].append(look)
        judged, _ = run_looks(differences, looks, is_judged)
        counts["alarm"] += judged.low_end > math.log1p(GATE)
        for slowdown in SLOWDOWNS:
            verdict, look = run_looks(differences + math.log1p(slowdown), looks, is_verdict)
            found[slowdown] += verdict.low_end > 0.0
            taken[slowdown].append(look)
        one, mean = math.expm1(differences[0]), math.expm1((means[drawn[0], 1] - means[drawn[0], 0]) * signs[0])
        for percent in (2, 5, 10):
            counts[f"fixed {percent}"] += one > percent / 100
        counts["nsys-ai 5"] += mean >= 0.05
        counts["nsys-ai 3"] += mean >= 0.03
        counts["TraceML 5"] += mean > 0.05
    shares = [counts["covers"], counts["alarm"], *found.values()]
    cells = [str(steps), str(rounds), *(f"{100 * share / benches:.1f} %" for share in shares)]
    cells.append(" / ".join(f"{np.median(taken[slowdown]):.0f}" for slowdown in taken))
    return cells + [f"{100 * counts[name] / benches:.1f} %" for name in list(counts)[2:]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="a folder for what is recorded")
    parser.add_argument("--rounds", type=int, default=80)
    parser.add_argument("--seconds", type=float, default=math.inf, help="no round begins later")
    parser.add_argument("--benches", type=int, default=2000, help="of each row")
    given = parser.parse_args()
    record(given.out, given.rounds, given.seconds)
    pool = read_pool(given.out)
    medians = np.log(np.median(pool.steps, axis=2))
    print(
        f"{len(pool.steps)} rounds; waited for a processor: {100 * np.median(pool.waited):.1f} % of the time (median), ", end=""
    )
    print(
        f"{100 * pool.waited.max():.1f} % at most; step {np.exp(np.median(medians)) / 1e6:.2f} ms; standard deviation of ", end=""
    )
    print(f"runs {100 * medians.std():.1f} %, of differences in a round {100 * (medians[:, 1] - medians[:, 0]).std():.1f} %")
    heads = ["steps", "rounds at most", "covers the truth", "false alarms of step>2%", "finds 5 %", "finds 2 %"]
    heads += ["rounds taken for 0 / 5 / 2 %", "fixed 2 %", "5 %", "10 %", "nsys-ai 5 %", "nsys-ai --gate 3", "TraceML 5 %"]
    print("|", " | ".join(heads), "|")
    print("|", " | ".join(["---"] * len(heads)), "|")
    for steps in COUNTED:
        for rounds in ROUNDS:
            if rounds <= len(pool.steps):
                print("|", " | ".join(judge_pool(pool, steps, rounds, given.benches)), "|", flush=True)


if __name__ == "__main__":
    main()
