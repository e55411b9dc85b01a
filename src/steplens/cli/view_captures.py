"""What the web UI's server asks of trainings that run; the server itself knows no collector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from steplens.cli.recording.status import describe_process
from steplens.cli.recording.trigger import capture_configuration
from steplens.collect.dynamic import client
from steplens.collect.dynamic.job import job_folder
from steplens.common.errors import InputError

#: folders below a run in which a configuration is looked for
_MOST_FOLDERS = 200


class Trainings:
    """The trainings on this machine that watch a folder; see ``steplens.server.captures.Control``."""

    def folder(self, run: Path) -> Path | None:
        """The folder at or directly below ``run`` that has a ``profiler_config.json``."""
        try:
            subfolders = sorted(path for path in run.iterdir() if path.is_dir() and not path.is_symlink())[:_MOST_FOLDERS]
        except OSError:
            return None
        folders = (path for path in (run, *subfolders) if (path / job_folder.CONFIGURATION_FILE).is_file())
        return next((job_folder.configuration_directory(path) for path in folders), None)

    def processes(self, folder: Path) -> Sequence[Mapping[str, Any]]:
        """Every process that watches ``folder``, and dead ones of the last job."""
        return [_process_row(item) for item in client.find_participants(folder)]

    def ask(self, folder: Path, changes: Mapping[str, Any]) -> str:
        """Leave a request and return its id.

        Raises:
            InputError: the folder's configuration cannot be read, or the request cannot be written.
        """
        base = job_folder.read_json((folder / job_folder.CONFIGURATION_FILE).resolve())
        if base is None:
            raise InputError(folder / job_folder.CONFIGURATION_FILE, "is not a JSON object", "Correct it, or remove it")
        try:
            request, _ = client.send_request(folder, capture_configuration(folder, base, changes))
        except OSError as error:
            raise InputError(folder, f"the request cannot be written: {error.strerror or error}") from error
        return request


def _process_row(item: client.Participant) -> dict[str, Any]:
    described = describe_process(item)
    names = ("pid", "rank", "program", "state", "step", "step_age_ns", "eligible", "why_not", "problem")
    done, steps_asked = item.progress or (None, None)
    requests = [_request_row(request) for request in described["requests"]]
    return {**{name: described[name] for name in names}, "recorded": done, "wanted": steps_asked, "requests": requests}


def _request_row(told: Mapping[str, Any]) -> dict[str, Any]:
    start, warmup, stop = (_to_integer(told.get(name)) for name in ("start_step", "warmup", "stop_step"))
    return {
        "id": str(told.get("id") or ""),
        "state": str(told.get("state") or ""),
        "first_step": start + (warmup or 0) if start is not None and start > 0 else None,
        "last_step": stop if stop else None,
        "reason": str(told.get("reason") or ""),
        "result": str(told.get("result") or ""),
        "analysed": told.get("analysed") is True,
    }


def _to_integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
