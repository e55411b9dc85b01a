"""Answers about a run of many ranks as bytes, on disk beside the first trace, with our seal, for these very traces."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping

from steplens.common import expansion
from steplens.run import Run
from steplens.trace.cache.kept_answers import pack_answers, read_answers, write_answers
from steplens.trace.cache.known_answers import run_context

#: of so many traces what is asked of each is worked out before a page is shown, and whole answers are kept
MANY_TRACES = 32

_LEVEL = 6
#: an answer takes no more, uncompressed
_MOST_BYTES = 64 << 20


def is_many(run: Run) -> bool:
    """Whether a run has so many traces that its answers are kept whole."""
    return len(run.traces) >= MANY_TRACES


def pack_page(body: bytes) -> bytes:
    """An answer as it is kept, and sent to who takes it compressed."""
    return gzip.compress(body, _LEVEL, mtime=0)


def unpack_page(packed: bytes) -> bytes | None:
    """The same as it was; None where it is damaged, or larger than any answer."""
    try:
        return expansion.expand_bytes(packed, _MOST_BYTES, is_gzip=True)
    except (ValueError, zlib.error):
        return None


def read_pages(run: Run) -> dict[str, bytes]:
    """The answers that were kept of a run, packed, by what was asked; empty where none were."""
    context = _context_of(run)
    first = run.traces[0]
    return {} if context is None or first.kept is None else (read_answers(first.kept, context) or {})


def write_pages(run: Run, pages: Mapping[str, bytes]) -> None:
    """Keep packed answers; where nothing can be kept they are worked out again the next time."""
    context = _context_of(run)
    first = run.traces[0]
    if context is not None and first.kept is not None:
        write_answers(first.kept, context, pack_answers(pages))


def _context_of(run: Run) -> str | None:
    """What answers depend on: all traces, and what they are called, which some say; None where nothing is kept."""
    traces = run_context(run.traces)
    if traces is None or run.unreadable:
        return None
    return "\0".join([traces, "pages", str(run.path), *(str(source.path) for source in run.sources)])
