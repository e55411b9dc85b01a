"""Every trace that a test of advice judges by hand is judged by all rules, too: none may promise more than there is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from steplens.advice.facts import Facts
from steplens.trace.trace import Trace

from . import bounds

#: the first traces of a test, which may build hundreds
_LOOKED_AT = 4
#: where traces that are built by hand say that they come from
_BUILT = Path("hand-built")


@pytest.fixture(autouse=True)
def promises_within_bounds(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    seen: dict[int, Trace] = {}
    begin = Facts.__init__

    def noting(self: Facts, trace: Trace, **values: Any) -> None:
        begin(self, trace, **values)
        if trace.source == _BUILT:
            seen.setdefault(id(trace), trace)

    monkeypatch.setattr(Facts, "__init__", noting)
    yield
    monkeypatch.setattr(Facts, "__init__", begin)
    for trace in list(seen.values())[:_LOOKED_AT]:
        bounds.check([trace])
    if len({trace.rank for trace in seen.values()}) == len(seen) > 1:
        bounds.check(list(seen.values()))
