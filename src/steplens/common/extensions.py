"""What installed packages add to steplens: readers, writers, rules and analyses behind entry points."""

from __future__ import annotations

import functools
import logging
from typing import Any

from steplens.common.listings import remember_once

#: the groups of entry points that steplens asks for
READERS = "steplens.readers"
WRITERS = "steplens.writers"
RULES = "steplens.rules"
ANALYSES = "steplens.analyses"
EXECUTORS = "steplens.executors"

_LOG = logging.getLogger("steplens.common.extensions")

#: what was loaded, each with its package
_LOADED: list[tuple[Any, str]] = []


@functools.cache
def load_extensions(group: str, kind: type) -> tuple[Any, ...]:
    """What the entry points of ``group`` stand for, in the order of their names.

    One that cannot be loaded, or that is no ``kind``, is left out with a warning that names its package: what somebody else
    installed must not keep a user from their own data.

    Args:
        group: one of the groups above.
        kind: the class whose instances are asked for.
    """
    loaded = []
    for entry in sorted(entry_points_of(group), key=lambda entry: (entry.name, entry.value)):
        package = entry.dist.name if entry.dist is not None else "an installed package"
        try:
            value = entry.load()
        except Exception as error:  # the code of another package: whatever it raises costs its own extension alone
            what = " ".join(f"{type(error).__name__}: {error}".split())
            _LOG.warning(
                "%s %r of %s is left out, for it cannot be loaded (%s); update or remove it", group, entry.name, package, what
            )
            continue
        if isinstance(value, kind):
            loaded.append(value)
            _LOADED.append((value, package if entry.dist is None else f"{package} {entry.dist.version}"))
        else:
            _LOG.warning(
                "%s %r of %s is left out: %s is no %s.%s; update or remove it",
                group, entry.name, package, entry.value, kind.__module__, kind.__qualname__,
            )  # fmt: skip
    return tuple(loaded)


def package_of(extension: object) -> str:
    """The installed package with its version that something came with, "steplens-more 1.0"; empty for what is built in."""
    return next((package for value, package in _LOADED if value is extension), "")


def installed_versions() -> tuple[str, ...]:
    """The entry points of all groups with the packages that they come with and their versions, in order; nothing is loaded."""
    installed = remember_once("entry points", _find_entry_points)
    entries = [entry for group in (READERS, WRITERS, RULES, ANALYSES, EXECUTORS) for entry in installed.select(group=group)]
    packages = ["" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}" for entry in entries]
    return tuple(f"{entry.group} {entry.name} {entry.value} {package}" for entry, package in zip(entries, packages, strict=True))


def entry_points_of(group: str) -> list[Any]:
    """The entry points of a group, not loaded."""
    return list(remember_once("entry points", _find_entry_points).select(group=group))


def are_installed(group: str) -> bool:
    """Whether any installed package adds something to ``group``; nothing is loaded."""
    return bool(entry_points_of(group))


def _find_entry_points() -> Any:
    """All entry points of installed packages, for which the folders of all packages are looked into."""
    import importlib.metadata  # it takes 10 ms to load

    return importlib.metadata.entry_points()
