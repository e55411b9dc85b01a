"""How large a collective is and what it moves over links, as nccl-tests counts both.

nccl-tests divides the size of a whole message by the time of an operation (algorithm bandwidth, "algbw") and multiplies that with
a factor of the operation, so that the result is the speed of the links whatever the operation and the number of ranks (bus
bandwidth, "busbw"). A whole message is what all ranks of a gather put in or what a rank of another operation puts in.
"""

from __future__ import annotations

import polars as pl

#: HCCL counts what one rank gives to, or gets from, each other one, where NCCL and gloo count what a rank puts in
_HCCL_NAME = r"(?i)^hcom_"
#: a rank puts in one part of so many
_PARTS_PUT_IN = r"^(allgather|gather)"
#: HCCL counts one part of so many: of a reduce-scatter and a scatter what a rank gets, of an all-to-all what goes to one rank
_PARTS_OF_HCCL = r"^(allgather|gather|reducescatter|scatter|alltoall)"
#: of whose variants with a size for each rank HCCL does not say how much there is
_UNEVEN_OF_HCCL = r"^(alltoallv|allgatherv|reducescatterv)"
_MOST_BYTES = 1 << 62
#: factors
_TWICE = r"^allreduce"
_SHARE = r"^(reducescatter|allgather|alltoall|gather|scatter)"
_ONCE = r"^(broadcast|reduce|send|recv|receive)"


def is_one_part() -> pl.Expr:
    """Whether ``bytes`` are one of as many parts of a message as its group has ranks, from ``operation`` and ``name``.

    Bytes are those that a rank puts in (PyTorch's ``In msg nelems``, shapes of gloo): of a gather one part, of other operations
    the whole message. HCCL counts one part of an all-gather, a reduce-scatter, a scatter and an all-to-all. Null where it does
    not say how much there is of parts that differ.
    """
    operation = _plain_operation()
    of_hccl = pl.col("name").cast(pl.String).str.contains(_HCCL_NAME).fill_null(False)
    is_part = pl.when(of_hccl).then(operation.str.contains(_PARTS_OF_HCCL)).otherwise(operation.str.contains(_PARTS_PUT_IN))
    is_unknown = of_hccl & operation.str.contains(_UNEVEN_OF_HCCL)
    return pl.when(~is_unknown.fill_null(False)).then(is_part.fill_null(False))


def message_bytes(ranks: str = "ranks", is_part: str = "is_part") -> pl.Expr:
    """Bytes of the whole message as nccl-tests counts it, from ``bytes``; null where what it takes is not known.

    * all-gather and gather: what all ranks put in together, which is what comes out;
    * reduce-scatter, all-to-all and scatter: what a rank, or the root, puts in;
    * all-reduce, broadcast, reduce, sends and receives: the tensor.

    Args:
        ranks: the column with the number of ranks of the group.
        is_part: that of ``is_one_part``.
    """
    size, count = pl.col("bytes").cast(pl.Int64), pl.col(ranks).cast(pl.Int64)
    # a damaged source may say more than 64 bits hold
    is_possible = size <= _MOST_BYTES // count.clip(1)
    return pl.when(pl.col(is_part) & is_possible).then(size * count).when(~pl.col(is_part)).then(size)


def bus_factor(ranks: str = "ranks") -> pl.Expr:
    """nccl-tests' factor from algorithm to bus bandwidth, from ``operation`` and the size of the group; null of other operations.

    All-reduce 2 (n - 1) / n; all-gather, reduce-scatter, all-to-all, gather and scatter (n - 1) / n; broadcast, reduce, sends and
    receives 1.

    Args:
        ranks: the column with the number n of ranks of the group.
    """
    count, operation = pl.col(ranks).cast(pl.Float64), _plain_operation()
    share = (count - 1) / count
    return (
        pl.when(operation.str.contains(_TWICE)).then(2 * share)
        .when(operation.str.contains(_SHARE)).then(share)
        .when(operation.str.contains(_ONCE)).then(1.0)
    )  # fmt: skip


def _plain_operation() -> pl.Expr:
    """The name of an operation without what separates its words: "allgather", "reducescatter" ..."""
    return pl.col("operation").cast(pl.String).str.to_lowercase().str.replace_all("[^a-z]", "")
