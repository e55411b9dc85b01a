"""Which line of the user's own code a call stack comes from."""

from __future__ import annotations

import re

import polars as pl

#: a frame with a place in a file: "train.py(19): train" (Kineto) or "train.py:19(train)"
_FRAME = re.compile(r"^(?P<file>[^<(]+\.py)(?:\(\d+\): |:\d+\()")
#: files of the frameworks and of Python itself, as their profilers abbreviate them or in full
_LIBRARY = re.compile(
    r"(^|/)(site-packages|dist-packages|torch|torch_npu|torchvision|mindspore|steplens|lightning|pytorch_lightning|transformers|accelerate)/"
    r"|(^|/)lib/python\d[.\d]*/|^<frozen |^(threading|contextlib|functools|runpy|socketserver|queue|selectors)\.py"
)


def user_frame(stack: str) -> str | None:
    """The innermost frame of a stack (innermost first, joined by ";") in the user's own code; None where there is none."""
    for frame in stack.split(";"):
        found = _FRAME.match(frame.strip())
        if found and not _LIBRARY.search(found["file"]):
            return frame.strip()
    return None


def source_line(stack: pl.Series) -> pl.Series:
    """``user_frame`` of every stack, each distinct one looked at once; text, shape of ``stack``."""
    distinct = stack.unique().drop_nulls()
    texts = distinct.cast(pl.String)
    found = pl.Series("line", [user_frame(text) for text in texts.to_list()], dtype=pl.String)
    lines: pl.Series = stack.replace_strict(distinct, found, default=None, return_dtype=pl.String).alias("line")
    return lines
