"""Whether a folder can take what is to be recorded: said before a training runs for hours."""

from __future__ import annotations

from pathlib import Path

from steplens.common import rundir
from steplens.common.errors import InputError


def check_can_hold(folder: Path) -> None:
    """Check that run directories can be written below ``folder``, which need not exist; nothing of the check stays.

    Raises:
        InputError: a part of it is a file, a name is too long, or nothing can be written there; the message says which.
    """
    unusable = rundir.why_unusable(folder)
    if unusable is not None:
        raise InputError(*unusable, "Name another folder with --out")
