"""Makes a Kineto trace of any size from a recorded one, by repeating its events with shifted times and new ids.

Usage: ``python benchmarks/enlarge.py RECORDED.json[.gz] LARGE.json --megabytes 1000``

The result has the line layout that Kineto writes. Every repetition begins where the last one ended; ids that tie events
together (external ids, correlations, sequence numbers, arrows, steps) continue, so that nothing is tied across repetitions.
"""

from __future__ import annotations

import argparse
import gzip
import re
from pathlib import Path

#: numbers that differ between two repetitions; the fraction of a time stays as it is
_NUMBERS = re.compile(
    r'"(?P<key>ts|id|External id|Record function id|Ev Idx|Sequence number|correlation|Profiler Event Index)": (?P<value>\d+)'
    r"|ProfilerStep#(?P<step>\d+)"
    r'|"Addr": (?P<address>\d+)'
)
_BOUNDARY = "},\n  {"
_UNIQUE = re.compile(r'"ph": "M"|"cat": "Trace"|"ph": "i", "s": "g"')


def enlarge(source: Path, target: Path, wanted_bytes: int) -> int:
    """Write a trace of about ``wanted_bytes`` made of repetitions of ``source``; returns how many."""
    raw = source.read_bytes()
    text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode()
    begin = text.index("{", text.index('"traceEvents"'))
    end = text.rindex("}", 0, text.rindex("\n  ]")) + 1
    events = text[begin + 1 : end - 1].split(_BOUNDARY)
    repeated = [event for event in events if not _UNIQUE.search(event)]
    unique = [event for event in events if _UNIQUE.search(event)]

    pieces: list[str] = []
    keys: list[str] = []
    values: list[int] = []
    position = 0
    body = _BOUNDARY.join(repeated)
    for found in _NUMBERS.finditer(body):
        key = found["key"] or ("step" if found["step"] else "address")
        group = "value" if found["key"] else key
        pieces.append(body[position : found.start(group)])
        keys.append(key)
        values.append(int(found[group]))
        position = found.end(group)
    pieces.append(body[position:])
    stride = {key: _stride(key, [value for name, value in zip(keys, values, strict=True) if name == key]) for key in set(keys)}
    strides = [stride[key] for key in keys]

    count = max(round(wanted_bytes / len(body)), 1)
    with target.open("w") as handle:
        handle.write(text[:begin] + "{")
        for number in range(count):
            numbers = [str(value + number * step) for value, step in zip(values, strides, strict=True)]
            handle.write("".join([part for pair in zip(pieces, numbers, strict=False) for part in pair]) + pieces[-1] + _BOUNDARY)
        handle.write(_BOUNDARY.join(unique) + "}" + text[end:])
    return count


def _stride(key: str, values: list[int]) -> int:
    if key == "address":
        return 0
    if key == "ts":
        # far enough for the longest event, since a range that reaches into the next repetition would enclose it
        return (max(values) - min(values)) * 2 + 1_000_000
    return max(values) - min(values) + 1


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--megabytes", type=int, default=1000)
    given = parser.parse_args()
    print(enlarge(given.source, given.target, given.megabytes * 1_000_000), "repetitions")


if __name__ == "__main__":
    main()
