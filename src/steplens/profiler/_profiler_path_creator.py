"""The name of ``torch_npu.profiler._profiler_path_creator``."""

from __future__ import annotations

from steplens.collect.handoff.path_creator import ProfPathCreator as ProfPathCreator
