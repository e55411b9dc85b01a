"""Whether ranks without steps began to record at the same message, by the times between their messages."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from steplens.trace.building.checks.ranks import ends_together

#: by how many messages one rank may have begun to record earlier than another one
_SHIFTS = (-3, -2, -1, 1, 2, 3)
#: from fewer messages nothing can be told
_LEAST = 8
#: the times between messages must agree so many times better when shifted
_BETTER = 3.0


def without_shifted(rows: pl.DataFrame) -> pl.DataFrame:
    """Sides of messages without those of groups and operations whose ranks began to record at different ones.

    Equally many messages are no proof that the first is the first of the others: one rank may have begun and ended an iteration
    later. Messages that end together on all ranks have the same times between them on every clock, except for how long each takes
    to move and for drift, which is little from one to the next. Where these agree better when the messages of a rank are shifted
    by some, they were recorded like that; which others those are cannot be told, so that none are compared. Times between
    messages that are all alike tell nothing.

    Args:
        rows: group, operation, number, rank, end_ns; all ranks of a group and operation have equally many.
    """
    key = ["group", "operation"]
    together = rows.filter(ends_together(pl.col("operation"))).sort(*key, "rank", "number")
    shifted: list[tuple[str, str]] = []
    for (group, operation), messages in together.group_by(key, maintain_order=True):
        ends = messages["end_ns"].to_numpy().reshape(messages["rank"].n_unique(), -1)
        if ends.shape[1] >= _LEAST and _is_shifted(np.diff(ends, axis=1)):
            shifted.append((str(group), str(operation)))
    if not shifted:
        return rows
    return rows.join(pl.DataFrame(shifted, schema=dict.fromkeys(key, pl.String), orient="row"), on=key, how="anti")


def _is_shifted(between: npt.NDArray[np.int64]) -> bool:
    """Whether times between messages, shape (ranks, messages - 1), agree better with those of the first rank when shifted."""
    first, of_ranks = between[0], between[1:]
    apart = np.median(np.abs(of_ranks - first), axis=1)
    for shift in _SHIFTS:
        shifted_first, shifted_ranks = (
            (first[shift:], of_ranks[:, :-shift]) if shift > 0 else (first[:shift], of_ranks[:, -shift:])
        )
        if bool((np.median(np.abs(shifted_ranks - shifted_first), axis=1) * _BETTER < apart).any()):
            return True
    return False
