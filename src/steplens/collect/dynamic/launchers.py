"""Which processes may train, and which only launch others or help PyTorch."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

#: programs that start the processes that train
_LAUNCHERS = frozenset(
    (
        "torchrun",
        "torch_npu_run",
        "vllm",
        "accelerate",
        "accelerate-launch",
        "deepspeed",
        "torch.distributed.run",
        "torch.distributed.launch",
        "torch_npu.distributed.run",
        "accelerate.commands.launch",
        "deepspeed.launcher.launch",
    )
)
#: helpers of PyTorch that import it and never train
_HELPERS = ("torch/_inductor/compile_worker", "torch/_inductor/autotune_process")


def is_worker(arguments: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether a process may train.

    Args:
        arguments: its command line, the interpreter first.
        environment: its environment; ranks have a RANK.
    """
    if any(helper in argument for argument in arguments for helper in _HELPERS):
        return False
    if environment.get("RANK"):
        return True
    rest = list(arguments[1:])
    while rest:
        argument = rest.pop(0)
        if argument == "-m":
            return not (rest and (rest[0] in _LAUNCHERS or rest[0].split(".")[0] in _LAUNCHERS))
        if argument in ("-W", "-X"):
            rest[:1] = []
        elif not argument.startswith("-"):
            return os.path.basename(argument) not in _LAUNCHERS
    return True
