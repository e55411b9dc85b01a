"""What of a baseline tells the causes of a change (docs/compare.md): ``causes.cause_side.CauseSource`` in few bytes."""

from __future__ import annotations

from typing import Annotated

import msgspec

from steplens.comparison.baselines.bounds import MOST_RECORDINGS, MOST_ROWS, Amounts, Counts, Share, Texts, Wholes

#: powers of 2 that a time in ns may be
_Powers = Annotated[list[Annotated[int, msgspec.Meta(ge=0, le=400)]], msgspec.Meta(max_length=MOST_ROWS)]
#: a character for each time: of thousands of rows in dozens of steps
_Characters = Annotated[str, msgspec.Meta(max_length=1 << 26)]


class NumberedTexts(msgspec.Struct):
    """A column of texts: each one once, and of each row which one it has."""

    texts: Texts
    rows: Counts


class NameTree(msgspec.Struct):
    """Paths of names: of each its last name, and the path around it, or -1; that one comes first."""

    name: Texts
    outer: Wholes


class SequenceDocument(msgspec.Struct):
    """``causes.sequences.OperatorSequence``; paths are those of ``CausesDocument.paths``."""

    phase: NumberedTexts
    module: NumberedTexts
    path: Wholes
    answers: Wholes


class RowTimesDocument(msgspec.Struct):
    """``kept_times.KeptTimes`` of a recording.

    Attributes:
        steps: how many single steps there are.
        blocks: how many blocks of steps.
        levels: of each of ``rows`` a character for each of these steps, and then for each of these blocks.
    """

    waited_share: Share
    mean_ns: Wholes
    spread: _Powers
    rows: Counts
    steps: Annotated[int, msgspec.Meta(ge=1, le=1000)]
    blocks: Annotated[int, msgspec.Meta(ge=0, le=1000)]
    levels: _Characters


class TimesDocument(msgspec.Struct):
    """``causes.side_times.SideTimes``; paths are those of ``CausesDocument.paths``, -1 that without a name."""

    part: NumberedTexts
    leaf: NumberedTexts
    phase: NumberedTexts
    module: NumberedTexts
    shapes: NumberedTexts
    types: NumberedTexts
    detail: NumberedTexts
    path: Wholes
    ranges: Counts
    calls: Amounts
    recordings: Annotated[list[RowTimesDocument], msgspec.Meta(min_length=1, max_length=MOST_RECORDINGS)]


class CausesDocument(msgspec.Struct):
    """The source of causes.

    Attributes:
        is_behind: whether the device runs behind the host in a recording.
        paths: of ranges and operators.
        sequence: operators of a usual step in order of time; none where that is not known.
        host: times of the host; none where they were not recorded, or are of too many rows.
        device: the same of the device.
    """

    is_behind: bool
    paths: NameTree
    sequence: SequenceDocument | None
    host: TimesDocument | None
    device: TimesDocument | None
