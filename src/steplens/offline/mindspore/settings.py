"""How the results of MindSpore's recordings are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from steplens.common import json_text, rundir
from steplens.common.storage.files import read_bytes
from steplens.writers.result import DONE, OutputStatus


@dataclass(frozen=True)
class Options:
    """How results are made.

    Attributes:
        pretty: indent the JSON files.
        step_list: only these of the recorded steps, counted from 1; None for all.
        data_simplification: remove the raw data once the results are there; None as recorded.
        timeline_limit_mb: largest size of a timeline, MB; None for no limit.
        overwrite: of records of the host, write also files that are newer, which MindSpore itself may have written.
    """

    pretty: bool = False
    step_list: tuple[int, ...] | None = None
    data_simplification: bool | None = True
    timeline_limit_mb: int | None = None
    overwrite: bool = True

    def prettify(self, folder: Path, outputs: Mapping[str, OutputStatus]) -> None:
        """Indent the JSON files among ``outputs`` of a folder, if that is asked for; those of its run directory it leaves."""
        for name, status in outputs.items() if self.pretty else ():
            is_own = name.endswith(".json") and not name.startswith(rundir.OUTPUT_DIRECTORY)
            if status.status == DONE and is_own and (folder / name).is_file():
                rundir.write_json(folder / name, json_text.loads_stored(read_bytes(folder / name)), indent=1)
