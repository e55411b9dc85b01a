"""What to change in a training program, with proof and price.

Rules by subject in ``advice.rules``, found by ``advice.registry``; the words of each language in ``advice/words``.
"""

from __future__ import annotations

from steplens.advice.advise import Advice, Silenced, advise
from steplens.advice.finding import Evidence, Finding, Saving

__all__ = ["Advice", "Evidence", "Finding", "Saving", "Silenced", "advise"]
