"""The workers of an operation are busy: it needs more of them."""

from __future__ import annotations

from steplens.advice.rules.tools import operation_load
from steplens.analysis.data_loading.pipeline_queues import MORE_WORKERS

RULE = operation_load.rule("busy_workers", MORE_WORKERS)
