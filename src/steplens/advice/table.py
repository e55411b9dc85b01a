"""The table of rules: a rule is a module of ``advice.rules`` and a line here."""

from __future__ import annotations

from steplens.advice.rule import Rule
from steplens.advice.rules import (
    allocation_stalls,
    checkpoint_stalls,
    device_waits_for_host,
    garbage_collection,
    loader_too_slow,
    loader_without_workers,
    memory_growth,
    scalar_reads,
    single_tensor_optimizer,
    slow_rank,
    tiny_operators,
)

RULES: tuple[Rule, ...] = (
    loader_without_workers.RULE,
    loader_too_slow.RULE,
    slow_rank.RULE,
    device_waits_for_host.RULE,
    allocation_stalls.RULE,
    checkpoint_stalls.RULE,
    garbage_collection.RULE,
    single_tensor_optimizer.RULE,
    tiny_operators.RULE,
    scalar_reads.RULE,
    memory_growth.RULE,
)
