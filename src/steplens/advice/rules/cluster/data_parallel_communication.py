"""Ranks that hold the same model spend much of a step on exchanging gradients alone."""

from __future__ import annotations

from steplens.advice.rules.cluster import communication_share
from steplens.analysis.tools.parallel import DATA_PARALLEL

RULE = communication_share.rule("data_parallel_communication", DATA_PARALLEL)
