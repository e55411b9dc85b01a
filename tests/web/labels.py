"""What the walk asks of labels and of the timeline: every label is of the words of the pages, and no event is there twice.

``web/tests/words.test.ts`` compares the words with ``docs/glossary.md``: what is a word of the pages is one of the glossary.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

import steplens
from steplens.timeline.layout import build_timeline

WORDS = Path(__file__).resolve().parents[2] / "web" / "src" / "words"
#: what has no words of its own: figures and their units, names of profilers, of devices and of operators in heads of matrices
_PLAIN = re.compile(r"[^A-Za-z\u4e00-\u9fff]*|steplens|torch\.profiler|torch_npu\.profiler|MindSpore|CPU|GPU|NPU|CUDA|ROCM")
#: names of figures, columns, tabs, lists and parts of a bar, but for names out of the recording
LABELS = """
const places = ['.menu a, .menu summary', '.tabs a', '.figure dt', '.choice > span', '.scale-legend > strong', '.legend li > a',
  'main .grid-table th button', 'main table.small thead th', 'main .card > header h2'];
return [...new Set([...document.querySelectorAll(places.join(', '))].filter(one => one.checkVisibility())
  .map(one => [...one.childNodes].filter(node => node.nodeType === 3 || !node.classList?.contains('badge'))
    .map(node => node.textContent).join('').replace(/ [▲▼]$/, '').trim()))]"""


def strange_labels(labels: list[str], language: str) -> list[str]:
    """The labels that are no words of the pages in this language: what a name of the server reads as."""
    return [label for label in labels if not _PLAIN.fullmatch(label) and not _words_of(language).fullmatch(label)]


@functools.cache
def _words_of(language: str) -> re.Pattern[str]:
    """Fits every text of the pages, whatever fills its places."""
    texts = json.loads((WORDS / f"{language}.json").read_text(encoding="utf-8")).values()
    # a text that is all places would fit everything
    telling = {text for text in texts if re.search(r"\w", re.sub(r"\{\w+\}", "", text))}
    fitting = (".+?".join(map(re.escape, re.split(r"\{\w+\}", text))) for text in sorted(telling))
    # cards say what they are of behind a colon
    return re.compile(f"(?:{'|'.join(fitting)})(?:[:：] ?.*)?", re.DOTALL)


def repeated_events(path: Path) -> Iterator[str]:
    """Events that the timeline of a capture has more than once: of one name, with the same start and end.

    Collectives are on the track of their group as well as on the stream that they ran on, which is what both tracks are for.
    """
    for number, trace in enumerate(steplens.open(path).traces):
        timeline = build_timeline(trace, 0)
        lanes = np.repeat([lane.id for lane in timeline.lanes for _ in range(lane.rows)], np.diff(timeline.offsets))
        groups = [lane.id for lane in timeline.lanes if lane.source.id == "communication"]
        events = pl.DataFrame({"lane": lanes, "name": timeline.name, "start": timeline.start, "end": timeline.end})
        events = events.filter(pl.col("end") > pl.col("start")).with_columns(of_group=pl.col("lane").is_in(groups))
        again = events.group_by("of_group", "name", "start", "end").len().filter(pl.col("len") > 1)
        for name, start, times in again.select("name", "start", "len").head(5).iter_rows():
            yield f"trace {number}: {timeline.names[name][:60]} is there {times} times from {start} ns on"
