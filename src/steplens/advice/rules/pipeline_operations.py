"""Single operations of MindSpore's data pipelines: by their queues, and by their workers."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import HIGH, LOW, MEDIUM, Evidence, Finding
from steplens.advice.rule import Rule, rule
from steplens.advice.rules.tools.pressure import (
    WAITING,
    at_most,
    mindspore_operations,
    names_of,
    needed_rate,
    pipeline_basis,
    pipeline_pressure,
    pipeline_saving,
    wait_evidence,
    waiting_values,
)
from steplens.analysis.data_loading import pipeline_queues as queues
from steplens.analysis.data_loading.data_pipeline import HIGH_USAGE, LOW_USAGE, bottlenecks
from steplens.analysis.data_loading.pipeline_verdict import keeps_up
from steplens.trace.building.framework import MINDSPORE
from steplens.trace.health import STEP_PHASES

GENERATOR, MAP, BATCH, SOURCE, OTHER = "generator", "map", "batch", "source", "other"


def kind_of(type_: str, is_source: bool) -> str:
    """What can be done about an operation; a generator is a source, too, and its remedies say more."""
    plain = type_.removesuffix("Op").removesuffix("Dataset").lower()
    for kind in (GENERATOR, MAP, BATCH):
        if plain == kind or (kind == BATCH and plain in ("paddedbatch", "bucketbatchbylength")):
            return kind
    return SOURCE if is_source else OTHER


def _queue_rule(name: str, kind: str) -> Rule:
    """The rule about bottlenecks of one kind."""

    def judge(facts: Facts, *, high: float = HIGH_USAGE, low: float = LOW_USAGE) -> Iterator[Finding]:
        """See ``data_pipeline.bottlenecks``; what the queues say is certain, whether it costs time says ``pipeline_pressure``.

        Of a pipeline that keeps up no operation holds up anything, however full its queues are. The price is ``pipeline_saving``.
        """
        if keeps_up(facts.trace):
            return
        table = mindspore_operations(facts)
        if not table.height:
            return
        slow = set(bottlenecks(table, high=high, low=low))
        mine = table.filter(table["id"].is_in(sorted(slow)))
        mine = mine.filter([kind_of(row["type"], not row["children"]) == kind for row in mine.iter_rows(named=True)])
        if not mine.height:
            return
        names = names_of(table, mine["id"].to_list())
        values = {"operations": ", ".join(names), "workers": ", ".join(str(count) for count in mine["workers"].to_list())}
        rate = needed_rate(facts)
        paced = {"case": "paced", "faster": f"{rate:.1f}"} if rate is not None else {}
        yield facts.make_finding(
            name,
            [*_queue_evidence(mine.to_dicts(), table.to_dicts(), names), *wait_evidence(facts)],
            pipeline_saving(facts),
            part=WAITING,
            basis=pipeline_basis(facts),
            confidence=0.7,
            subject="/".join(names),
            values=values | paced | waiting_values(facts),
            urgency=pipeline_pressure(facts),
        )

    return Rule(name, judge, (STEP_PHASES,), explains=("iteration_interval", "data_processing"), framework=MINDSPORE)


def _queue_evidence(mine: list[dict[str, object]], table: list[dict[str, object]], names: tuple[str, ...]) -> Iterator[Evidence]:
    usage = {row["id"]: row["usage"] for row in table}
    for row, name in zip(mine, names, strict=True):
        if isinstance(row["usage"], float):
            yield Evidence("output_usage", 100 * row["usage"], "%", places=(name,), per_step=False)
        children = row["children"] if isinstance(row["children"], list) else []
        inputs = [value for child in children if isinstance(value := usage.get(child), float)]
        if inputs:
            yield Evidence("input_usage", 100 * min(inputs), "%", places=(name,), per_step=False)
        if isinstance(row["workers"], int):
            yield Evidence("workers", row["workers"], "count", places=(name,), per_step=False)


slow_source = _queue_rule("slow_source", SOURCE)
slow_generator = _queue_rule("slow_generator", GENERATOR)
slow_map = _queue_rule("slow_map", MAP)
slow_batch = _queue_rule("slow_batch", BATCH)
slow_operation = _queue_rule("slow_operation", OTHER)


@rule(rests_on=(STEP_PHASES,), framework=MINDSPORE)
def queue_drop(facts: Facts, *, least: float = queues.DROP) -> Iterator[Finding]:
    """A queue is clearly emptier than the one before it: a weak sign that the operation between them is slow.

    More than 10 points of usage between input and output queue, of operations that the strict rules do not name.

    Of a pipeline that keeps up no drop matters.
    """
    if keeps_up(facts.trace):
        return
    table = mindspore_operations(facts)
    if not table.height:
        return
    dropped = queues.queue_drops(table, least=least).filter(~pl.col("id").is_in(bottlenecks(table)))
    if not dropped.height:
        return
    names = names_of(table, dropped["id"].to_list())
    evidence = [
        Evidence("usage_drop", 100 * drop, "%", places=(name,), per_step=False)
        for name, drop in zip(names, dropped["drop"].to_list(), strict=True)
    ]
    yield facts.make_finding(
        queue_drop.name, evidence, confidence=0.3, subject="/".join(names), values={"operations": ", ".join(names)}
    )


#: what the strict rules of queues (``bottleneck``) say, too
_SAID_BY_QUEUES = (queues.SLOW_SOURCE, queues.SLOWER_THAN_INPUT)
_LIMIT = {
    queues.MORE_WORKERS: HIGH,
    queues.FEWER_WORKERS: LOW,
    queues.SLOW_SOURCE: MEDIUM,
    queues.HOST_TOO_SLOW: HIGH,
    queues.SLOWER_THAN_INPUT: MEDIUM,
}
_LOADED = (queues.MORE_WORKERS, queues.FEWER_WORKERS)
_WORDS = {
    queues.MORE_WORKERS: "worker_load",
    queues.FEWER_WORKERS: "worker_load",
    queues.SLOW_SOURCE: "output_usage",
    queues.HOST_TOO_SLOW: "queue_empty_share",
    queues.SLOWER_THAN_INPUT: "usage_drop",
}


def _load_rule(name: str, kind: str) -> Rule:
    """The rule about one kind of finding of ``pipeline_queues.analyse_operations``."""

    def judge(facts: Facts) -> Iterator[Finding]:
        """One finding for all operations of the kind; surer where one of them is the slowest of the pipeline.

        Of a pipeline that keeps up, only workers that it does not need are told.
        """
        table = mindspore_operations(facts)
        if not table.height or (kind != queues.FEWER_WORKERS and keeps_up(facts.trace)):
            return
        loads, slowest = queues.analyse_operations(facts.trace)
        strict = bottlenecks(table) if kind in _SAID_BY_QUEUES else []
        mine = [load for load in loads if load.kind == kind and load.id not in strict]
        if not mine:
            return
        evidence = [
            Evidence(
                _WORDS[kind],
                load.value if kind in _LOADED else 100 * load.value,
                "%",
                places=(load.name_with_number,),
                per_step=False,
            )
            for load in mine
        ]
        is_slowest = slowest in [load.id for load in mine]
        if is_slowest:
            operation_names = [load.name_with_number for load in mine if load.id == slowest]
            evidence.append(Evidence("slowest_operation", 0, "", places=tuple(operation_names), per_step=False))
        names = ", ".join(load.name_with_number for load in mine)
        urgency = at_most(pipeline_pressure(facts), _LIMIT[kind])
        yield facts.make_finding(
            name,
            evidence,
            confidence=0.7 if is_slowest else 0.5,
            subject=names.replace(", ", "/"),
            values={"operations": names},
            urgency=urgency,
        )

    return Rule(name, judge, (STEP_PHASES,), framework=MINDSPORE)


busy_workers = _load_rule("busy_workers", queues.MORE_WORKERS)
idle_workers = _load_rule("idle_workers", queues.FEWER_WORKERS)
underfilled_source = _load_rule("underfilled_source", queues.SLOW_SOURCE)
starved_device_queue = _load_rule("starved_device_queue", queues.HOST_TOO_SLOW)
slower_than_input = _load_rule("slower_than_input", queues.SLOWER_THAN_INPUT)
