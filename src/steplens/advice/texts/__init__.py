"""The words of all findings, in every language, in one catalogue. Rules say figures; only these modules say sentences.

One module per family of rules (the large family of devices has three), and ``frame`` for what stands around findings.
"""

from __future__ import annotations

from steplens.advice.texts import cluster, device_communication, device_computing, device_feeding, minddata, pipeline, training
from steplens.advice.texts.frame import FRAME
from steplens.advice.texts.text import CHINESE, ENGLISH, LANGUAGES, Text

_FAMILIES = (training, pipeline, minddata, cluster, device_computing, device_feeding, device_communication)

#: rule -> language -> what is said of it
TEXTS: dict[str, dict[str, Text]] = {rule: texts for family in _FAMILIES for rule, texts in family.TEXTS.items()}
#: kind of evidence -> language -> words
EVIDENCE: dict[str, dict[str, str]] = {what: words for family in _FAMILIES for what, words in family.EVIDENCE.items()}
#: rule -> where it is described: a page of the documentation and the anchor of its row
DOCUMENTATION: dict[str, str] = {rule: f"{family.PAGE}#{rule}" for family in _FAMILIES for rule in family.TEXTS}

__all__ = ["CHINESE", "DOCUMENTATION", "ENGLISH", "EVIDENCE", "FRAME", "LANGUAGES", "TEXTS", "Text"]
