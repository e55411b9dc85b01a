"""The operation of a data pipeline that holds up the others, by its queues; one rule for each kind of remedy uses this."""

from __future__ import annotations

from collections.abc import Iterator

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding
from steplens.advice.rule import Rule
from steplens.advice.rules.tools.pressure import mindspore_operations, names_of, pressure, wait_evidence
from steplens.analysis.data_loading.data_pipeline import HIGH_USAGE, LOW_USAGE, bottlenecks
from steplens.analysis.data_loading.pipeline_verdict import keeps_up
from steplens.trace.health import STEP_PHASES

GENERATOR, MAP, BATCH, SOURCE, OTHER = "generator", "map", "batch", "source", "other"


def kind_of(type_: str, is_source: bool) -> str:
    """What can be done about an operation; a generator is a source, too, and its remedies say more."""
    plain = type_.removesuffix("Op").removesuffix("Dataset").lower()
    for kind in (GENERATOR, MAP, BATCH):
        if plain == kind or (kind == BATCH and plain in ("paddedbatch", "bucketbatchbylength")):
            return kind
    return SOURCE if is_source else OTHER


def rule(name: str, kind: str) -> Rule:
    """The rule about bottlenecks of one kind."""

    def judge(facts: Facts, *, high: float = HIGH_USAGE, low: float = LOW_USAGE) -> Iterator[Finding]:
        """See ``data_pipeline.bottlenecks``; what the queues say is certain, whether it costs time is ``pressure``'s to say.

        Of a pipeline that keeps up no operation holds up anything, however full its queues are.
        """
        if keeps_up(facts.trace):
            return
        table = mindspore_operations(facts)
        if not table.height:
            return
        found = set(bottlenecks(table, high=high, low=low))
        mine = table.filter(table["id"].is_in(sorted(found)))
        mine = mine.filter([kind_of(row["type"], not row["children"]) == kind for row in mine.iter_rows(named=True)])
        if not mine.height:
            return
        names = names_of(table, mine["id"].to_list())
        yield Finding(
            rule=name,
            subject="/".join(names),
            confidence=0.7,
            evidence=(*_queues(mine.to_dicts(), table.to_dicts(), names), *wait_evidence(facts)),
            step_ns=facts.step_ns,
            values={"operations": ", ".join(names), "workers": ", ".join(str(count) for count in mine["workers"].to_list())},
            urgency=pressure(facts),
        )

    return Rule(name, judge, (STEP_PHASES,))


def _queues(mine: list[dict[str, object]], table: list[dict[str, object]], names: tuple[str, ...]) -> Iterator[Evidence]:
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
