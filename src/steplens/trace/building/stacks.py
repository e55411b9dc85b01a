"""Python call stacks of operator calls, from the Python frames that enclose them on the same thread."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import polars as pl

from steplens.trace.building.nesting import Int64Array, inherit_values, lane_numbers, nest_calls
from steplens.trace.schema import NAME

#: how many frames of a stack are kept, innermost first; deeper ones belong to launchers
STACK_LIMIT = 64

_ADDRESS = r" at 0x[0-9a-fA-F]+"


def call_stacks(ops: pl.DataFrame, python: pl.DataFrame) -> pl.Series:
    """Stack text of every call: frames joined by ";", innermost first; null where no frame encloses the call.

    Equal stacks are found level by level: the stack of a frame is (stack of its parent, own name), numbered with
    ``np.unique``, so the cost depends on the depth of the stacks and not on their number.

    Args:
        ops: calls with start_ns, end_ns, pid, tid; shape (n,).
        python: frames with name, start_ns, end_ns, pid, tid.
    """
    code_of_frame, names = _number_names(python["name"])
    frames = python.select("start_ns", "end_ns", "pid", "tid", code=code_of_frame)
    calls = ops.select("start_ns", "end_ns", "pid", "tid", code=pl.lit(-1, dtype=pl.Int64))
    # frames go first, so that a frame with the times of a call becomes its parent and not its child
    joined = pl.concat([frames, calls]).with_row_index("row")
    joined = joined.sort("pid", "tid", "start_ns", "end_ns", descending=[False, False, False, True], maintain_order=True)
    code = joined["code"].to_numpy()
    lane = lane_numbers(joined["pid"].to_numpy(), joined["tid"].to_numpy())
    nesting = nest_calls(lane, joined["start_ns"].to_numpy(), joined["end_ns"].to_numpy())
    is_frame = code >= 0
    position = np.arange(len(code), dtype=np.int64)
    nearest = inherit_values(nesting.parent, np.where(is_frame, position, -1))
    upper_frame = np.where(nesting.parent >= 0, nearest[np.maximum(nesting.parent, 0)], -1)

    stack, parents, codes = _number_stacks(is_frame, upper_frame, code, nesting.depth)
    rows = joined["row"].to_numpy()
    of_call = np.full(ops.height, -1, dtype=np.int64)
    calls_mask = ~is_frame
    of_call[rows[calls_mask] - python.height] = np.where(
        upper_frame[calls_mask] >= 0, stack[np.maximum(upper_frame[calls_mask], 0)], -1
    )
    used, index = np.unique(of_call, return_inverse=True)
    texts = [None if number < 0 else _stack_text(int(number), parents, codes, names) for number in used]
    result: pl.Series = pl.Series("stack", texts, dtype=pl.String).gather(index).cast(NAME)
    return result


def _number_stacks(
    is_frame: npt.NDArray[np.bool_], above: Int64Array, code: Int64Array, depth: Int64Array
) -> tuple[Int64Array, list[int], list[int]]:
    """Number equal stacks equally; per number, the number of the stack below its top frame, and the top frame's code."""
    stack = np.full(len(code), -1, dtype=np.int64)
    parents: list[int] = []
    codes: list[int] = []
    frame_rows = np.flatnonzero(is_frame)
    order = frame_rows[np.argsort(depth[frame_rows], kind="stable")]
    depths = depth[order]
    bounds = np.flatnonzero(np.r_[True, depths[1:] != depths[:-1], True]) if len(order) else np.zeros(1, np.int64)
    width = int(code.max()) + 1 if len(code) else 1
    # a frame's depth counts calls too, so equal stacks may lie on different levels; one dictionary spans all levels
    number_of_stack: dict[int, int] = {}
    for low, high in itertools.pairwise(bounds):
        rows = order[low:high]
        stack_of_parent = np.where(above[rows] >= 0, stack[np.maximum(above[rows], 0)], -1)
        key = (stack_of_parent + 1) * width + code[rows]
        unique, inverse = np.unique(key, return_inverse=True)
        numbers = np.empty(len(unique), dtype=np.int64)
        for i, value in enumerate(unique.tolist()):
            number = number_of_stack.get(value)
            if number is None:
                number = number_of_stack[value] = len(parents)
                parents.append(value // width - 1)
                codes.append(value % width)
            numbers[i] = number
        stack[rows] = numbers[inverse]
    return stack, parents, codes


def _number_names(column: pl.Series) -> tuple[pl.Series, list[str]]:
    """A number for every name and the text of every number, addresses left out.

    "<built-in method add of Tensor object at 0x7f...>" is the same place in the program for every tensor.
    """
    distinct = column.unique()
    texts = distinct.cast(pl.String).fill_null("").str.replace_all(_ADDRESS, "")
    codes = texts.rank("dense").cast(pl.Int64) - 1
    ordered = pl.DataFrame({"code": codes, "text": texts}).unique("code").sort("code")["text"].to_list()
    physical = distinct.to_physical()
    return column.to_physical().replace_strict(physical, codes, return_dtype=pl.Int64), ordered


def _stack_text(number: int, parents: list[int], codes: list[int], names: list[str]) -> str:
    frames: list[str] = []
    while number >= 0 and len(frames) < STACK_LIMIT:
        frames.append(names[codes[number]].replace(";", ","))
        number = parents[number]
    return ";".join(frames)
