"""Lets no package be built without the pages of ``steplens view``, which are made by ``make web`` and are not in git."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_PAGE = Path("src", "steplens", "server", "static", "index.html")


class PagesHook(BuildHookInterface):
    """Looks for the pages before a wheel or an sdist is made; an editable install does without them."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Refuse where they are missing."""
        if version != "editable" and not (Path(self.root) / _PAGE).is_file():
            raise SystemExit(
                f"{_PAGE} is missing: a package without the pages of steplens view is not built. Run make web first; "
                "pip install --editable does without them."
            )
