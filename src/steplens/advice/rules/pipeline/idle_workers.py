"""The workers of an operation have little to do: there are more than it needs."""

from __future__ import annotations

from steplens.advice.rules.tools import operation_load
from steplens.analysis.data_loading.pipeline_queues import FEWER_WORKERS

RULE = operation_load.rule("idle_workers", FEWER_WORKERS)
