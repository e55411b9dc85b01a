"""The operator calls of a trace with their places: what is called inside of what, in which module, on what inputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from steplens.comparison.paths import Numbers, first_calls, number_paths
from steplens.trace.schema import SCOPE_BACKWARD, SCOPE_FUNCTION, SCOPE_MODULE, STEP_PREFIX
from steplens.trace.trace import Trace

#: between the names of a path, in keys: no name has it
SEPARATOR = "\x1f"
_NUMBER = r"#\d+$"
_STEP = STEP_PREFIX.removesuffix("#")
#: more than there are scopes
_SCOPES = 256
NO_CALL = -1


@dataclass(frozen=True)
class Calls:
    """All calls of a trace, a row each.

    Attributes:
        rows: columns of ``ops`` that tell calls and their places.
        is_operator: which are operators; the others are ranges that somebody marked and modules.
        outer: of each the operator around it, or -1; ranges between them are passed over.
        top: of each the outermost operator around it, itself perhaps; -1 of ranges.
        path: number of the path of each.
        path_texts: of each path the names of ranges and operators on it, from the outermost one on; of modules and steps without.
        ranges: of each path, how many of its names are those of ranges around the outermost operator.
    """

    rows: pl.DataFrame
    is_operator: npt.NDArray[np.bool_]
    outer: Numbers
    top: Numbers
    path: Numbers
    path_texts: list[str]
    ranges: list[int]


def read_calls(trace: Trace) -> Calls | None:
    """The calls of a trace; None where it has none."""
    if trace.ops is None or not trace.ops.height:
        return None
    columns = ["pid", "tid", "scope", "start_ns", "end_ns"]
    numbers = pl.col("step", "sequence", "depth", "parent").cast(pl.Int64)
    names = pl.col("name", "module", "input_shapes", "input_types").cast(pl.Categorical)
    rows = trace.required("ops").select(*columns, numbers, names).collect()
    scope = rows["scope"].fill_null(SCOPE_FUNCTION).to_numpy().astype(np.int64)
    is_operator = np.isin(scope, (SCOPE_FUNCTION, SCOPE_BACKWARD))
    parent = rows["parent"].fill_null(NO_CALL).to_numpy()
    outer = _skip_ranges(parent, is_operator)
    texts, codes = _number_names(rows["name"])
    # a name alone does not tell a range from an operator
    tree = number_paths(parent, rows["depth"].fill_null(0).to_numpy(), codes * _SCOPES + scope)
    first_call = first_calls(tree)
    own_names = [texts[code] for code in codes[first_call].tolist()]
    path_texts, ranges = _describe_paths(own_names, scope[first_call], is_operator[first_call], tree.parent_path)
    return Calls(rows, is_operator, outer, _outermost_operators(outer, is_operator), tree.path_of_call, path_texts, ranges)


def _number_names(names: pl.Series) -> tuple[list[str], Numbers]:
    """Names without the numbers of steps and calls behind those of ranges, and which of them each call has."""
    distinct = names.unique()
    stripped = distinct.cast(pl.String).fill_null("").str.replace(_NUMBER, "")
    texts = stripped.unique(maintain_order=True).to_list()
    place = {text: number for number, text in enumerate(texts)}
    numbers = pl.Series([place[text] for text in stripped.to_list()], dtype=pl.Int64)
    joined = names.to_frame("name").join(
        pl.DataFrame({"name": distinct, "code": numbers}), on="name", how="left", nulls_equal=True, maintain_order="left"
    )
    codes: Numbers = joined["code"].to_numpy()
    return texts, codes


def _skip_ranges(parent: Numbers, is_operator: npt.NDArray[np.bool_]) -> Numbers:
    outer: Numbers = parent.copy()
    while (is_range := (outer >= 0) & ~is_operator[outer]).any():
        outer[is_range] = parent[outer[is_range]]
    return outer


def _outermost_operators(outer: Numbers, is_operator: npt.NDArray[np.bool_]) -> Numbers:
    top = np.where(is_operator, np.arange(outer.size), -1)
    while (is_inside := (top >= 0) & (outer[top] >= 0)).any():
        top[is_inside] = outer[top[is_inside]]
    return top


def _describe_paths(
    names: list[str], scope: Numbers, is_operator: npt.NDArray[np.bool_], parent_path: Numbers
) -> tuple[list[str], list[int]]:
    texts: list[str] = []
    ranges: list[int] = []
    inner_calls: list[bool] = []
    for path, outer in enumerate(parent_path.tolist()):
        text, count, is_inside = (texts[outer], ranges[outer], inner_calls[outer]) if outer >= 0 else ("", 0, False)
        if scope[path] != SCOPE_MODULE and names[path] != _STEP:
            text = f"{text}{SEPARATOR}{names[path]}" if text else names[path]
            is_inside = is_inside or bool(is_operator[path])
            count += not is_inside
        texts.append(text)
        ranges.append(count)
        inner_calls.append(is_inside)
    return texts, ranges
