"""The log that the analysis of one run leaves in its run directory."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterator
from logging.handlers import RotatingFileHandler
from pathlib import Path

from steplens.common import rundir
from steplens.common.errors import InputError

_LOG_BYTES = 10 * 1024 * 1024
_LOG_BACKUPS = 3


class _LogFile(RotatingFileHandler):
    """A log that fills no terminal when its disk is full or gone: the outputs that fail for the same reason say so."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Leave the record out."""

    def close(self) -> None:
        """Close the file; what it could not take is lost."""
        with contextlib.suppress(OSError):
            super().close()


@contextlib.contextmanager
def run_log(path: Path) -> Iterator[logging.Logger]:
    """The log of one analysis in the run directory; its first line states the path."""
    logger = logging.Logger(f"steplens.analyse.{path.name}", logging.INFO)
    folder = path / rundir.LOG_DIRECTORY
    if folder.is_symlink():
        raise InputError(folder, "is a link, so the log could end anywhere", "Remove it and analyse again")
    rundir.make_directory(folder)
    file = folder / f"profiler_{time.strftime('%Y%m%d%H%M%S')}_{os.getpid()}_analyse.log"
    handler = _LogFile(file, maxBytes=_LOG_BYTES, backupCount=_LOG_BACKUPS, encoding="utf-8")
    file.chmod(rundir.FILE_MODE)
    handler.setFormatter(logging.Formatter("[%(asctime)s] [%(levelname)s] [%(process)d] %(message)s"))
    logger.addHandler(handler)
    try:
        logger.info("analysing %s", path.absolute())
        yield logger
    except BaseException:  # goes on: the log has it first
        logger.exception("analysis stopped")
        raise
    finally:
        handler.close()
