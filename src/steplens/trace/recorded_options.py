"""The options of a recording, as ``profiler_info`` and ``meta`` keep them under ``config``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from steplens.common import json_text

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class RecordedOptions:
    """What was asked of the profiler; empty where nothing tells.

    Attributes:
        common: ``common_config``, the options of every device.
        experimental: ``experimental_config``, those of Ascend, names as they are kept (``_profiler_level``).
    """

    common: Mapping[str, Any] = field(default_factory=dict)
    experimental: Mapping[str, Any] = field(default_factory=dict)

    @property
    def level(self) -> Any:
        """The profiler level, "Level1"; whatever stands in its place otherwise."""
        return self.experimental.get("_profiler_level")

    @property
    def activities(self) -> list[str]:
        """What was recorded, "CPU", "NPU", "CUDA"; empty where it is unknown."""
        activities = self.common.get("activities")
        return [str(item).rpartition(".")[2] for item in activities] if isinstance(activities, list) else []

    @property
    def export_types(self) -> list[Any] | None:
        """The kinds of results that were asked for; None where nothing tells."""
        kinds = self.experimental.get("_export_type")
        kinds = [kinds] if isinstance(kinds, str) else kinds
        return kinds if isinstance(kinds, list) else None


def options_of(config: Any) -> RecordedOptions:
    """The options in a value of ``config``, whatever that is."""
    parts = ((config.get(name) if isinstance(config, dict) else None) for name in ("common_config", "experimental_config"))
    return RecordedOptions(*(part if isinstance(part, dict) else {} for part in parts))


def options_in_meta(meta: pl.DataFrame | None) -> RecordedOptions:
    """The options in a table ``meta``."""
    for key, value in meta.select("key", "value").iter_rows() if meta is not None else ():
        if key == "config" and value is not None:
            try:
                return options_of(json_text.loads_stored(value))
            except ValueError:
                break
    return RecordedOptions()
