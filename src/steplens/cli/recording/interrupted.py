"""How a recorded script ends that was interrupted: apart, so that other commands need not import what runs scripts."""

from __future__ import annotations


class Interrupted(BaseException):
    """The script was ended by a KeyboardInterrupt, which was shown. Not one itself, which typer makes an exit code of."""
