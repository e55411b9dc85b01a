"""The operators of a usual step in order of time, and what of two such sequences has no counterpart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from steplens.analysis.steps.choice import chosen_steps
from steplens.analysis.steps.phases import phase_of_calls
from steplens.analysis.steps.summary import usual_step_times
from steplens.analysis.steps.training_thread import training_thread
from steplens.analysis.tools.once import once_per_trace
from steplens.comparison.causes.calls import SEPARATOR, Calls, read_calls
from steplens.comparison.paths import Numbers
from steplens.trace.schema import SCOPE_BACKWARD
from steplens.trace.trace import Trace

#: between phase, module and path of a token
BETWEEN = "\x1e"
#: of a longer step it is not kept
LONGEST = 20_000
#: sequences that differ by more operators are not laid side by side
_MOST_APART = 1_500
#: replaced operators with so few of both sides between them, such as views, are one change
_SHORT = 3
NO_ANSWER = -1


@dataclass(frozen=True)
class OperatorSequence:
    """The outermost operators of a usual step in order of time, a token each.

    Attributes:
        tokens: phase, module and path, joined by ``BETWEEN``.
        answers: of a node of the backward pass, the token that it answers to; ``NO_ANSWER`` where that is not known.
    """

    tokens: tuple[str, ...]
    answers: tuple[int, ...]


@dataclass(frozen=True)
class Stretch:
    """What one side has at a place, and the other has not: places in both sequences, either of which may be none."""

    before: tuple[int, ...]
    after: tuple[int, ...]


@once_per_trace
def usual_sequence(trace: Trace) -> OperatorSequence | None:
    """The outermost operators as most of the usual steps have them; None without operators, or of very long steps."""
    calls, thread = read_calls(trace), training_thread(trace)
    steps = usual_step_times(trace)["step"].to_list() if chosen_steps(trace).steps else []
    if calls is None or thread is None or not steps:
        return None
    rows = calls.rows
    is_backward = (rows["scope"] == SCOPE_BACKWARD).fill_null(False)
    threads = {thread.tid, *rows["tid"].filter(is_backward & (rows["pid"] == thread.pid)).unique().to_list()}
    is_top = (calls.top == np.arange(rows.height)) & rows["step"].is_in(steps).fill_null(False).to_numpy()
    is_top &= ((rows["pid"] == thread.pid) & rows["tid"].is_in(list(threads))).fill_null(False).to_numpy()
    tops = np.flatnonzero(is_top)
    tops = tops[np.argsort(rows["start_ns"].to_numpy()[tops], kind="stable")]
    frame = pl.DataFrame(
        {
            "row": tops,
            "step": rows["step"].gather(pl.Series(tops)),
            "phase": phase_of_calls(trace).gather(pl.Series(tops)),
            "module": rows["module"].gather(pl.Series(tops)).cast(pl.String).fill_null(""),
            "path": pl.Series(calls.path_texts).gather(pl.Series(calls.path[tops])),
        }
    ).with_columns(token=pl.concat_str("phase", "module", "path", separator=BETWEEN))
    by_step = frame.with_columns(code=pl.col("token").rank("dense")).partition_by("step", maintain_order=True)
    if not by_step:
        return None
    texts = [group["code"].to_numpy().tobytes() for group in by_step]
    most = Counter(texts).most_common(1)[0][0]
    usual = by_step[texts.index(most)]
    if usual.height > LONGEST:
        return None
    return OperatorSequence(tuple(usual["token"].to_list()), _find_answers(calls, usual["row"].to_numpy()))


def _find_answers(calls: Calls, rows: Numbers) -> tuple[int, ...]:
    """Which of the operators each of them answers to, by its number in autograd's sequence or that of a call inside of it."""
    sequence = calls.rows["sequence"].fill_null(-1).to_numpy()
    scope = calls.rows["scope"].fill_null(0).to_numpy()
    place_of_row = np.full(calls.rows.height, NO_ANSWER)
    place_of_row[rows] = np.arange(len(rows))
    inner_calls = np.flatnonzero((calls.top >= 0) & (sequence >= 0))
    inner_calls = inner_calls[place_of_row[calls.top[inner_calls]] >= 0]
    place, is_node = place_of_row[calls.top[inner_calls]], scope[inner_calls] == SCOPE_BACKWARD
    # operators that make no node have the number of the next one that does: the last one is meant
    forward = dict(zip(sequence[inner_calls][~is_node].tolist(), place[~is_node].tolist(), strict=True))
    answers = [NO_ANSWER] * len(rows)
    for number, node in zip(sequence[inner_calls][is_node].tolist(), place[is_node].tolist(), strict=True):
        if forward.get(number, node) != node:
            answers[node] = forward[number]
    return tuple(answers)


def align_sequences(before: OperatorSequence, after: OperatorSequence) -> list[Stretch] | None:
    """What has no counterpart, in order of time; None of sequences that are too unlike.

    Counterparts are a longest common subsequence (Myers 1986). What is replaced in forward and in backward is one stretch.
    """
    pairs = _common_places(before.tokens, after.tokens)
    if pairs is None:
        return None
    stretches = _stretches_between(pairs, before, after)
    return _join_answers(stretches, before, after)


def _common_places(before: Sequence[str], after: Sequence[str]) -> list[tuple[int, int]] | None:
    first, last = 0, 0
    shorter = min(len(before), len(after))
    while first < shorter and before[first] == after[first]:
        first += 1
    while last < shorter - first and before[-1 - last] == after[-1 - last]:
        last += 1
    middle = _myers_pairs(before[first : len(before) - last], after[first : len(after) - last])
    if middle is None:
        return None
    pairs = [(place, place) for place in range(first)]
    pairs += [(first + old, first + new) for old, new in middle]
    return pairs + [(len(before) - place, len(after) - place) for place in range(last, 0, -1)]


def _myers_pairs(before: Sequence[str], after: Sequence[str]) -> list[tuple[int, int]] | None:
    """Pairs of places of a longest common subsequence; None where more than ``_MOST_APART`` have no counterpart."""
    reach = {1: 0}
    trail: list[dict[int, int]] = []
    for apart in range(min(len(before) + len(after), _MOST_APART) + 1):
        trail.append(dict(reach))
        for diagonal in range(-apart, apart + 1, 2):
            is_down = diagonal == -apart or (diagonal != apart and reach[diagonal - 1] < reach[diagonal + 1])
            old = reach[diagonal + 1] if is_down else reach[diagonal - 1] + 1
            new = old - diagonal
            while old < len(before) and new < len(after) and before[old] == after[new]:
                old, new = old + 1, new + 1
            reach[diagonal] = old
            if old >= len(before) and new >= len(after):
                return _trace_back(trail, len(before), len(after))
    return None


def _trace_back(trail: Sequence[dict[int, int]], old: int, new: int) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    for apart in range(len(trail) - 1, -1, -1):
        reach, diagonal = trail[apart], old - new
        is_down = diagonal == -apart or (diagonal != apart and reach[diagonal - 1] < reach[diagonal + 1])
        from_diagonal = diagonal + 1 if is_down else diagonal - 1
        from_old = reach[from_diagonal] if apart else 0
        from_new = from_old - from_diagonal if apart else 0
        while old > from_old and new > from_new:
            old, new = old - 1, new - 1
            pairs.append((old, new))
        old, new = from_old, from_new
    return pairs[::-1]


def _stretches_between(pairs: Sequence[tuple[int, int]], before: OperatorSequence, after: OperatorSequence) -> list[Stretch]:
    """What lies between counterparts; of one phase, and so few counterparts apart that they are one change."""
    ends = [*pairs, (len(before.tokens), len(after.tokens))]
    stretches: list[Stretch] = []
    old, new, since, last_phase = 0, 0, _SHORT + 1, ""
    for old_end, new_end in ends:
        alone = Stretch(tuple(range(old, old_end)), tuple(range(new, new_end)))
        for piece in _split_phases(alone, before, after):
            phase = _phase_of(piece, before, after)
            if stretches and since <= _SHORT and phase == last_phase:
                last = stretches.pop()
                piece = Stretch(last.before + piece.before, last.after + piece.after)
            stretches.append(piece)
            since, last_phase = 0, phase
        since += 1
        old, new = old_end + 1, new_end + 1
    return stretches


def _phase_of(stretch: Stretch, before: OperatorSequence, after: OperatorSequence) -> str:
    token = before.tokens[stretch.before[0]] if stretch.before else after.tokens[stretch.after[0]]
    return token.partition(BETWEEN)[0]


def _split_phases(stretch: Stretch, before: OperatorSequence, after: OperatorSequence) -> list[Stretch]:
    phases: dict[str, tuple[list[int], list[int]]] = {}
    for number, (sequence, places) in enumerate(((before, stretch.before), (after, stretch.after))):
        for place in places:
            phases.setdefault(sequence.tokens[place].partition(BETWEEN)[0], ([], []))[number].append(place)
    return [Stretch(tuple(old), tuple(new)) for old, new in phases.values()]


def _join_answers(stretches: Sequence[Stretch], before: OperatorSequence, after: OperatorSequence) -> list[Stretch]:
    """What nodes of the backward pass answer to lies in the same stretch as they."""
    group = list(range(len(stretches)))

    def find_root(number: int) -> int:
        while group[number] != number:
            number = group[number]
        return number

    for sequence, side in ((before, 0), (after, 1)):
        owner = {place: number for number, stretch in enumerate(stretches) for place in (stretch.before, stretch.after)[side]}
        for place, number in owner.items():
            answered = owner.get(sequence.answers[place])
            if answered is not None:
                group[find_root(number)] = find_root(answered)
    joined: dict[int, Stretch] = {}
    for number, stretch in enumerate(stretches):
        root = find_root(number)
        joined_stretch = joined.get(root, Stretch((), ()))
        joined[root] = Stretch(joined_stretch.before + stretch.before, joined_stretch.after + stretch.after)
    return [Stretch(tuple(sorted(stretch.before)), tuple(sorted(stretch.after))) for stretch in joined.values()]


def token_parts(token: str) -> tuple[str, str, tuple[str, ...]]:
    """Phase, module and path of a token."""
    phase, module, path = token.split(BETWEEN, 2)
    return phase, module, tuple(path.split(SEPARATOR))
