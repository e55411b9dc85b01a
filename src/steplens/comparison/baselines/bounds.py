"""Types of what a baseline holds, with their bounds, which are checked as a file is read."""

from __future__ import annotations

from typing import Annotated

import msgspec

#: rows of a table
MOST_ROWS = 1_000_000
MOST_RECORDINGS = 10_000
MOST_RANKS = 1 << 20

Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
Whole = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]
#: times and calls of a step: no time is negative but by damage of a recording
Amount = Annotated[float, msgspec.Meta(ge=-1e18, le=1e18)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Text = Annotated[str, msgspec.Meta(max_length=100_000)]
Texts = Annotated[list[Text], msgspec.Meta(max_length=MOST_ROWS)]
Amounts = Annotated[list[Amount], msgspec.Meta(max_length=MOST_ROWS)]
Counts = Annotated[list[Count], msgspec.Meta(max_length=MOST_ROWS)]
Wholes = Annotated[list[Whole], msgspec.Meta(max_length=MOST_ROWS)]
SomeAmounts = Annotated[list[Whole | Amount | None], msgspec.Meta(max_length=MOST_ROWS)]
