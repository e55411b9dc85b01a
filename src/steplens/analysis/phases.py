"""In which phase of training an operator call lies: forward, backward, optimizer or the wait for data."""

from __future__ import annotations

import numpy as np
import polars as pl

from steplens.analysis.names import looked_up
from steplens.trace.nesting import inherit
from steplens.trace.schema import DATALOADER_PREFIX, OPTIMIZER_CLOSURE, SCOPE_BACKWARD
from steplens.trace.trace import Trace

FORWARD, BACKWARD, OPTIMIZER, DATA = "forward", "backward", "optimizer", "data"
_PHASES = (FORWARD, BACKWARD, OPTIMIZER, DATA)
_OPTIMIZER_PREFIX = "Optimizer."
_SILENT = 255


def phase_of_calls(trace: Trace) -> pl.Series:
    """Phase of every row of ``ops``: that of the nearest call at or above it which says so, "forward" where none does.

    Calls of autograd say backward, ranges named ``Optimizer.*`` optimizer (but the closure that an optimizer calls back for is
    a forward pass), the waits of a DataLoader data.
    """
    name = pl.col("name")
    said = (
        pl.when(name == OPTIMIZER_CLOSURE)
        .then(_PHASES.index(FORWARD))
        .when(name.str.starts_with(_OPTIMIZER_PREFIX))
        .then(_PHASES.index(OPTIMIZER))
        .when(name.str.starts_with(DATALOADER_PREFIX))
        .then(_PHASES.index(DATA))
        .otherwise(_SILENT)
    )
    ops = trace.required("ops").select("name", "scope", "depth", pl.col("parent").fill_null(-1).cast(pl.Int64)).collect()
    own = looked_up(ops["name"], said, _SILENT).astype(np.int64)
    own[own == _SILENT] = -1
    own = np.where(ops["scope"].to_numpy() == SCOPE_BACKWARD, _PHASES.index(BACKWARD), own)
    found = inherit(ops["parent"].to_numpy(), ops["depth"].fill_null(0).cast(pl.Int64).to_numpy(), own)
    phases: pl.Series = pl.Series("phase", _PHASES, dtype=pl.String).gather(np.maximum(found, 0))
    return phases
