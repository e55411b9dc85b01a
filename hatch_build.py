"""Lets no package be built without the pages of ``steplens view``, which are made by ``make web`` and are not in git.

Builds the libraries of C++ that need no PyTorch, where there is a compiler; a wheel that holds them is for its platform. Without
a compiler, and with ``STEPLENS_NATIVE=off``, it is for all, and they are built where it is used, if there is a compiler then.
"""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_SOURCE = Path("src")
_PAGE = _SOURCE / "steplens" / "server" / "static" / "index.html"
_NATIVE = _SOURCE / "steplens" / "native"


class PagesHook(BuildHookInterface):
    """Looks for the pages before a wheel or an sdist is made; an editable install does without them."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Refuse where they are missing; build the libraries."""
        root = Path(self.root)
        if version != "editable" and not (root / _PAGE).is_file():
            raise SystemExit(
                f"{_PAGE} is missing: a package without the pages of steplens view is not built. Run make web first; "
                "pip install --editable does without them."
            )
        if getattr(self, "target_name", "wheel") == "wheel" and (root / _NATIVE).is_dir() and build_libraries(root):
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


def build_libraries(root: Path) -> list[Path]:
    """Build what needs nothing but a compiler beside its sources; the files, or none where that does not go."""
    sys.path.insert(0, str(root / _SOURCE))
    try:
        from steplens.common.native.build import BuildError, build_library
        from steplens.common.native.libraries import PREBUILT, WITHOUT_PYTORCH, NativeLibrary

        PREBUILT.mkdir(exist_ok=True)
        built = [build_library(NativeLibrary(name), PREBUILT) for name in WITHOUT_PYTORCH]
        for name in WITHOUT_PYTORCH:
            # of sources that have changed since
            for stale in set(PREBUILT.glob(f"{name}-*.so")) - set(built):
                stale.unlink()
        return built
    except BuildError as error:
        print(f"steplens: the package is built without libraries of C++: {error}", file=sys.stderr)
        return []
    finally:
        sys.path.remove(str(root / _SOURCE))
