"""The two logs beside the configuration file: what was done, and what happened to the file.

Each is kept to 200 KiB and one older file of the same size.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path

from steplens.collect.dynamic.job import job_folder
from steplens.common import rundir

LARGEST_BYTES = 200 * 1024
BACKUPS = 1

_FORMAT = "%(asctime)s [%(levelname)s] [%(process)d] %(filename)s: %(message)s"


class _Handler(RotatingFileHandler):
    """Writes with the modes of a run directory, and never says a word when it cannot write."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=LARGEST_BYTES, backupCount=BACKUPS, encoding="utf-8", errors="replace", delay=True)
        self.setFormatter(logging.Formatter(_FORMAT))

    def _open(self) -> TextIOWrapper:
        rundir.make_directory(Path(self.baseFilename).parent)
        opened = super()._open()
        with contextlib.suppress(OSError):
            os.fchmod(opened.fileno(), rundir.FILE_MODE)
        return opened

    def handleError(self, record: logging.LogRecord) -> None:
        """A full disk is no reason to print a traceback into somebody's training."""


class Logs:
    """The logs of one process.

    Args:
        directory: the folder of the configuration file.
        rank: of the process; part of the names.
    """

    def __init__(self, directory: Path, rank: int) -> None:
        name = f"dp_{socket.gethostname()}_{os.getpid()}_rank_{rank}.log"
        self._handlers = [_Handler(directory / job_folder.LOG_DIRECTORY / f"{prefix}{name}") for prefix in ("", "monitor_")]
        self.actions, self.file = (logging.Logger("steplens.dynamic", logging.INFO) for _ in self._handlers)
        for logger, handler in zip((self.actions, self.file), self._handlers, strict=True):
            logger.addHandler(handler)

    @property
    def path(self) -> Path:
        """The log of what was done."""
        return Path(self._handlers[0].baseFilename)

    def close(self) -> None:
        """Close the files."""
        for handler in self._handlers:
            with contextlib.suppress(OSError, ValueError):
                handler.close()
