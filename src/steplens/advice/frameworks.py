"""What only one framework has: a finding about another framework than the run's is not given."""

from __future__ import annotations

import re

from steplens.advice.finding import Finding
from steplens.trace.building.framework import MINDSPORE, PYTORCH, UNKNOWN

#: what only one framework has; a text of the other one that has it is a mistake
VOCABULARY = {
    PYTORCH: re.compile(
        r"torch|DistributedDataParallel|DataLoader|autocast|bucket_cap_mb|fused=True|set_to_none|zero_grad|\.item\(\)|\.detach\(\)"
        r"|non_blocking|pin_memory|num_workers|persistent_workers|prefetch_factor|collate_fn|__getitems__"
        r"|PYTORCH_|gc_detect_threshold",
        re.IGNORECASE,
    ),
    MINDSPORE: re.compile(
        r"mindspore|all_reduce_fusion_config|num_parallel_workers|MindRecord|MindDataset|set_prefetch_size|per_batch_map"
        r"|jit_level|async_save=",
        re.IGNORECASE,
    ),
}


def is_about_another(framework: str, finding: Finding, only_of: str = "") -> bool:
    """Whether a finding is of a framework that is known not to be that of the run.

    Args:
        framework: of the run.
        finding: the finding.
        only_of: ``Rule.framework`` of its rule.
    """
    if framework == UNKNOWN:
        return False
    if only_of not in ("", framework):
        return True
    values = " ".join(map(str, finding.values.values()))
    other_vocabularies = [words for other_framework, words in VOCABULARY.items() if other_framework != framework]
    return finding.rule == "environment_variables" and any(words.search(values) for words in other_vocabularies)
