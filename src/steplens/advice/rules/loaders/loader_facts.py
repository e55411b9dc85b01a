"""What the rules about DataLoaders share: the loader that a finding is about, and what is known of it as evidence."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence
from steplens.analysis.data_loading.loaders import LOOP, LoaderVerdict, stages, step_waits, verdicts

#: a processor that a training needs for its own loop
_LOOP_PROCESSORS = 1.0
#: share of the steps in which a loader gives batches that the training needs
_FED_SHARE = 0.5


def feeding(facts: Facts) -> list[LoaderVerdict]:
    """The loaders that the training loop lives on: those that give batches in at least half of the steps.

    A loader of a validation gives a few batches now and then, of which nothing follows for the loop. Where nothing tells in
    which steps batches were got, every loader counts.
    """
    every = verdicts(facts.trace)
    if not every:
        return []
    waits = step_waits(facts.trace)
    got = waits.filter(pl.col("step").is_in(list(facts.numbers)) & (pl.col("batches") > 0)).group_by("loader").len()
    steps = dict(got.iter_rows())
    if waits.is_empty() or not facts.numbers:
        return every
    return [verdict for verdict in every if steps.get(verdict.loader, 0) >= _FED_SHARE * len(facts.numbers)]


def feeds(facts: Facts, fetches: pl.DataFrame) -> bool:
    """Whether these fetches of batches are in at least half of the steps, and not those of a validation now and then."""
    return facts.steps.height > 0 and fetches["step"].n_unique() >= _FED_SHARE * facts.steps.height


def worst(facts: Facts, wanted: Callable[[LoaderVerdict], bool]) -> LoaderVerdict | None:
    """Of the loaders that are wanted the one on which its loop spends most."""
    found = [verdict for verdict in feeding(facts) if wanted(verdict)]
    return max(found, key=lambda verdict: (verdict.wait_share, verdict.next_share), default=None)


def name_of(verdict: LoaderVerdict) -> str:
    """What evidence calls a loader."""
    return f"DataLoader({verdict.dataset})"


def stage_mean_ns(facts: Facts, verdict: LoaderVerdict, stage: str) -> float:
    """What a stage of a loader takes per batch, ns; 0 where it was not seen."""
    table = stages(facts.trace)
    found = table.filter((table["loader"] == verdict.loader) & (table["stage"] == stage))
    return float(found["mean_ns"][0]) if found.height else 0.0


def processors(facts: Facts) -> int | None:
    """Processors that the process may use; None where the run does not say."""
    known = facts.trace.meta_values().get("processor")
    count = known.get("count") if isinstance(known, dict) else None
    return count if isinstance(count, int) and count > 0 else None


def enough_workers(verdict: LoaderVerdict, rest_ns: float) -> int:
    """Workers that make a batch in the time that the loop has for it besides waiting."""
    return max(math.ceil(verdict.made_ns / max(rest_ns, 1.0)), 1)


def stage_evidence(verdict: LoaderVerdict) -> Iterator[Evidence]:
    """The stage that holds up the loop, and how full queue and workers are."""
    place = (name_of(verdict),)
    if verdict.stage != LOOP:
        yield Evidence(f"loader_{verdict.stage}", verdict.stage_ns, "ns", places=place, per_step=False)
        yield Evidence("loader_stage_share", 100 * verdict.stage_share, "%", per_step=False)
    if verdict.usage is not None:
        yield Evidence("loader_queue", 100 * verdict.usage, "%", per_step=False)
    if verdict.busy_share is not None:
        yield Evidence("loader_busy", 100 * verdict.busy_share, "%", per_step=False)


def worker_evidence(facts: Facts, verdict: LoaderVerdict, count: int) -> Iterator[Evidence]:
    """How many workers would be enough, and whether there are processors for them."""
    yield Evidence("loader_enough_workers", count, "count", per_step=False)
    available = processors(facts)
    if verdict.cpu_share is not None:
        yield Evidence("loader_cpu", 100 * verdict.cpu_share, "%", per_step=False)
    if available is not None:
        yield Evidence("loader_processors", available, "count", per_step=False)
        if needed_processors(verdict, count) > available:
            yield Evidence("loader_lacks_processors", needed_processors(verdict, count), "count", per_step=False)


def needed_processors(verdict: LoaderVerdict, workers: int) -> float:
    """Processors that so many workers and the loop need; a worker whose use is unknown needs one."""
    share = verdict.cpu_share if verdict.cpu_share is not None else 1.0
    return workers * share + _LOOP_PROCESSORS
