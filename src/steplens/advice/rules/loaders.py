"""Loaders of PyTorch: the workers, their stages and the memory that batches come from."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import LOW, MEDIUM, Evidence, Finding, Saving
from steplens.advice.rule import rule
from steplens.advice.rules.tools.digits import in_ms
from steplens.advice.rules.tools.loading import MOST_WORKERS, collate_function, loading_in_loop, more_workers_saving
from steplens.advice.rules.tools.pressure import waiting_values
from steplens.analysis.data_loading.loader_stages import COLLATE, LOOP, PIN, TRANSFER
from steplens.analysis.data_loading.loaders import LEAST_WAIT, LoaderVerdict, first_batches, stages, step_waits, verdicts
from steplens.trace.building.framework import PYTORCH
from steplens.trace.health import DATA_LOADING, KERNEL_TIMES, OPERATOR_CALLS, STEP_PHASES, STEP_TIMES
from steplens.trace.schema import CORE_CUDA, KIND_COPY

#: a processor that a training needs for its own loop
_LOOP_PROCESSORS = 1.0
#: share of the steps in which a loader gives batches that the training needs
_FED_SHARE = 0.5


def feeding_loaders(facts: Facts) -> list[LoaderVerdict]:
    """The loaders that the training loop lives on: those that give batches in at least half of the steps.

    A loader of a validation gives a few batches now and then, of which nothing follows for the loop. Where nothing tells in
    which steps batches were got, every loader counts.
    """
    all_verdicts = verdicts(facts.trace)
    if not all_verdicts:
        return []
    waits = step_waits(facts.trace)
    got = waits.filter(pl.col("step").is_in(list(facts.numbers)) & (pl.col("batches") > 0)).group_by("loader").len()
    steps = dict(got.iter_rows())
    if waits.is_empty() or not facts.numbers:
        return all_verdicts
    return [verdict for verdict in all_verdicts if steps.get(verdict.loader, 0) >= _FED_SHARE * len(facts.numbers)]


def are_fetches_regular(facts: Facts, fetches: pl.DataFrame) -> bool:
    """Whether these fetches of batches are in at least half of the steps, and not those of a validation now and then."""
    return facts.steps.height > 0 and fetches["step"].n_unique() >= _FED_SHARE * facts.steps.height


def worst_loader(facts: Facts, applies: Callable[[LoaderVerdict], bool]) -> LoaderVerdict | None:
    """Of the loaders that something applies to the one on which its loop spends most."""
    loaders = [verdict for verdict in feeding_loaders(facts) if applies(verdict)]
    return max(loaders, key=lambda verdict: (verdict.wait_share, verdict.next_share), default=None)


def name_of(verdict: LoaderVerdict) -> str:
    """What evidence calls a loader."""
    return f"DataLoader({verdict.dataset})"


def stage_mean_ns(facts: Facts, verdict: LoaderVerdict, stage: str) -> float:
    """What a stage of a loader takes per batch, ns; 0 where it was not seen."""
    table = stages(facts.trace)
    rows = table.filter((table["loader"] == verdict.loader) & (table["stage"] == stage))
    return float(rows["mean_ns"][0]) if rows.height else 0.0


def processor_count(facts: Facts) -> int | None:
    """Processors that the process may use; None where the run does not say."""
    processor = facts.trace.meta_value("processor")
    count = processor.get("count") if isinstance(processor, dict) else None
    return count if isinstance(count, int) and count > 0 else None


def enough_workers(verdict: LoaderVerdict, rest_ns: float) -> int:
    """Workers that make a batch in the time that the loop has for it besides waiting."""
    return max(math.ceil(verdict.made_ns / max(rest_ns, 1.0)), 1)


def stage_evidence(facts: Facts, verdict: LoaderVerdict) -> Iterator[Evidence]:
    """The stage that holds up the loop, of collating with the function that does it, and how full queue and workers are."""
    name, has_line = collate_function(facts, verdict.loader) if verdict.stage == COLLATE else ("", False)
    places = (name_of(verdict), name) if name else (name_of(verdict),)
    if verdict.stage != LOOP:
        yield Evidence(f"loader_{verdict.stage}", verdict.stage_ns, "ns", places=places, per_step=False)
        # of workers no profiler records the calls
        if name and not has_line and not verdict.workers and "python" not in facts.trace:
            yield Evidence("no_collate_line", 0, "", per_step=False)
        yield Evidence("loader_stage_share", 100 * verdict.stage_share, "%", per_step=False)
    if verdict.usage is not None:
        yield Evidence("loader_queue", 100 * verdict.usage, "%", per_step=False)
    if verdict.busy_share is not None:
        yield Evidence("loader_busy", 100 * verdict.busy_share, "%", per_step=False)


def worker_evidence(facts: Facts, verdict: LoaderVerdict, count: int) -> Iterator[Evidence]:
    """How many workers would be enough, and whether there are processors for them."""
    yield Evidence("loader_enough_workers", count, "count", per_step=False)
    available = processor_count(facts)
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


#: of what is said where workers and training share too few processors
FEW_PROCESSORS = "few_processors"
#: name that PyTorch gives a fetch of a loader without workers
FETCH_IN_LOOP = "enumerate(DataLoader)#_SingleProcessDataLoaderIter"


#: what a rank that waits for its loader is seen as, too; that it is late (``slow_rank``) is said with this as the cause
_LATE_RANK = ("slow_interval",)


@rule(rests_on=(OPERATOR_CALLS, STEP_PHASES), explains=_LATE_RANK, framework=PYTORCH)
def loader_without_workers(facts: Facts, *, least_share: float = 0.02) -> Iterator[Finding]:
    """The training loop itself loads the data, before the model can go on: ``DataLoader(num_workers=0)``.

    Beside the training, loading takes no longer than the training, or than the processors that both share.

    With L the loading and B everything else of a step, W workers give a step of max(B, L / W, C / P), where C is the processor
    time of a step and P the number of processors. W is the least number that hides all loading, and one to spare; where C / P is
    above B, processors are short: then a cheaper transform comes first. Workers may be more than processors: one that waits for
    storage takes none, and C has all that they take. See ``tools.loading``.
    """
    fetches = facts.starting_with(FETCH_IN_LOOP)
    if not are_fetches_regular(facts, fetches) or not facts.step_ns:
        return
    loading = facts.at_most_part(facts.typical_ns(fetches), "data_wait_ns")
    if loading < least_share * facts.step_ns:
        return
    available = processor_count(facts)
    work = loading_in_loop(facts, loading, available)
    evidence = [Evidence("loading_in_the_loop", loading, "ns", facts.numbers, ("_SingleProcessDataLoaderIter.__next__",))]
    verdict = worst_loader(facts, lambda loader: not loader.workers)
    if verdict is not None:
        evidence += [*stage_evidence(facts, verdict), Evidence("loader_workers", verdict.workers, "count", per_step=False)]
    if available is not None:
        evidence.append(Evidence("loader_processors", available, "count", per_step=False))
        if work.is_short_of_processors or work.outnumbers_processors:
            figure = "loader_processor_time" if work.is_recorded else "loader_processor_estimate"
            evidence.append(Evidence(figure, work.used_ns[1], "ns"))
    saving = work.worker_saving()
    is_worth = saving.likely_ns >= least_share * facts.step_ns
    case = FEW_PROCESSORS if work.is_short_of_processors else ""
    if work.outnumbers_processors and not case:
        case = "workers_wait" if work.is_recorded else "workers_may_wait"
    loading_ns, beside_ns = (in_ms(ns, 3) for ns in work.loading_beside_ns)
    values: dict[str, str | int | float] = {"workers": work.worker_count, "processors": available or 0, "case": case}
    values |= {"loading": loading_ns, "beside": beside_ns, "most_workers": MOST_WORKERS}
    values["used"], values["have"] = (in_ms(ns, 3) for ns in work.processor_time_ns)
    basis = ""
    if work.recording_ns[2]:
        values["recording_least"] = in_ms(work.recording_ns[0])
        basis = "few_processors_recorded" if work.is_short_of_processors else "workers_recorded"
    yield facts.make_finding(
        loader_without_workers.name,
        evidence,
        saving if is_worth else None,
        confidence=0.95,
        part="data_wait_ns",
        values=values,
        urgency=MEDIUM,
        recording_ns=work.recording_ns[1],
        basis=basis,
    )


#: name that PyTorch gives a fetch of a loader with workers
FETCH_OF_WORKERS = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter"
#: a fetch that finds its batch ready still receives and unpickles it; this is long for that, on a busy machine
_READY_NS = 1_000_000
#: from here on the data loading of the mean step, which the pages show, is another figure than that of a step of median length
_DIFFERS = 1.02


def waiting_ns(facts: Facts) -> float:
    """What a step waits for workers beyond taking over a batch that is ready, ns."""
    fetches = facts.starting_with(FETCH_OF_WORKERS)
    if not are_fetches_regular(facts, fetches):
        return 0.0
    waits = fetches["duration_ns"]
    # the shortest fetches find their batch ready and tell what cannot be saved
    ready = min(float(waits.quantile(0.1) or 0), _READY_NS)
    mean = facts.usual_mean_ns(fetches.select("step", waits=(waits - ready).clip(0)), "waits")
    return facts.at_most_part(mean, "data_wait_ns")


@rule(rests_on=(OPERATOR_CALLS, STEP_PHASES), explains=_LATE_RANK, framework=PYTORCH)
def loader_too_slow(facts: Facts, *, least_share: float = 0.03) -> Iterator[Finding]:
    """The model waits for the workers of the loader: they produce batches slower than it uses them.

    What a step waits beyond taking over a batch that is ready would be gone if the batch were.

    Batches come one per step, so the workers must become faster by step / (step - wait). Where the loader itself was recorded,
    its slowest stage is named, and as many workers as make a batch in step - wait are enough. Where these and the training need
    more processors than there are, more workers likely save only what the processors have room for (``tools.loading``).
    """
    waiting = waiting_ns(facts)
    if not facts.step_ns or waiting < least_share * facts.step_ns:
        return
    faster = facts.step_ns / max(facts.step_ns - waiting, 1)
    mean_ns = facts.mean_ns("data_wait_ns")
    with_workers = [verdict for verdict in feeding_loaders(facts) if verdict.workers]
    if with_workers and all(verdict.wait_share < LEAST_WAIT for verdict in with_workers):
        # batches were there: receiving them, or the first ones of epochs, took the time
        return
    evidence = [Evidence("waiting_for_workers", waiting, "ns", facts.numbers, ("_MultiProcessingDataLoaderIter.__next__",))]
    if mean_ns > _DIFFERS * waiting:
        evidence.append(Evidence("loading_in_mean_step", mean_ns, "ns"))
    verdict = worst_loader(facts, lambda loader: loader.workers > 0 and loader.stage != LOOP)
    values: dict[str, str | int | float] = {"faster": round(faster, 1), **waiting_values(facts)}
    saving, basis = Saving(waiting / 2, waiting, waiting), ""
    if verdict is not None:
        evidence += [*stage_evidence(facts, verdict), Evidence("loader_workers", verdict.workers, "count", per_step=False)]
        enough = enough_workers(verdict, facts.step_ns - waiting)
        if enough > verdict.workers:
            evidence += worker_evidence(facts, verdict, enough)
            available = processor_count(facts)
            is_short = available is not None and needed_processors(verdict, enough) > available
            case = FEW_PROCESSORS if is_short else "more_workers"
            values |= {"case": case, "now": verdict.workers, "workers": enough, "processors": available or 0}
            if is_short and available is not None:
                of_workers = more_workers_saving(facts, verdict, _batches_per_step(facts, verdict), waiting, available)
                # a cheaper transform needs no processors
                saving = Saving(of_workers.low_ns, of_workers.likely_ns, waiting)
                basis = "" if of_workers.likely_ns > 0 else "no_processors"
        elif (available := processor_count(facts)) is not None:
            evidence.append(Evidence("loader_processors", available, "count", per_step=False))
    yield facts.make_finding(
        loader_too_slow.name, evidence, saving, confidence=0.9, part="data_wait_ns", values=values, basis=basis
    )


@rule(rests_on=(DATA_LOADING, OPERATOR_CALLS, STEP_PHASES), explains=("loader_too_slow", *_LATE_RANK), framework=PYTORCH)
def loader_slow_collate(facts: Facts, *, least_share: float = 0.03) -> Iterator[Finding]:
    """Collating is the longest stage of a loader that the model waits for.

    What a step would no longer wait if collating took no time.

    With M the time to make the batches of a step, C of it to collate, W workers and a rest R of the step besides waiting, a step
    takes M / W, and without collating (M - C) / W, but never less than R. Of waits that have other causes as well, such as
    starting workers, no more than C / W can go. A cure leaves something of it: the low end is half.
    Without workers collating is only a part of what ``loader_without_workers`` is about.
    """
    verdict = worst_loader(facts, lambda loader: loader.stage == COLLATE and loader.workers > 0)
    if verdict is None or not facts.step_ns:
        return
    waiting = waiting_ns(facts)
    batches = _batches_per_step(facts, verdict)
    without = max(facts.step_ns - waiting, (verdict.made_ns - verdict.stage_ns) * batches / verdict.workers)
    saved = min(waiting, max(facts.step_ns - without, 0.0), verdict.stage_ns * batches / verdict.workers)
    if saved < least_share * facts.step_ns:
        return
    evidence = [
        Evidence("waiting_for_workers", waiting, "ns", facts.numbers, (name_of(verdict),)),
        *stage_evidence(facts, verdict),
    ]
    yield facts.make_finding(
        loader_slow_collate.name, evidence, Saving(saved / 2, saved, saved), confidence=0.85, part="data_wait_ns"
    )


def _batches_per_step(facts: Facts, verdict: LoaderVerdict) -> float:
    """Batches of a loader per step; a call of ``next()`` that ends an epoch gives none."""
    got = step_waits(facts.trace).filter(pl.col("step").is_in(facts.numbers), pl.col("loader") == verdict.loader)
    return float(got["batches"].sum()) / facts.steps.height


@rule(rests_on=(DATA_LOADING, STEP_TIMES), explains=("loader_too_slow", "slow_fetches", *_LATE_RANK), framework=PYTORCH)
def loader_slow_start(facts: Facts, *, least_share: float = 0.02) -> Iterator[Finding]:
    """Every epoch begins with starting the workers of a loader again.

    From ``iter()`` to the first batch, less making and transferring one: that is left when the workers are there.

    Only loaders count that started workers in two epochs or more, and epochs that began within the steps.
    """
    steps = facts.steps
    if not steps.height or not facts.step_ns:
        return
    begin = int(steps["start_ns"].min())  # type: ignore[arg-type]
    end = int((steps["start_ns"] + steps["duration_ns"]).max())
    started = first_batches(facts.trace).drop_nulls("workers_ns")
    for verdict in feeding_loaders(facts):
        starts = started.filter(pl.col("loader") == verdict.loader)
        starts_inside = starts.filter((pl.col("start_ns") >= begin) & (pl.col("start_ns") + pl.col("delay_ns") <= end))
        if starts.height < 2 or not starts_inside.height:
            continue
        delay = float(starts_inside["delay_ns"].sum()) / starts_inside.height
        left = verdict.made_ns + stage_mean_ns(facts, verdict, TRANSFER)
        saved = max(delay - left, 0.0) * starts_inside.height / steps.height
        if saved < least_share * facts.step_ns:
            continue
        evidence = [
            Evidence("loader_first_batch", delay, "ns", places=(name_of(verdict),), per_step=False),
            Evidence("loader_starting", float(starts_inside["workers_ns"].sum()) / starts_inside.height, "ns", per_step=False),
            Evidence("loader_epochs", starts_inside.height, "count", per_step=False),
        ]
        saving = Saving(saved * 0.7, saved, saved)
        values = {"workers": verdict.workers}
        yield facts.make_finding(
            loader_slow_start.name, evidence, saving, confidence=0.9, subject=str(verdict.loader), values=values
        )


#: workers that are busy less than this have little to do
_IDLE_SHARE = 0.3
#: how busy the workers that are left may be without making the loop wait
_BUSY_SHARE = 0.7
#: of fewer batches nothing is said
_LEAST_BATCHES = 10
#: a worker that uses less of a processor waits for something else, and takes none from the others
_CPU_SHARE = 0.5


@rule(rests_on=(DATA_LOADING,), framework=PYTORCH)
def loader_too_many_workers(facts: Facts) -> Iterator[Finding]:
    """A loader has more workers than its loop needs, or than there are processors for.

    Two things that more workers do not help against; neither has a saving that a trace could tell.

    1. The loop does not wait and the workers are busy less than 30 % of the time: as many as would be busy 70 % are enough.
    2. The workers and the loop together want more processors than there are, and no worker rests.
    """
    available = processor_count(facts)
    for verdict in feeding_loaders(facts):
        if verdict.workers < 2 or verdict.batches < _LEAST_BATCHES or verdict.busy_share is None:
            continue
        enough = max(math.ceil(verdict.workers * verdict.busy_share / _BUSY_SHARE), 1)
        if verdict.wait_share < LEAST_WAIT and verdict.busy_share < _IDLE_SHARE and enough < verdict.workers:
            yield _worker_count_finding(facts, verdict, enough, LOW)
        elif available is not None and _is_oversubscribed(verdict, available):
            yield _worker_count_finding(facts, verdict, max(available - 1, 1), MEDIUM, available)


def _is_oversubscribed(verdict: LoaderVerdict, available: int) -> bool:
    works = (verdict.cpu_share or 0.0) >= _CPU_SHARE and (verdict.busy_share or 0.0) > _BUSY_SHARE
    return works and verdict.workers > max(available - 1, 1) and needed_processors(verdict, verdict.workers) > available


def _worker_count_finding(
    facts: Facts, verdict: LoaderVerdict, enough: int, urgency: str, available: int | None = None
) -> Finding:
    evidence = [
        Evidence("loader_workers", verdict.workers, "count", places=(name_of(verdict),), per_step=False),
        Evidence("loader_busy", 100 * (verdict.busy_share or 0.0), "%", per_step=False),
    ]
    if verdict.cpu_share is not None:
        evidence.append(Evidence("loader_cpu", 100 * verdict.cpu_share, "%", per_step=False))
    if available is not None:
        evidence.append(Evidence("loader_processors", available, "count", per_step=False))
    return facts.make_finding(
        loader_too_many_workers.name,
        evidence,
        confidence=0.8,
        subject=str(verdict.loader),
        values={"workers": enough},
        urgency=urgency,
    )


@rule(rests_on=(DATA_LOADING, OPERATOR_CALLS, STEP_PHASES), explains=("loader_too_slow",), framework=PYTORCH)
def loader_slow_pin(facts: Facts, *, least_share: float = 0.03) -> Iterator[Finding]:
    """The thread that copies batches to pinned memory is slower than the workers.

    The wait for the thread; how much of it a smaller batch or fewer tensors take off is not known beforehand.
    """
    verdict = worst_loader(facts, lambda loader: loader.stage == PIN and loader.workers > 0)
    if verdict is None or not facts.step_ns:
        return
    waiting = waiting_ns(facts)
    if waiting < least_share * facts.step_ns:
        return
    likely = min(waiting, verdict.stage_ns)
    saving = Saving(0.0, likely, waiting)
    yield facts.make_finding(
        loader_slow_pin.name,
        [Evidence("waiting_for_workers", waiting, "ns", facts.numbers), *stage_evidence(facts, verdict)],
        saving,
        confidence=0.7,
        part="data_wait_ns",
    )


#: where making a batch takes at most this of receiving one, the loop makes it itself in less time
_QUICK_SHARE = 0.5


@rule(rests_on=(DATA_LOADING, OPERATOR_CALLS, STEP_PHASES), explains=_LATE_RANK, framework=PYTORCH)
def loader_slow_transfer(facts: Facts, *, least_share: float = 0.03) -> Iterator[Finding]:
    """The batches are ready, and the loop spends its time on taking them over from the workers.

    Half of the receiving, or, where a batch is made in half the time that receiving it takes, what no workers at all would save.

    The part of ``next()`` in which the batch is received and unpickled: a call per tensor, whose memory is mapped. A loop that
    also waits for its workers is what ``loader_too_slow`` is about.
    """
    verdict = worst_loader(
        facts, lambda loader: loader.workers > 0 and loader.stage == TRANSFER and loader.wait_share < LEAST_WAIT
    )
    fetches = facts.starting_with(FETCH_OF_WORKERS)
    if verdict is None or not facts.step_ns or not verdict.next_share or not are_fetches_regular(facts, fetches):
        return
    share = min(verdict.receive_share / verdict.next_share, 1.0)
    receiving = facts.at_most_part(facts.typical_ns(fetches), "data_wait_ns") * share
    if receiving < least_share * facts.step_ns:
        return
    made = verdict.made_ns * _batches_per_step(facts, verdict)
    is_quick = made <= _QUICK_SHARE * receiving
    evidence = [
        Evidence("receiving", receiving, "ns", facts.numbers, (name_of(verdict),)),
        *stage_evidence(facts, verdict),
        Evidence("loader_made", verdict.made_ns, "ns", per_step=False),
        Evidence("loader_workers", verdict.workers, "count", per_step=False),
    ]
    yield facts.make_finding(
        loader_slow_transfer.name,
        evidence,
        Saving(0.0, receiving - made if is_quick else receiving / 2, receiving),
        confidence=0.7,
        part="data_wait_ns",
        values={"case": "quick_batches" if is_quick else "", "now": verdict.workers},
    )


#: how CUPTI names a copy from memory that the driver has to pin piece by piece
_PAGEABLE = "Memcpy HtoD (Pageable"
#: an assumption: what pinned memory leaves of a copy differs between machines
_REMAINING = 0.5


@rule(rests_on=(DATA_LOADING, KERNEL_TIMES), devices=(CORE_CUDA,), framework=PYTORCH)
def loader_without_pinning(facts: Facts, *, least_share: float = 0.01) -> Iterator[Finding]:
    """Batches are copied to a GPU from memory that is not pinned: the copy is slower, and the loop waits for it.

    Pageable copies to the device in a step, of which pinned memory is taken to leave half, or none beside computing.
    """
    loaders = facts.trace.required("pipeline_loaders").filter(~pl.col("pin_memory").fill_null(True)).collect()
    unpinned = [verdict for verdict in feeding_loaders(facts) if verdict.loader in loaders["loader"].to_list()]
    if not unpinned or not facts.step_ns:
        return
    copies = facts.tasks.filter((pl.col("kind") == KIND_COPY) & pl.col("name").cast(pl.String).str.starts_with(_PAGEABLE))
    spent = facts.typical_ns(copies, on_device=True)
    if spent < least_share * facts.step_ns:
        return
    evidence = [
        Evidence("pageable_copies", spent, "ns", facts.numbers, tuple(map(name_of, unpinned))),
        Evidence("pageable_bytes", float(copies["bytes"].sum()) / facts.steps.height, "bytes"),
    ]
    saving = Saving(0.0, (1 - _REMAINING) * spent, spent)
    yield facts.make_finding(loader_without_pinning.name, evidence, saving, confidence=0.6, part="exposed_copy_ns")
