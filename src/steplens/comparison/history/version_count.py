"""Whether what was opened is a folder of versions of a program: known without their figures."""

from __future__ import annotations

from pathlib import Path

from steplens.common.listings import list_folder
from steplens.comparison.baselines.places import is_baseline
from steplens.run import Run


def count_versions(run: Run) -> int:
    """How many folders of recordings lie in a folder, all of the same ranks; 0 where it is one recording, or ranks of a job.

    Args:
        run: what was opened.
    """
    folders: dict[str, set[int]] = {}
    for path, trace in zip(run.paths, run.traces, strict=True):
        try:
            parts = path.relative_to(run.path).parts
        except ValueError:
            return 0
        # what lies in the folder itself is a recording of the same version
        if len(parts) < 2:
            return 0
        folders.setdefault(parts[0], set()).add(trace.rank)
    ranks = list(folders.values())
    return len(folders) if len(folders) > 1 and all(of_folder == ranks[0] for of_folder in ranks) else 0


def count_baselines(folder: Path) -> int:
    """How many saved baselines lie in a folder that holds no folder beside them; 0 where there is anything else to open.

    Args:
        folder: a folder; of a file the answer is 0.
    """
    if not folder.is_dir():
        return 0
    entries = [entry for entry in list_folder(folder).entries if not entry.name.startswith(".")]
    return 0 if any(entry.is_dir() for entry in entries) else sum(is_baseline(Path(entry.path)) for entry in entries)
