"""The queue of a source is mostly less than half full: reading does not keep up."""

from __future__ import annotations

from steplens.advice.rules.tools import operation_load
from steplens.analysis.data_loading.pipeline_queues import SLOW_SOURCE

RULE = operation_load.rule("underfilled_source", SLOW_SOURCE)
