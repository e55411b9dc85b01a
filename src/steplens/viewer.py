"""``steplens.view``: the pages of ``steplens view`` from a notebook or a script, which goes on meanwhile."""

from __future__ import annotations

import html
import os
import subprocess
import sys
import weakref
from typing import Any

from steplens.common.errors import SteplensError
from steplens.common.stand_ins import told_path


class View:
    """A server that runs in a process of its own until :meth:`close`, or the end of this program.

    Attributes:
        link: of the pages, with the token that they need; for a browser on this machine.
    """

    def __init__(self, link: str, process: subprocess.Popen[str]) -> None:
        self.link = link
        self._end = weakref.finalize(self, _end_process, process)

    def close(self) -> None:
        """End the server."""
        self._end()

    def __enter__(self) -> View:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<steplens view: {self.link if self._end.alive else 'ended'}>"

    def _repr_html_(self) -> str:
        if not self._end.alive:
            return "steplens view: ended"
        link = html.escape(self.link)
        return (
            f'<a href="{link}" target="_blank" rel="noopener">steplens view</a> (on the machine of this notebook, until close())'
        )


def view(*runs: Any, port: int = 0) -> View:
    """Show runs in the browser: start ``steplens view`` beside this program, and return its link.

    Args:
        runs: paths, or what ``steplens.open`` returned; several are shown beside each other.
        port: to listen on; 0 takes a free one.

    Raises:
        SteplensError: the server does not start; the message is that of the command.
    """
    paths = [told_path(os.fspath(getattr(run, "path", run))) for run in runs]
    process = subprocess.Popen(
        [sys.executable, "-m", "steplens", "view", "--no-browser", "--port", str(port), "--", *paths],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Ctrl-C in a cell is not meant for it
        start_new_session=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("http"):
            return View(line.strip(), process)
    _, message = process.communicate()
    raise SteplensError(message.strip().removeprefix("steplens: ") or f"steplens view ended with code {process.returncode}")


def _end_process(process: subprocess.Popen[str]) -> None:
    process.terminate()
    process.communicate()
