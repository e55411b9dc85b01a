"""What the rules of this family share: names of places and sums per step."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence
from steplens.analysis.tools.names import each
from steplens.analysis.tools.overlap import merged, subtract
from steplens.trace.building.devices import NPU
from steplens.trace.building.extents import table_extents
from steplens.trace.schema import CORE_CUDA, CORE_ROCM

#: tasks below that are mostly start-up, whatever they do
SHORT_NS = 20_000
_LEAST_SHARE = 0.01
_LONGEST = 60
#: values of a column that evidence names: so many at least, and more until the others are less than this share
_NAMED, _MOST_NAMED, _OTHERS_SHARE = 3, 8, 1 / 3
_FUNCTOR = re.compile(r"(\w*[Ff]unctor\w*|\w+_kernel_impl\w*)")
#: variable with the settings of PyTorch's allocator of device memory
_SETTINGS = {NPU: "PYTORCH_NPU_ALLOC_CONF", CORE_CUDA: "PYTORCH_CUDA_ALLOC_CONF", CORE_ROCM: "PYTORCH_HIP_ALLOC_CONF"}


def growing_segments(device: str) -> str:
    """The line that lets the allocator's segments grow; empty on devices whose allocator has no such setting that is known."""
    setting = _SETTINGS.get(device)
    return f"+{setting}=expandable_segments:True python train.py" if setting else ""


def torch_module(device: str) -> str:
    """The module of ``torch`` for a kind of device; that of a backend of one's own has its name."""
    return "cuda" if device in (CORE_CUDA, CORE_ROCM) else device.lower()


def short_name(name: str) -> str:
    """A kernel's name for the eye: ``elementwise_kernel<MulFunctor>`` of a whole C++ signature."""
    plain = name.removeprefix("void ")
    function = re.split(r"[<(]", plain, maxsplit=1)[0].rpartition("::")[2] or plain
    functor = _FUNCTOR.search(plain[len(function) :]) if "<" in plain else None
    return (f"{function}<{functor[0]}>" if functor else function)[:_LONGEST]


def top_values(rows: pl.DataFrame, by: str, weight: str = "duration_ns", count: int = 3) -> tuple[str, ...]:
    """The values of ``by`` that most of ``weight`` goes to."""
    sums = rows.group_by(by).agg(pl.col(weight).sum()).with_columns(pl.col(by).cast(pl.String)).drop_nulls(by)
    values = sums.sort(weight, by, descending=[True, False])[by].head(count).to_list()
    return tuple(dict.fromkeys(map(short_name, values))) if by == "name" else tuple(values)


def with_top_values(evidence: Evidence, rows: pl.DataFrame, by: str, weight: str = "duration_ns") -> Evidence:
    """Evidence with the values of ``by`` that most of ``weight`` goes to, and how many others there are.

    Of figures that the values do not add up to; see ``timed_evidence`` and ``counted_evidence`` for those that they do.
    """
    with_place = rows.with_columns(place=_place_names(rows, by)).filter(pl.col("place").str.len_chars() > 0)
    sums = with_place.group_by("place").agg(pl.col(weight).sum()).sort(weight, "place", descending=[True, False])
    return replace(evidence, places=tuple(sums["place"].head(_NAMED)), other_places=max(sums.height - _NAMED, 0))


def named_places(figures: Sequence[float], total: float, least: int = _NAMED) -> int:
    """How many of the places that a figure goes to are named.

    Args:
        figures: of each, most important first.
        total: the figure.
        least: so many at least; more until the others are less than a third of the figure, but no more than eight.
    """
    count = min(least, len(figures))
    while count < min(len(figures), _MOST_NAMED) and total - sum(figures[:count]) >= _OTHERS_SHARE * total:
        count += 1
    return count


def most_of_others(figures: Sequence[float], total: float, name_count: int) -> float:
    """``Evidence.other_most`` where ``name_count`` of the places are named."""
    left = total - sum(figures[:name_count])
    return min(max(figures[name_count:]), left) if len(figures) > name_count + 1 and left >= _OTHERS_SHARE * total else 0.0


def timed_evidence(
    facts: Facts,
    what: str,
    rows: pl.DataFrame,
    by: str,
    *,
    column: str = "duration_ns",
    weight: str = "",
    on_device: bool = True,
    least: int = _NAMED,
) -> Evidence:
    """What a step has of ``column`` of some rows, with the values of ``by`` that it goes to, and how many others there are.

    Args:
        facts: of the trace.
        what: kind of evidence.
        rows: with step.
        by: kernels that have the same short name are one, of "name".
        column: a length, ns.
        weight: what tells which values are named; ``column`` where it is empty. In order they are by ``column`` in any case.
        on_device: as in ``Facts.typical_ns``.
        least: how many are named at least, see ``named_places``.
    """
    with_place = rows.with_columns(place=_place_names(rows, by)).drop_nulls("place")
    sums = with_place.group_by("place").agg(pl.col(weight or column).sum())
    longest = sums.sort(weight or column, "place", descending=[True, False])["place"].to_list()
    total_ns = facts.typical_ns(rows, column, on_device=on_device)
    length_by_place = facts.typical_of_each(with_place, "place", column, on_device=on_device)
    if not weight:
        # of sums that are nearly equal the typical ones may be the other way around
        longest.sort(key=lambda place: -length_by_place.get(place, 0.0))
    lengths = [length_by_place.get(place, 0.0) for place in longest]
    name_count = named_places(lengths, total_ns, least)
    places = tuple(sorted(longest[:name_count], key=lambda place: -length_by_place.get(place, 0.0)))
    places_ns = tuple(length_by_place.get(place, 0.0) for place in places)
    evidence = Evidence(what, total_ns, "ns", steps_of(rows), places, places_ns=places_ns)
    if not longest[name_count:]:
        return evidence
    return replace(
        evidence,
        other_places=len(longest) - name_count,
        other_places_ns=max(total_ns - sum(places_ns), 0.0),
        other_most=most_of_others(lengths, total_ns, name_count),
    )


def counted_evidence(what: str, rows: pl.DataFrame, by: str, steps: int, *, weight: str = "duration_ns") -> Evidence:
    """How many of some rows a step has, with the values of ``by`` that most of ``weight`` goes to; see ``timed_evidence``."""
    with_place = rows.with_columns(place=_place_names(rows, by)).drop_nulls("place")
    sums = with_place.group_by("place").agg(pl.col(weight).sum(), rows=pl.len()).sort(weight, "place", descending=[True, False])
    counts, total = [number / max(steps, 1) for number in sums["rows"]], rows.height / max(steps, 1)
    name_count = named_places(counts, total)
    # chosen by weight, in order of what is said of them
    order = sorted(range(name_count), key=lambda row: -counts[row])
    places, places_count = tuple(sums["place"][row] for row in order), tuple(counts[row] for row in order)
    evidence = Evidence(what, total, "count", steps_of(rows), places, places_count=places_count)
    return replace(evidence, other_places=sums.height - name_count, other_most=most_of_others(counts, total, name_count))


def _place_names(rows: pl.DataFrame, by: str) -> pl.Expr:
    text = pl.col(by).cast(pl.String)
    if by != "name":
        return text
    names = rows[by].cast(pl.String).drop_nulls().unique()
    return text.replace_strict({name: short_name(name) for name in names}, default=None, return_dtype=pl.String)


def steps_of(rows: pl.DataFrame) -> tuple[int, ...]:
    """The steps of some rows, in order."""
    return tuple(rows["step"].drop_nulls().unique().sort().to_list())


def per_step(facts: Facts, rows: pl.DataFrame, column: str = "duration_ns") -> float:
    """What a step usually has of a column of some rows of the device, see ``Facts.typical_ns``."""
    return facts.typical_ns(rows, column, on_device=True)


def exposed_time(facts: Facts, rows: pl.DataFrame) -> float:
    """When these tasks run and the device neither computes nor communicates, per step."""
    operations = facts.trace.required("communication").filter(pl.col("step").is_in(list(facts.numbers)))
    times = ("start_ns", "end_ns")
    work = pl.concat([facts.computing.select(times), operations.select(times).drop_nulls().collect()])
    return facts.typical_length_ns(subtract(merged(rows), merged(work)))


def has_match(rows: pl.DataFrame, pattern: str, column: str = "name") -> pl.Expr:
    """Whether a regular expression is found in ``column``; asked once per different text, not once per row. Never null."""
    texts = each(rows[column])
    return pl.col(column).is_in(texts.filter(texts.cast(pl.String).str.contains(pattern)).implode()).fill_null(False)


def matching_rows(rows: pl.DataFrame, pattern: str, column: str = "name") -> pl.DataFrame:
    """The rows in whose ``column`` a regular expression is found."""
    return rows.filter(has_match(rows, pattern, column))


def has_communication(facts: Sequence[Facts]) -> bool:
    """Whether any communication was recorded."""
    return any(extent.rows for part in facts if (extent := table_extents(part.trace).get("communication")) is not None)


def is_significant(facts: Facts, length_ns: float) -> bool:
    """Whether a time per step is worth a finding: 1 % of what the device computes in a step."""
    return length_ns > 0 and length_ns >= _LEAST_SHARE * per_step(facts, facts.computing)


def with_source_lines(facts: Facts, rows: pl.DataFrame) -> pl.DataFrame:
    """Tasks with the innermost source ``line`` of the operators that launched them; null where no stack was recorded."""
    line = pl.col("stack").cast(pl.String).str.split(";").list.first()
    lines = facts.trace.required("ops").select(op="id", line=line).filter(pl.col("line").str.len_chars() > 0).collect()
    return rows.join(lines, on="op", how="left")


def with_innermost_line(rows: pl.DataFrame) -> pl.DataFrame:
    """Calls with the innermost source ``line`` of their stack; null or empty where there is none."""
    return rows.with_columns(line=pl.col("stack").cast(pl.String).str.split(";").list.first())


def costliest_lines(rows: pl.DataFrame, count: int = 3) -> tuple[str, ...]:
    """The innermost source lines of the stacks that most of ``duration_ns`` goes to."""
    return top_values(with_innermost_line(rows).filter(pl.col("line").str.len_chars() > 0), "line", count=count)
