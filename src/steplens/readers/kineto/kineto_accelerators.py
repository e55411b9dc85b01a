"""Events of accelerators that are neither CUDA's nor ROCm's: which of a trace's unknown categories are a device's work.

Kineto gives some accelerators categories of their own (``mtia_ccp_events``, ``hpu_op``, ``mtia_insight``), and others bring
theirs along (``gcu_memcpy``, ``mlu_user_annotation``). A category is no list that could be complete, so an event of one that
is not known is placed by what it says of itself: the device, the stream, the launch it answers to, the label of its process.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import polars as pl

from steplens.trace.schema import CORE_CUDA

#: categories of Kineto whose events are the work of a device wherever they lie
_DEVICE_CATEGORY = re.compile(r"^mtia_ccp_events$|_mem(?:cpy|set)$", re.IGNORECASE)
#: annotations of the user as a device saw them
_RANGE_CATEGORY = re.compile(r"_user_annotation$", re.IGNORECASE)
#: waits, event records and ranges of measurement: they lie on a device and do no work there
_IDLE_CATEGORY = re.compile(r"_(?:sync|event|range)$", re.IGNORECASE)
_COPY_CATEGORY = re.compile(r"_mem(?:cpy|set)$", re.IGNORECASE)
_COMMUNICATION_CATEGORY = "collective_comm"
#: label of a process in a trace: "GPU 0", "MTIA 3", "CPU"
_LABEL = re.compile(r"^\s*([A-Za-z][\w-]*)[\s:]+(\d{1,6})\b")
_HOST_LABELS = ("CPU", "HOST")
#: what stands in front of a category and is no name of an accelerator
_NO_ACCELERATOR = ("gpu", "cuda", "hip", "collective", "cpu", "user", "python", "external", "")
_CALLS = re.compile(r"^(\w+?)_(?:runtime|driver)$", re.IGNORECASE)


@dataclass(frozen=True)
class Placed:
    """Events of unknown categories, sorted by what they are.

    Attributes:
        tasks: of a device; ``device`` is filled from the label of the process where the event does not say it.
        ranges: annotations of the user as a device saw them.
        rest: those that nothing places.
    """

    tasks: pl.DataFrame
    ranges: pl.DataFrame
    rest: pl.DataFrame


def place_events(events: pl.DataFrame, hosts: Collection[int], labels: Mapping[int, str]) -> Placed:
    """Sort the events of unknown categories.

    An event is a device's when its category says so, or when it is no event of a process of the host and names a device, a
    stream or the launch that it answers to, or lies in a process with the label of a device. On a process of the host it
    has to name both device and stream.

    Args:
        events: with category, pid, device, stream and correlation.
        hosts: processes that operators, Python frames or runtime calls were recorded of.
        labels: label of each process that has one.
    """
    if not events.height:
        return Placed(events, events, events)
    devices = {pid: int(matched[2]) for pid, text in labels.items() if (matched := device_label(text)) is not None}
    category = pl.col("category").cast(pl.String)
    on_host = pl.col("pid").is_in(list(hosts)).fill_null(False)
    labelled = pl.col("pid").is_in(list(devices)).fill_null(False)
    is_placed = pl.col("device").is_not_null() | pl.col("stream").is_not_null()
    answers = pl.col("correlation").fill_null(0) > 0
    both = pl.col("device").is_not_null() & pl.col("stream").is_not_null()
    is_device = category.str.contains(_polars_pattern(_DEVICE_CATEGORY)) | (~on_host & (is_placed | answers | labelled)) | both
    is_range = category.str.contains(_polars_pattern(_RANGE_CATEGORY))
    number = pl.col("pid").replace_strict(devices, default=None, return_dtype=pl.Int64)
    placed = events.with_columns(
        _place=pl.when(is_range).then(pl.lit("range")).when(is_device).then(pl.lit("task")).otherwise(pl.lit("rest")),
        device=pl.coalesce("device", number),
    )
    tasks, ranges, unplaced = (placed.filter(pl.col("_place") == name).drop("_place") for name in ("task", "range", "rest"))
    of_a_range = ("name", "pid", "tid", "start_ns", "end_ns", "category", "external_id", "correlation")
    return Placed(tasks, ranges.select(of_a_range), unplaced)


def _polars_pattern(pattern: re.Pattern[str]) -> str:
    return f"(?i){pattern.pattern}"


def device_label(text: str) -> re.Match[str] | None:
    """The label of a process that is a device: its kind and its number."""
    matched = _LABEL.match(text)
    return matched if matched is not None and matched[1].upper() not in _HOST_LABELS else None


def is_idle(category: str) -> bool:
    """Whether the events of a category lie on a device without working there."""
    return _IDLE_CATEGORY.search(category) is not None


def is_copy(category: str) -> bool:
    """Whether the events of a category copy or set memory of a device."""
    return _COPY_CATEGORY.search(category) is not None


def is_communication(category: str) -> bool:
    """Whether the events of a category are collectives."""
    return category == _COMMUNICATION_CATEGORY


def accelerator_of_calls(layers: Collection[str]) -> str | None:
    """The accelerator that runtime and driver calls of these layers are of ("XPU"); None where they are CUDA's or HIP's."""
    prefixes = sorted({matched[1].lower() for layer in layers if (matched := _CALLS.match(layer)) is not None})
    return next((prefix.upper() for prefix in prefixes if prefix not in _NO_ACCELERATOR), None)


def accelerator_name(categories: Collection[str], layers: Collection[str], labels: Collection[str]) -> str:
    """What the devices of a trace are called, as far as it tells: "MTIA", "XPU", "HPU"; "CUDA" where nothing says otherwise.

    The label of a process has the name that a backend gave itself, the category that of Kineto, a runtime's calls at least
    whose they are.

    Args:
        categories: of the device tasks.
        layers: of the runtime and driver calls.
        labels: of the processes.
    """
    kinds = sorted({label[1].upper() for text in labels if (label := device_label(text)) is not None})
    own_kind = next((kind for kind in kinds if kind not in ("GPU", "CUDA")), None)
    prefixes = sorted({category.lower().partition("_")[0] for category in categories if "_" in category})
    of_category = next((prefix.upper() for prefix in prefixes if prefix not in _NO_ACCELERATOR), None)
    return own_kind or of_category or accelerator_of_calls(layers) or CORE_CUDA
