"""The environment variables that name a step's first forward and last backward operator.

They are read where a training is recorded, whose results keep them, and where it is analysed. Standard library only: the training
process imports it.
"""

from __future__ import annotations

from collections.abc import Mapping

#: the first of a pair wins
FORWARD_POINT_VARIABLES = ("FP_POINT", "PROFILING_FP_START")
BACKWARD_POINT_VARIABLES = ("BP_POINT", "PROFILING_BP_END")
#: what the names are called in the options of a recording
FORWARD_POINT, BACKWARD_POINT = "fp_point", "bp_point"


def named_points(environment: Mapping[str, str]) -> tuple[str | None, str | None]:
    """The forward and the backward point that environment variables name; None where they name none."""
    forward, backward = (
        next((environment[name] for name in names if environment.get(name)), None)
        for names in (FORWARD_POINT_VARIABLES, BACKWARD_POINT_VARIABLES)
    )
    return forward, backward


def recorded_options(environment: Mapping[str, str]) -> dict[str, str]:
    """The named points as options of a recording; empty where the environment names none."""
    names = zip((FORWARD_POINT, BACKWARD_POINT), named_points(environment), strict=True)
    return {option: name for option, name in names if name is not None}
