"""A step of two versions beside each other: calls that are the same in both are matched in order and inwards."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from steplens.comparison.alignment import aligned_steps
from steplens.comparison.alignment.aligned_steps import CALL, MOST_PAIRS, PHASE, StepPart, align_steps
from steplens.comparison.alignment.sequences import match_in_order
from steplens.comparison.alignment.step_calls import StepCalls


def test_the_longest_common_subsequence_is_matched() -> None:
    assert match_in_order("abcdef", "abxdef") == [(0, 0), (1, 1), (3, 3), (4, 4), (5, 5)]
    assert match_in_order("abcbdab", "bdcaba") in (
        [(1, 0), (2, 2), (3, 4), (5, 5)],
        [(1, 0), (2, 2), (5, 3), (6, 4)],
        [(1, 0), (4, 1), (5, 3), (6, 4)],
    )
    assert match_in_order("", "ab") == [] == match_in_order("ab", "cd")
    assert match_in_order("aa", "aaaa") == [(0, 0), (1, 1)]
    random = np.random.default_rng(0)
    for _ in range(30):
        first, second = ("".join(random.choice(list("abc"), random.integers(0, 9))) for _ in range(2))
        pairs = match_in_order(first, second)
        assert all(first[one] == second[other] for one, other in pairs)
        assert all(one[0] < other[0] and one[1] < other[1] for one, other in itertools.pairwise(pairs))
        assert len(pairs) == length_of_common(first, second)


def length_of_common(first: str, second: str) -> int:
    if not first or not second:
        return 0
    if first[0] == second[0]:
        return 1 + length_of_common(first[1:], second[1:])
    return max(length_of_common(first[1:], second), length_of_common(first, second[1:]))


def calls_of(*calls: tuple[str, int, int, int], phases: Sequence[tuple[str, int, int]] = ()) -> StepCalls:
    """Calls by name, start, end and the row of their caller."""
    start, end, parent = (np.array([call[place] for call in calls], dtype=np.int64) for place in (1, 2, 3))
    none = np.full(len(calls), -1)
    return StepCalls([call[0] for call in calls], start, end, parent, np.zeros(len(calls), dtype=np.int64), none, none, phases)


def names_of(parts: Sequence[StepPart], others: Sequence[StepPart]) -> list[tuple[str, str | None]]:
    """Each call with the name of its match."""
    return [(part.name, others[part.match].name if part.match >= 0 else None) for part in parts if part.kind == CALL]


def test_long_calls_are_looked_into_on_both_sides_alike() -> None:
    before = calls_of(
        ("model", 0, 90, -1), ("optimizer", 90, 100, -1), ("linear", 0, 40, 0), ("relu", 40, 50, 0), ("linear", 50, 90, 0)
    )
    after = calls_of(
        ("model", 0, 120, -1), ("optimizer", 120, 130, -1), ("linear", 0, 70, 0), ("gelu", 70, 80, 0), ("linear", 80, 120, 0)
    )
    first, second = align_steps(before, after)
    assert names_of(first, second) == [("linear", "linear"), ("relu", None), ("linear", "linear"), ("optimizer", "optimizer")]
    assert names_of(second, first) == [("linear", "linear"), ("gelu", None), ("linear", "linear"), ("optimizer", "optimizer")]
    assert all(second[part.match].match == place for place, part in enumerate(first) if part.match >= 0)
    assert first[0].callers == ("model",) and (first[0].start, first[0].end) == (0, 40)


def test_a_call_whose_insides_differ_stays_whole() -> None:
    before = calls_of(("attention", 0, 100, -1), ("matmul", 0, 50, 0), ("softmax", 50, 100, 0))
    after = calls_of(("attention", 0, 60, -1), ("flash_attention", 0, 55, 0))
    first, second = align_steps(before, after)
    assert names_of(first, second) == [("attention", "attention")]


def test_phases_without_a_match_are_found_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step may have thousands of phases."""

    class Pairs(list[tuple[int, int]]):
        readings = 0

        def __iter__(self) -> Iterator[tuple[int, int]]:
            Pairs.readings += 1
            return super().__iter__()

    monkeypatch.setattr(aligned_steps, "match_in_order", lambda before, after: Pairs(match_in_order(before, after)))
    phases = [("between" if number % 2 else "forward", 10 * number, 10 * number + 5) for number in range(50)]
    first, second = align_steps(calls_of(phases=phases), calls_of(phases=phases[1:]))
    assert (len(first), len(second), sum(part.match < 0 for part in first)) == (50, 49, 1)
    assert Pairs.readings < 10


def test_phases_are_matched_and_answers_are_bounded() -> None:
    phases = [("forward", 0, 40), ("backward", 40, 90)]
    first, _ = align_steps(
        calls_of(("a", 0, 90, -1), phases=phases), calls_of(("a", 0, 90, -1), phases=[("data", 0, 3), *phases])
    )
    assert [(part.name, part.match) for part in first if part.kind == PHASE] == [("forward", 1), ("backward", 2)]
    many = calls_of(*((f"call{number}", 10 * number, 10 * number + 10, -1) for number in range(2000)))
    assert len(align_steps(many, many)[0]) == MOST_PAIRS
    empty = calls_of()
    assert align_steps(empty, empty) == ([], [])
