"""Where the modules of a process come from: a version of a program that runs beside another one is to run its own code."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import site
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from urllib.parse import unquote, urlsplit

from steplens.common import json_text

#: more than a few say no more
_MOST_MODULES = 3


def find_foreign_modules(own: str, foreign: Sequence[str]) -> list[str]:
    """Imported modules that come from other checkouts of the program, each as "name from file".

    An environment may lie in a checkout, as ``.venv`` does in many: what is installed there comes from no checkout, unless it is
    a copy that was installed from one.

    Args:
        own: the checkout that runs.
        foreign: other checkouts; the own one may lie in one of them.
    """
    own_places = _with_links_resolved([own])
    checkouts = [os.path.realpath(folder) for folder in foreign]
    # an environment in which a checkout lies is no reason to leave that out
    installed = [folder for folder in _environment_folders() if _lies_below(folder, checkouts)]
    copies = _installed_copies(own_places, checkouts)
    modules = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
    foreign_modules = []
    for name, path in sorted(modules.items()):
        # what was linked into the own checkout is meant to be the same: its links are not followed
        if not isinstance(path, str) or _lies_below(path, own_places):
            continue
        real = os.path.realpath(path)
        if real in copies or (_lies_below(real, checkouts) and not _lies_below(real, [*installed, *own_places])):
            foreign_modules.append(f"{name} from {path}")
    return foreign_modules[:_MOST_MODULES]


def _environment_folders() -> set[str]:
    """Folders into which Python and packages are installed."""
    paths = sysconfig.get_paths()
    folders = {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix, site.getusersitepackages()}
    folders.update(paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    return _with_links_resolved(folders)


def _installed_copies(own_places: set[str], checkouts: Sequence[str]) -> set[str]:
    """Files of Python that were copied from another checkout when it was installed (PEP 610 has installers note from where).

    Compiled ones are not among them: nobody finds them in a checkout.
    """
    files: set[str] = set()
    for distribution in importlib.metadata.distributions():
        source = _source_folder(distribution)
        if source in checkouts and source not in own_places:
            paths = [str(distribution.locate_file(path)) for path in distribution.files or () if path.suffix == ".py"]
            files.update(map(os.path.realpath, paths))
    return files


def _source_folder(distribution: importlib.metadata.Distribution) -> str:
    """The folder of which a distribution is a copy; empty for one from an index or an archive, and one in editable mode."""
    with contextlib.suppress(OSError, ValueError):
        origin = json_text.loads(distribution.read_text("direct_url.json") or "{}")
        if isinstance(origin, dict) and isinstance(origin.get("dir_info"), dict) and not origin["dir_info"].get("editable"):
            address = urlsplit(str(origin.get("url")))
            if address.scheme == "file":
                return os.path.realpath(unquote(address.path))
    return ""


def _with_links_resolved(folders: Iterable[str]) -> set[str]:
    return {place for folder in folders if folder for place in (os.path.abspath(folder), os.path.realpath(folder))}


def _lies_below(path: str, folders: Iterable[str]) -> bool:
    return any(path.startswith(os.path.join(folder, "")) for folder in folders)
