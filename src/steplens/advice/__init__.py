"""What to change in a training program, with proof and price.

One module per rule in ``advice.rules``, listed in ``advice.table``; the words of all languages in ``advice.texts``.
"""

from __future__ import annotations

from steplens.advice.advise import Advice, Silenced, advise
from steplens.advice.finding import Evidence, Finding, Saving

__all__ = ["Advice", "Evidence", "Finding", "Saving", "Silenced", "advise"]
