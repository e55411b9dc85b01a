"""What the options of a recording promise, and what the trace holds."""

from __future__ import annotations

from collections.abc import Iterator

from steplens.common.options import DETAILED_LEVELS, DEVICE_LEVELS
from steplens.trace import health
from steplens.trace.building.checks.common import Tables, device_tasks
from steplens.trace.recorded_options import options_in_meta

_NO_METRICS = ("", "none", "aicorenone", "acl_aicore_none")


def recorded_options(tables: Tables) -> Iterator[health.HealthFinding]:
    """What was to be recorded was recorded; a table that is empty though its option was on has been lost on the way."""
    options = options_in_meta(tables.get("meta"))
    common, activities, level = options.common, options.activities, options.level
    ops, tasks = tables.get("ops"), device_tasks(tables)
    metrics = str(options.experimental.get("_aic_metrics") or "").rpartition(".")[2].lower()
    promises = {
        "operator calls": (
            "CPU" in activities,
            ops is not None,
            (health.OPERATOR_CALLS, health.OPERATOR_TIMES, health.OPERATOR_DEVICE_TIMES),
        ),
        "device tasks": (
            level in DEVICE_LEVELS and bool({"NPU", "CUDA"} & set(activities)),
            tasks is not None,
            (health.KERNEL_CALLS, health.STEP_DEVICE_TIMES, health.OVERLAP, health.OPERATOR_DEVICE_TIMES),
        ),
        "allocations": (common.get("profile_memory") is True, "memory" in tables or "allocations" in tables, (health.MEMORY,)),
        "call stacks": (
            common.get("with_stack") is True and ops is not None,
            "python" in tables or (ops is not None and ops["stack"].null_count() < ops.height),
            (health.CALL_STACKS,),
        ),
        "measurements of kernels": (
            level in DETAILED_LEVELS and metrics not in _NO_METRICS and tasks is not None,
            "kernel_metrics" in tables,
            (health.KERNEL_DETAILS,),
        ),
    }
    for option, (promised, there, unsafe) in promises.items():
        if promised and not there:
            yield health.finding(
                "missing_data", health.WARNING, 1, f"the options say that {option} were recorded, and there are none", *unsafe
            )
