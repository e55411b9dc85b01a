"""A trace of some of the events of a large file, drawn within a moment, while all of them are still to be read."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from steplens.common.errors import SteplensError
from steplens.common.storage.files import is_remote
from steplens.readers.common.json_sample import Sample, write_sample
from steplens.readers.detect import cache_of, find_traces, is_kept
from steplens.readers.reader import AnyCapture
from steplens.trace.cache import seal
from steplens.trace.trace import Trace


def draft(path: Path, is_laid_out: Callable[[Path], bool]) -> tuple[AnyCapture, Trace, Sample] | None:
    """A draft of the first trace at or below ``path``, where that is large and cannot be shown within a moment.

    Its times and names are those of the file; which steps there are, what belongs together and what is missing is not to be told
    from it.

    Args:
        path: as for ``find_traces``.
        is_laid_out: whether the folder of its cache has what is to be shown of it.

    Returns:
        None where it will not take long, or nothing can be drawn without reading all: what is wrong shows then.
    """
    try:
        capture = find_traces(path)[0]
        timeline = capture.reader.timeline(capture.where)
        if timeline is None or (is_kept(capture) and is_laid_out(seal.own_place(cache_of(capture)))):
            return None
        file, read = timeline
        if is_remote(file):  # a thousand ranges of it take longer than a moment
            return None
        with tempfile.TemporaryDirectory(prefix="steplens-") as folder:
            target = Path(folder) / file.name
            sample = write_sample(file, target)
            return None if sample is None else (capture, read(target), sample)
    except (SteplensError, OSError):
        return None
