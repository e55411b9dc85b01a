"""Where the tables of a trace are kept: known without reading any, and without polars."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class KeptTables:
    """Where the tables of a trace are kept, for what is made of them and worth keeping beside them.

    Attributes:
        folder: of the cache; it is replaced as a whole when the tables are made anew.
        fingerprint: of these tables; what was made of others does not have it.
    """

    folder: Path
    fingerprint: str
