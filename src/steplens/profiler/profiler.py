"""The names of ``torch_npu.profiler.profiler``."""

from __future__ import annotations

from steplens.collect.handler import tensorboard_trace_handler as tensorboard_trace_handler
from steplens.collect.profiler import _KinetoProfile as _KinetoProfile
from steplens.collect.profiler import profile as profile
from steplens.collect.schedule import schedule as schedule
from steplens.offline import analyse as analyse
