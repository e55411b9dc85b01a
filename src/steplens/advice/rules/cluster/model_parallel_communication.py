"""Ranks that hold parts of every layer spend much of a step on communication alone."""

from __future__ import annotations

from steplens.advice.rules.cluster import communication_share
from steplens.analysis.tools.parallel import MODEL_PARALLEL

RULE = communication_share.rule("model_parallel_communication", MODEL_PARALLEL)
