"""The names of ``torch_npu.profiler.profiler``."""

from __future__ import annotations

from steplens.collect.handoff.handler import tensorboard_trace_handler as tensorboard_trace_handler
from steplens.collect.pytorch.profiler import _KinetoProfile as _KinetoProfile
from steplens.collect.pytorch.profiler import profile as profile
from steplens.collect.pytorch.schedule import schedule as schedule
from steplens.offline import analyse as analyse
