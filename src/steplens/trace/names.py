"""Names of what is recorded, for whoever only has to know them: without polars, which takes a moment to load."""

from __future__ import annotations

#: the unit of a column of Unix times in ns; lengths of time have "ns"
MOMENT = "moment"

#: the unit of a column of percentages that are no shares, such as one time of another: 250 is shown as 2.5 times
FACTOR = "factor"

#: the tables of ``trace.schema.SCHEMA``, in its order
RECORDED_TABLES = (
    "ops",
    "python",
    "api",
    "task_queue",
    "kernels",
    "kernel_metrics",
    "communication",
    "communication_times",
    "communication_bandwidth",
    "communication_matrix",
    "memory",
    "allocations",
    "steps",
    "step_points",
    "step_collectives",
    "pipeline_ops",
    "pipeline_samples",
    "pipeline_batches",
    "pipeline_loaders",
    "pipeline_epochs",
    "pipeline_tasks",
    "marks",
    "gc",
    "counters",
    "flows",
    "threads",
    "source_tables",
    "meta",
    "health",
)
