"""Steps of a script that knows nothing of steplens, see :mod:`steplens.collect.dynamic.optimizer_steps`."""

from __future__ import annotations

from steplens.collect.dynamic.optimizer_steps import OptimizerSteps as OptimizerSteps
