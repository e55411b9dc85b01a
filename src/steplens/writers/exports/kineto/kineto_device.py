"""The device's layers of a file of Kineto: tasks, collectives, annotations as the device saw them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import polars as pl

from steplens.formats import kineto
from steplens.trace.schema import CORE_CUDA, CORE_ROCM, KIND_COMMUNICATION, KIND_COPY
from steplens.writers.common.json_events import number_member, text_member
from steplens.writers.common.rows import ROWS_PER_CHUNK
from steplens.writers.common.text import json_string, render_distinct
from steplens.writers.exports.kineto.kineto_links import Twin, event_heads, event_start

#: by these names the tools tell collectives and copies from computing
_COLLECTIVE_NAME = re.compile(r"^nccl.*Kernel")
_COPY_NAME = re.compile(r"^(Memcpy|Memset)")

#: measured values that are one list in Kineto's form
_LISTS = {f"{name} {axis}": name for name in ("grid", "block") for axis in "xyz"}


def _write_device_tasks(twin: Twin) -> None:
    is_gpu = twin.device_kind in (CORE_CUDA, CORE_ROCM)
    metrics = twin.trace.required("kernel_metrics").sort("kernel", maintain_order=True).collect()
    for part in twin.tasks.iter_slices(ROWS_PER_CHUNK):
        part = part.join(_metric_members(metrics, part["id"]), left_on="id", right_on="kernel", how="left", maintain_order="left")
        kind = pl.col("kind").cast(pl.String)
        name = part.select(pl.concat_str(kind.fill_null(""), pl.lit("\0"), pl.col("name").cast(pl.String).fill_null("")))
        _write_tasks(
            twin,
            part,
            render_distinct(name.to_series(), _task_head),
            number_member("bytes", "bytes", part),
            pl.col("measured").fill_null(""),
            "" if is_gpu else text_member("core", part["core"]),
            "" if is_gpu else text_member("type", part["type"]),
            text_member(kineto.OPERATOR_MEMBERS["input_shapes"], part["input_shapes"]) if not is_gpu else "",
        )


def _write_collectives(twin: Twin) -> None:
    """Collectives, each as the device task that it is, with the arguments that PyTorch gives to those of NCCL."""
    metrics = twin.trace.required("kernel_metrics").sort("kernel", maintain_order=True).collect()
    groups = _group_members(twin)
    for part in twin.collectives.iter_slices(ROWS_PER_CHUNK):
        measured = _metric_members(metrics, part["kernel"].drop_nulls())
        part = part.join(measured, on="kernel", how="left", maintain_order="left")
        received = pl.col("kind").cast(pl.String) == "receive"
        part = part.with_columns(
            source=pl.when(received).then("peer"), destination=pl.when(pl.col("kind").cast(pl.String) == "send").then("peer")
        )
        _write_tasks(
            twin,
            part,
            render_distinct(part["name"], _collective_head, _collective_head("")),
            # in Kineto's own order: readers may take what follows the launch as one piece
            pl.col("measured").fill_null(""),
            text_member(kineto.COLLECTIVE_MEMBERS["collective"], part["operation"]),
            number_member(kineto.COLLECTIVE_MEMBERS["elements_in"], "elements", part),
            number_member(kineto.COLLECTIVE_MEMBERS["group_size"], "ranks", part),
            text_member("dtype", part["dtype"]),
            text_member(kineto.COLLECTIVE_MEMBERS["group"], part["group"]),
            render_distinct(part["group"], lambda group: groups.get(group, ""), ""),
            number_member(kineto.COLLECTIVE_MEMBERS["source"], "source", part),
            number_member(kineto.COLLECTIVE_MEMBERS["destination"], "destination", part),
        )


def _write_tasks(twin: Twin, part: pl.DataFrame, head: pl.Series, *arguments: str | pl.Expr | pl.Series) -> None:
    count = len(twin.external_ids)
    called = part.select(pl.when((pl.col("op") >= 0) & (pl.col("op") < count)).then("op")).to_series()
    part = part.with_columns(external_id=twin.external_ids.gather(called) if count else pl.lit(None, dtype=pl.Int64))
    twin.calls(
        part,
        head,
        pl.col("device"),
        pl.col("stream"),
        ("queued", "0"),
        number_member(kineto.EXTERNAL_ID, "external_id", part),
        ("device", pl.col("device")),
        number_member("context", "context_id", part),
        ("stream", pl.col("stream")),
        number_member("correlation", "link", part),
        *arguments,
    )


def _collective_head(name: str) -> str:
    return _task_head(f"{KIND_COMMUNICATION}\0{name}")


def _task_head(kind_and_name: str) -> str:
    """Start of an event up to its pid."""
    kind, _, name = kind_and_name.partition("\0")
    category = kineto.KERNEL
    if kind == KIND_COMMUNICATION and not _COLLECTIVE_NAME.match(name):
        name = kineto.COLLECTIVE_PREFIX + name
    elif kind == KIND_COPY:
        category = kineto.SET if name.startswith("Memset") else kineto.COPY
        name = name if _COPY_NAME.match(name) else kineto.COPY_PREFIX + name
    return event_start(category, name)


def _metric_members(metrics: pl.DataFrame, kernels: pl.Series) -> pl.DataFrame:
    """``kernel`` and ``measured``, the members of JSON with all measured values of it, in the order of the source.

    Args:
        metrics: sorted by kernel.
        kernels: ids of tasks.
    """
    if not len(kernels):
        return pl.DataFrame(schema={"kernel": pl.Int32, "measured": pl.String})
    low = metrics["kernel"].search_sorted(kernels.cast(pl.Int32).min(), "left")
    high = metrics["kernel"].search_sorted(kernels.cast(pl.Int32).max(), "right")
    part = metrics.slice(low, high - low)
    name = pl.col("name").cast(pl.String)
    rounded = pl.col("value").round(0)
    text = (
        pl.when(pl.col("value") == rounded)
        .then(rounded.cast(pl.Int64, strict=False).cast(pl.String))
        .otherwise(pl.col("value").cast(pl.String))
    )
    part = part.filter(pl.col("value").is_finite())
    part = part.select("kernel", key=name.replace(_LISTS), listed=name.is_in(list(_LISTS)), text=text)
    members = part.group_by("kernel", "key", "listed", maintain_order=True).agg(pl.col("text").str.join(","))
    keys = render_distinct(members["key"], json_string, '""')
    value = pl.when("listed").then(pl.format("[{}]", "text")).otherwise("text")
    members = members.select("kernel", member=pl.format(",{}:{}", keys, value))
    return members.group_by("kernel", maintain_order=True).agg(measured=pl.col("member").str.join(""))


def _group_members(twin: Twin) -> dict[str, str]:
    """Description and ranks of each process group, as members of JSON, by the group's name."""
    job = twin.trace.meta_value("distributedInfo")
    listed = job.get("pg_config") if isinstance(job, dict) else None
    groups = {}
    for group in listed if isinstance(listed, list) else []:
        if isinstance(group, dict):
            members: dict[str, Any] = {}
            if isinstance(group.get("pg_desc"), str):
                members[kineto.COLLECTIVE_MEMBERS["group_description"]] = group["pg_desc"]
            if isinstance(group.get("ranks"), list):
                members[kineto.COLLECTIVE_MEMBERS["group_ranks"]] = str(group["ranks"])
            groups[str(group.get("pg_name"))] = "".join(
                f",{json_string(key)}:{json_string(value)}" for key, value in members.items()
            )
    return groups


def _write_annotations(twin: Twin) -> None:
    marks = twin.trace.required("marks").filter(pl.col("domain").cast(pl.String) == kineto.DEVICE_ANNOTATION).collect()
    for part in marks.iter_slices(ROWS_PER_CHUNK):
        heads = event_heads(part["message"], kineto.DEVICE_ANNOTATION)
        external_id = (kineto.EXTERNAL_ID, pl.col("correlation").fill_null(0))
        twin.calls(part, heads, pl.col("pid").fill_null(0), pl.col("stream").fill_null(0), external_id)


LAYERS: tuple[Callable[[Twin], None], ...] = (_write_device_tasks, _write_collectives, _write_annotations)
