"""The stages of a pipeline, from whom each rank sends to and receives from."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from steplens.analysis.tools.parallel import PIPELINE_PARALLEL, layout
from steplens.analysis.tools.pipeline import Pipeline, bubble_share, find_pipeline
from steplens.trace.trace import Trace

from ..writers.builder import BASE_NS, build

SEND, RECEIVE = "send", "receive"


def rank_of(rank: int, messages: Sequence[tuple[str, int]], size: int) -> Trace:
    """A rank with these messages in a step, in order: what it does and with whom."""
    rows = [
        {"name": kind, "kind": kind, "operation": kind, "group": "9", "peer": peer, "step": 3, "bytes": 8,
         "start_ns": BASE_NS + 100 * place, "end_ns": BASE_NS + 100 * place + 50}
        for place, (kind, peer) in enumerate(messages)
    ]  # fmt: skip
    return build(meta={"rank": rank, "world_size": size}, communication=rows)


def chain(ranks: Sequence[int], batches: int, size: int) -> list[Trace]:
    """Ranks of one pipeline that do all forwards, then all backwards."""
    traces = []
    for place, rank in enumerate(ranks):
        messages: list[tuple[str, int]] = []
        for ahead, behind in ((-1, 1), (1, -1)):
            for _ in range(batches):
                messages += [(RECEIVE, ranks[place + ahead])] if 0 <= place + ahead < len(ranks) else []
                messages += [(SEND, ranks[place + behind])] if 0 <= place + behind < len(ranks) else []
        traces.append(rank_of(rank, messages, size))
    return traces


def test_stages_chains_and_micro_batches() -> None:
    """Ranks 0, 3, 1 hold one copy of the model, 2, 4, 5 the other: nothing follows from their numbers."""
    traces = [*chain([0, 3, 1], 5, 6), *chain([2, 4, 5], 5, 6)]
    found = find_pipeline(traces)
    assert found == Pipeline({0: 1, 3: 2, 1: 3, 2: 1, 4: 2, 5: 3}, {0: 0, 3: 0, 1: 0, 2: 2, 4: 2, 5: 2}, 3, 5)
    assert found.implied_share == pytest.approx(2 / 7)
    # each of both hops costs its share of computing, collectives and passing on, which a rank within does on two sides
    assert found.implied_wait(50.0, 10.0, 8.0) == pytest.approx(2 * (10 + 2 + 8 / 5 / (4 / 3)))
    job = layout(traces)
    assert (job.mode, job.stages) == (PIPELINE_PARALLEL, 3)
    assert [job.stage_of(rank) for rank in range(6)] == [1, 3, 1, 2, 2, 3]


def test_stages_that_take_turns() -> None:
    """Three stages with two parts of the model each: the last one sends to the first, too."""
    first = [(SEND, 1)] * 4 + [(RECEIVE, 2), (SEND, 1)] * 4
    middle = [(RECEIVE, 0), (SEND, 2)] * 8
    last = [(RECEIVE, 1), (SEND, 0)] * 4 + [(RECEIVE, 1)] * 4
    traces = [rank_of(rank, messages, 3) for rank, messages in enumerate((first, middle, last))]
    found = find_pipeline(traces)
    assert found is not None
    assert (found.stages, found.batches, found.chunks) == (3, 4, 2)
    assert found.implied_share == pytest.approx(2 / 10)


def test_what_is_no_pipeline_has_no_stages() -> None:
    assert find_pipeline([]) is None
    # a rank in the middle was not recorded: who is behind it nobody knows
    whole = chain([0, 1, 2, 3], 2, 4)
    assert find_pipeline(whole) is not None
    assert find_pipeline([whole[0], whole[2], whole[3]]) is None
    assert layout([whole[0], whole[2], whole[3]]).stages == 1
    # two ranks that both begin with a receive
    assert find_pipeline([rank_of(0, [(RECEIVE, 1), (SEND, 1)], 2), rank_of(1, [(RECEIVE, 0), (SEND, 0)], 2)]) is None


def test_more_micro_batches_shrink_the_bubble() -> None:
    assert bubble_share(4, 4) == pytest.approx(3 / 7)
    assert bubble_share(4, 8) == pytest.approx(3 / 11)
    assert bubble_share(4, 4, 2) == pytest.approx(3 / 11)
    assert bubble_share(1, 4) == 0
