"""How a device task is known to communicate: every mark that a format has of it, and the one decision from all of them.

A collective is one operation, and its library runs parts of it as kernels of their own. The operation has the time that counts as
communication. The parts are neither computing nor communication: they would count the same time again.
"""

from __future__ import annotations

import polars as pl

from steplens.trace.schema import COLLECTIVE, RECEIVE, SEND

#: what CANN calls the accelerator core of a collective: older versions the first, newer ones the second
COMMUNICATION_CORES = ("HCCL", "COMMUNICATION")
#: the core of a collective whose source names none
COMMUNICATION_CORE = COMMUNICATION_CORES[0]
#: what the AI CPU does for a collective
PART_CORES = ("HCCL_AI_CPU",)
#: the ends of names of kernels that are parts of a collective
PART_NAME = r"(AicpuKernel|AivKernel)$"
#: the beginnings of names, and of types, of the operations of Ascend's library
OPERATION_NAME = r"(?i)^hcom_"
#: the beginnings of names of the kernels of all collective libraries: on a GPU every version of a trace tells the name alone
LIBRARY_KERNEL = r"(?i)^(void )?(nccl|rccl|mscclpp|msccl|oneccl|xccl|hcom_|hccl|cncl|mccl|eccl)"

#: calls of PyTorch that send to or receive from one rank, and which of their arguments says which: its number in the group
CALLS_TO_PEERS = ("c10d::send", "c10d::recv_")
PEER_ARGUMENT = 2


def is_part(core: pl.Expr, name: pl.Expr) -> pl.Expr:
    """Whether a task is a part of a collective, by its core and its name (texts)."""
    return core.is_in(PART_CORES).fill_null(False) | name.str.contains(PART_NAME).fill_null(False)


def is_collective(core: pl.Expr, name: pl.Expr, type_: pl.Expr | None = None) -> pl.Expr:
    """Whether a task is a collective, or a message from one rank to another, by its core, its name and its type (texts).

    Each mark is enough: an export that does not measure kernels knows no type and the cores of collectives alone, and one that
    does has renamed their core.
    """
    marked = core.is_in(COMMUNICATION_CORES).fill_null(False) | name.str.contains(OPERATION_NAME).fill_null(False)
    if type_ is not None:
        marked |= type_.str.contains(OPERATION_NAME).fill_null(False)
    return marked & ~is_part(core, name)


def communication_kind(operation: pl.Expr) -> pl.Expr:
    """``communication.kind`` of operations that are called by what they do (texts)."""
    receives, sends = operation.str.contains("(?i)receive"), operation.str.contains("(?i)send")
    return pl.when(receives).then(pl.lit(RECEIVE)).when(sends).then(pl.lit(SEND)).otherwise(pl.lit(COLLECTIVE))
