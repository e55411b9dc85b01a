"""Ranks spend much of a step on communication alone, and nothing tells what they exchange."""

from __future__ import annotations

from steplens.advice.rules.cluster import communication_share
from steplens.analysis.tools.parallel import UNKNOWN_PARALLEL

RULE = communication_share.rule("unknown_parallel_communication", UNKNOWN_PARALLEL)
