"""The queue in front of the device is mostly empty: the host does not keep up."""

from __future__ import annotations

from steplens.advice.rules.tools import operation_load
from steplens.analysis.data_loading.pipeline_queues import HOST_TOO_SLOW

RULE = operation_load.rule("starved_device_queue", HOST_TOO_SLOW)
