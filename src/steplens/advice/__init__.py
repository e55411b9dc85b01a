"""What to change in a training program, with proof and price.

Rules by subject in ``advice.rules``, found by ``advice.registry``; the words of each language in ``advice/words``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from steplens.advice.advice import Advice, Silenced, advise
    from steplens.advice.finding import Evidence, Finding, Saving

__all__ = ["Advice", "Evidence", "Finding", "Saving", "Silenced", "advise"]

_MODULES = dict.fromkeys(("Evidence", "Finding", "Saving"), "steplens.advice.finding")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # what only reads kept answers has no use for all that judges them
    globals()[name] = public = getattr(importlib.import_module(_MODULES.get(name, "steplens.advice.advice")), name)
    return public
