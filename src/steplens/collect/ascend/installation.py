"""What Ascend software is installed, for ``doctor`` and for the record of a run."""

from __future__ import annotations

import os
import re
from pathlib import Path

from steplens.collect.ascend.library import HOME_VARIABLES, NAME

#: where CANN's installer puts it for root and for other users
_USUAL_HOMES = ("/usr/local/Ascend/ascend-toolkit/latest", "~/Ascend/ascend-toolkit/latest")

_VERSION_LINE = re.compile(r"^\s*version\s*=\s*(\S+)", re.MULTILINE | re.IGNORECASE)
_VERSION_FILE_BYTES = 64 << 10


def cann_home() -> Path | None:
    """The installation of CANN that the environment names."""
    homes = (Path(home) for home in map(os.environ.get, HOME_VARIABLES) if home)
    return next((home for home in homes if home.is_dir()), None)


def unsourced_home() -> Path | None:
    """An installation in a usual place that the environment does not name: its set_env.sh was not sourced."""
    homes = (Path(place).expanduser() for place in _USUAL_HOMES) if cann_home() is None else ()
    return next((home for home in homes if (home / "lib64" / NAME).is_file()), None)


def cann_version() -> str:
    """The version of the CANN that the environment names, from its installation record; empty when unknown."""
    root = cann_home()
    if root is None:
        return ""
    for pattern in ("*/ascend_*_install.info", "ascend_*_install.info"):
        for path in sorted(root.glob(pattern)):
            try:
                with path.open("rb") as handle:
                    text = handle.read(_VERSION_FILE_BYTES).decode(errors="replace")
            except OSError:
                continue
            match = _VERSION_LINE.search(text)
            if match:
                return match[1]
    return ""
