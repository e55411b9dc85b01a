"""Launching calls and the device tasks they launched: each should have the other."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from steplens.trace import health
from steplens.trace.building.checks.common import Tables, device_tasks, launched_tasks, rows_matching_name

#: calls of CUDA and HIP that put a kernel or a graph of kernels on a stream (cudaLaunchHostFunc does not), Ascend's "launch"
_LAUNCH = r"(?i)^(cu|hip)\w*(launch\w*kernel|graphlaunch)|^(node@)?launch$"
_COPY = r"(?i)^(cu|hip)\w*mem(cpy|set)"

_OF_DEVICE = (health.KERNEL_CALLS, health.KERNEL_TIMES, health.STEP_DEVICE_TIMES, health.OVERLAP, health.OPERATOR_DEVICE_TIMES)


def launches_device_work(api: pl.DataFrame | None) -> bool:
    """Whether any of these calls launches work on an accelerator."""
    return api is not None and api.height > 0 and rows_matching_name(api, _LAUNCH).height > 0


def launches_without_kernels(tables: Tables) -> Iterator[health.HealthFinding]:
    """Every call that launches device work has a device task with its correlation, and one that works.

    What was launched last and has no task was probably still waiting when the recording ended; lost records look the same. CUDA
    records no task for an empty copy, so copies without one are only worth knowing.
    """
    api = tables.get("api")
    if api is None:
        return
    api = api.select("name", "correlation", "start_ns").drop_nulls("correlation")
    launches, copies = rows_matching_name(api, _LAUNCH), rows_matching_name(api, _COPY)
    tasks = device_tasks(tables)
    if tasks is None:
        if launches.height:
            message = (
                f"{launches.height} calls launch device work and no device task was recorded: the trace shows the host alone"
            )
            yield health.finding("launches_without_kernels", health.ERROR, launches.height, message, *_OF_DEVICE)
        return
    task_correlations = tasks.select(pl.col("correlation").drop_nulls().unique())
    if not task_correlations.height:
        return
    working = launched_tasks(tables)
    worked = task_correlations.clear() if working is None else working.select(pl.col("correlation").drop_nulls().unique())
    lost = launches.join(worked, on="correlation", how="anti")
    if lost.height:
        last = launches.join(worked, on="correlation", how="semi")["start_ns"].max()
        # where no launch has a task, the recording did not end before one of them, it lacks them
        behind = pl.lit(False) if last is None else pl.col("start_ns") > last
        unfinished = lost.filter(behind).height
        if lost.height > unfinished:
            message = f"{lost.height - unfinished} of {launches.height} calls that launch device work have no device task"
            yield health.finding("launches_without_kernels", health.WARNING, lost.height - unfinished, message, *_OF_DEVICE)
        if unfinished:
            message = (
                f"the last {unfinished} calls that launch device work have no device task: it had not run when the recording "
                "ended, or was not recorded"
            )
            yield health.finding("unfinished_launches", health.WARNING, unfinished, message, *_OF_DEVICE)
    copied = copies.join(task_correlations, on="correlation", how="anti").height
    if copied:
        message = f"{copied} of {copies.height} calls that copy or set memory have no task; CUDA records none for an empty copy"
        yield health.finding("copies_without_tasks", health.INFO, copied, message)


def kernels_without_launches(tables: Tables) -> Iterator[health.HealthFinding]:
    """Every device task with a correlation has the call that launched it.

    A task that starts before every task whose call is known was probably launched before the recording began; where the calls at
    its beginning are lost, it looks the same.
    """
    api, tasks = tables.get("api"), launched_tasks(tables)
    if api is None or tasks is None:
        return
    call_correlations = api.select(pl.col("correlation").drop_nulls().unique())
    # a correlation of 0 means that the source knows of none
    tasks = tasks.select("correlation", "start_ns").filter(pl.col("correlation") != 0)
    linked = tasks.join(call_correlations, on="correlation", how="semi")
    if not call_correlations.height or linked.height == tasks.height:
        return
    lost = tasks.join(call_correlations, on="correlation", how="anti")
    first = linked["start_ns"].min()
    before = pl.lit(False) if first is None else pl.col("start_ns") < first
    early = lost.filter(before).height
    if early:
        message = (
            f"{early} device tasks at the beginning have no call that launched them: it came before the recording began, or was "
            "not recorded"
        )
        yield health.finding("tasks_from_before", health.INFO, early, message, health.OPERATOR_DEVICE_TIMES)
    if lost.height > early:
        message = f"{lost.height - early} of {tasks.height} device tasks have no call that launched them"
        unsafe = (health.OPERATOR_DEVICE_TIMES, health.KERNEL_WAITS, health.STEP_DEVICE_TIMES)
        yield health.finding("kernels_without_launches", health.WARNING, lost.height - early, message, *unsafe)
