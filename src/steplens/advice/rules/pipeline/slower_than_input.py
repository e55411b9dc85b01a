"""An operation takes in far less than the one before it puts out."""

from __future__ import annotations

from steplens.advice.rules.tools import operation_load
from steplens.analysis.data_loading.pipeline_queues import SLOWER_THAN_INPUT

RULE = operation_load.rule("slower_than_input", SLOWER_THAN_INPUT)
