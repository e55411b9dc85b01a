"""What the texts of signatures say: each is looked at once, and calls take from it by number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import polars as pl
from msgspec import Raw

from steplens.readers.common import json_decoder
from steplens.readers.kineto.kineto_frames import WITH_ARGUMENTS
from steplens.readers.kineto.kineto_tables import BACKWARD_PREFIX, shapes_text, types_text
from steplens.trace.schema import NAME

#: what a call is called whose name cannot be told
UNNAMED = "(unnamed)"
_NO_TEXT = Raw(b"")


class _Signature(msgspec.Struct, gc=False):
    """One text; its members are those of ``formats.recorder``."""

    name: str
    shapes: Raw = _NO_TEXT
    types: Raw = _NO_TEXT
    arguments: Raw = _NO_TEXT
    flops: int | None = None
    collective: Raw = _NO_TEXT


_MANY: json_decoder.Decoder[list[_Signature]] = json_decoder.Decoder(list[_Signature])
_ONE: json_decoder.Decoder[_Signature] = json_decoder.Decoder(_Signature)


@dataclass(frozen=True)
class Signatures:
    """The columns of ``ops`` that calls of one signature have in common, by number.

    Attributes:
        columns: name, input_shapes, input_types, arguments, flops, and ``is_backward`` of names of autograd's engine; behind
            the last signature one row more, for calls whose signature is none of these.
        damaged: texts that cannot be read.
        collectives: by number, of those of communication, the JSON object that says what it is.
    """

    columns: pl.DataFrame
    damaged: int
    collectives: Mapping[int, bytes]


def read_signatures(texts: Sequence[bytes]) -> Signatures:
    """What texts of signatures say.

    Args:
        texts: JSON, by number.
    """
    signatures = _decode_texts(texts)
    damaged = signatures.count(None)
    unnamed = _Signature(UNNAMED)
    rows = [unnamed if each is None else each for each in signatures] + [unnamed]
    names = [row.name for row in rows]
    # of all other calls the shapes say enough, as in a trace of Kineto
    arguments = [_decode_raw(row.arguments) or None if any(word in row.name for word in WITH_ARGUMENTS) else None for row in rows]
    flops = [row.flops if row.flops is not None and 0 <= row.flops < 1 << 62 else None for row in rows]
    columns = pl.DataFrame(
        {
            "name": pl.Series(names, dtype=pl.String).cast(NAME),
            "input_shapes": _convert_texts([row.shapes for row in rows], shapes_text),
            "input_types": _convert_texts([row.types for row in rows], types_text),
            "arguments": pl.Series(arguments, dtype=pl.String).cast(NAME),
            "flops": pl.Series(flops, dtype=pl.Int64),
            "is_backward": pl.Series([name.startswith(BACKWARD_PREFIX) for name in names], dtype=pl.Boolean),
        }
    )
    described = [_decode_raw(row.collective) for row in rows]
    collectives = {number: text.encode() for number, text in enumerate(described) if text.startswith("{")}
    return Signatures(columns, damaged, collectives)


def _decode_texts(texts: Sequence[bytes]) -> list[_Signature | None]:
    try:
        signatures = _MANY.decode(b"[" + b",".join(texts) + b"]")
        if len(signatures) == len(texts):
            return [*signatures]
    except ValueError:
        pass
    return [_decode_text(text) for text in texts]


def _decode_text(text: bytes) -> _Signature | None:
    for attempt in (text, text.decode("utf-8", "replace").encode()):
        try:
            return _ONE.decode(attempt)
        except ValueError:
            continue
    return None


def _decode_raw(raw: Any) -> str:
    return bytes(raw).decode("utf-8", "replace")


def _convert_texts(raws: Sequence[Any], convert: Any) -> pl.Series:
    """A column of what ``convert`` makes of JSON texts, each distinct one once."""
    texts = [_decode_raw(raw) for raw in raws]
    converted = {text: convert(text) for text in set(texts)}
    column: pl.Series = pl.Series([converted[text] for text in texts], dtype=pl.String).cast(NAME)
    return column
