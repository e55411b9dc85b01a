"""A source of samples holds up the data pipeline."""

from __future__ import annotations

from steplens.advice.rules.tools import bottleneck

RULE = bottleneck.rule("slow_source", bottleneck.SOURCE)
