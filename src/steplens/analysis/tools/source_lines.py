"""Which line of the user's own code a call stack comes from."""

from __future__ import annotations

import re

import polars as pl

#: a frame with a place in a file: "train.py(19): train" (Kineto) or "train.py:19(train)"
_FRAME = re.compile(r"^(?P<file>[^<(]+\.py)(?:\(\d+\): |:\d+\()")
_PACKAGES = "torch|torch_npu|torchvision|mindspore|steplens|lightning|pytorch_lightning|transformers|accelerate"
#: files of Python itself and of what is installed, as profilers abbreviate them or in full, and of a framework's checkout
_LIBRARY = re.compile(
    rf"(^|/)(site-packages|dist-packages)/|^({_PACKAGES})/|/src/({_PACKAGES})/|/(?P<name>{_PACKAGES})/(?P=name)/"
    r"|(^|/)lib/python\d[.\d]*/|^<frozen |^(threading|contextlib|functools|runpy|socketserver|queue|selectors)\.py"
)
#: somewhere below a folder with the name of a framework
_NAMED_AS_LIBRARY = re.compile(rf"/({_PACKAGES})/")

#: whose code a frame is: the user's, whose cannot be told from the frame alone, or that of Python or a framework
USER, UNCLEAR, LIBRARY = "user", "unclear", "library"


def frame_owner(frame: str) -> str:
    """Whose code a frame of a stack is: ``USER``, ``UNCLEAR`` or ``LIBRARY``; what has no place in a file is no user's.

    A full path below a folder called ``transformers`` is that framework's, installed from its sources, or a user's project.
    """
    matched = _FRAME.match(frame.strip())
    if matched is None or _LIBRARY.search(matched["file"]):
        return LIBRARY
    return UNCLEAR if _NAMED_AS_LIBRARY.search(matched["file"]) else USER


def user_frame(stack: str) -> str | None:
    """The innermost frame of a stack (innermost first, joined by ";") in the user's own code; None where there is none.

    Frames whose owner is unclear are the user's where no other frame of the stack is.
    """
    unclear = None
    for frame in stack.split(";"):
        owner = frame_owner(frame)
        if owner == USER:
            return frame.strip()
        if owner == UNCLEAR and unclear is None:
            unclear = frame.strip()
    return unclear


def source_line(stack: pl.Series) -> pl.Series:
    """``user_frame`` of every stack, each distinct one looked at once; text, shape of ``stack``."""
    distinct = stack.unique().drop_nulls()
    texts = distinct.cast(pl.String)
    found = pl.Series("line", [user_frame(text) for text in texts.to_list()], dtype=pl.String)
    lines: pl.Series = stack.replace_strict(distinct, found, default=None, return_dtype=pl.String).alias("line")
    return lines
