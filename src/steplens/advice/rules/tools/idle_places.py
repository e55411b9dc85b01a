"""Between which operators a device idles, as evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from steplens.advice.finding import Evidence, Stretch
from steplens.advice.rules.tools.tasks import most_of_others, named_places, short_name
from steplens.analysis.device import idle
from steplens.trace.trace import Trace

#: between the operators of a pair
BETWEEN = " → "
#: places that are named at least
_NAMED = 6


#: other causes of idle time than a host that is late, and their words
_BESIDES = {
    idle.DATA: "besides_data", idle.SYNCHRONIZATION: "besides_synchronization", idle.BETWEEN_KERNELS: "besides_between_kernels",
    idle.DEPENDENCY: "besides_dependency", idle.UNKNOWN: "besides_unknown",
}  # fmt: skip
#: of a smaller share of a step nothing is said
_LEAST_SHARE = 0.001


def idle_besides(lengths: Mapping[str, float], step_ns: float, *, of_mean: bool = False) -> list[Evidence]:
    """What a device idles in a step besides waiting for the host, by cause, longest first: all of its idle time is told.

    Args:
        lengths: ``analysis.device.idle.CAUSES`` -> ns in a step.
        step_ns: how long the step takes.
        of_mean: whether these are of the mean step.
    """
    besides = {cause: ns for cause, ns in lengths.items() if cause in _BESIDES and ns >= max(_LEAST_SHARE * step_ns, 1.0)}
    longest_first = sorted(besides, key=lambda cause: -besides[cause])
    return [Evidence(_BESIDES[cause], besides[cause], "ns", of_mean=of_mean) for cause in longest_first]


def place_evidence(traces: Sequence[Trace], places: pl.DataFrame, *, of_mean: bool = False) -> list[Evidence]:
    """Between which operators, or kernels, a device idles for the host: of one step, then between two of them.

    Args:
        traces: of one run.
        places: ``analysis.device.idle_places.idle_places`` of them.
        of_mean: whether these are of the mean step.
    """
    in_step, between = places.filter("is_inside"), places.filter(~pl.col("is_inside"))
    evidence = []
    if in_step.height:
        lengths, idle_ns = in_step["idle_ns"].to_list(), float(in_step["idle_ns"].sum())
        name_count = named_places(lengths, idle_ns, _NAMED)
        rows, unnamed = in_step[:name_count], in_step[name_count:]
        stretches = rows.select("trace", "step", "start_ns", "end_ns").iter_rows()
        evidence.append(
            Evidence(
                "idle_in_step",
                idle_ns,
                "ns",
                places=tuple(BETWEEN.join(map(short_name, pair)) for pair in rows.select("before", "after").iter_rows()),
                places_ns=tuple(rows["idle_ns"]),
                places_count=tuple(rows["count"]),
                stretches=tuple(Stretch(traces[number].rank, *moments) for number, *moments in stretches),
                whole_ns=float(places["idle_ns"].sum()),
                other_places=unnamed.height,
                other_places_ns=float(unnamed["idle_ns"].sum()),
                other_most=most_of_others(lengths, idle_ns, name_count),
                of_mean=of_mean,
            )
        )
    if between.height:
        evidence.append(Evidence("idle_between_steps", float(between["idle_ns"].sum()), "ns", of_mean=of_mean))
    return evidence
