"""Which of the names among the operators are ranges that somebody marked: no operators, though they have a time of their own."""

from __future__ import annotations

from typing import Annotated

import polars as pl
from fastapi import Query

from steplens.server.http.routing import create_router
from steplens.server.requests import Chosen
from steplens.trace.schema import SCOPE_USER

router = create_router("/api/runs/{run}", "operators")


@router.get("/operators/annotations")
def list_annotations(chosen: Chosen, trace: Annotated[int | None, Query(ge=0, le=1 << 31)] = None) -> list[str]:
    """Names of user annotations: of record_function() in the program or its libraries, of steps, optimizers and data loaders."""
    is_marked = pl.col("scope") == SCOPE_USER
    ranks = chosen.run.traces if trace is None else [chosen.trace(trace)]
    names = [rank.required("ops").filter(is_marked).select(pl.col("name").cast(pl.String)) for rank in ranks]
    return sorted(pl.concat(names).unique().drop_nulls().collect().to_series().to_list())
