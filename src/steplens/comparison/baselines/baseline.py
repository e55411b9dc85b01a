"""Baselines as files: written, the same bytes for the same recordings, and read, whatever somebody made of them."""

from __future__ import annotations

import struct
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from steplens.common import json_text
from steplens.common.errors import InputError
from steplens.common.expansion import expand_bytes
from steplens.common.storage.files import open_file, size_of
from steplens.comparison.baselines.document import FORMAT, VERSION, BaselineDocument, Head, Program
from steplens.comparison.baselines.places import check_baseline
from steplens.comparison.baselines.side_document import describe_side, read_side
from steplens.comparison.side import Side

#: what the file may have, and what comes out of it: a side of 36 recordings of 200 steps each takes half a megabyte
_MOST_BYTES, _MOST_EXPANDED = 16 << 20, 64 << 20
#: gzip without a time, a name and a system, which would change the bytes from one place to another
_GZIP_HEADER = b"\x1f\x8b\x08\0\0\0\0\0\x02\xff"
_REMEDY = "Save it again with: steplens baseline save NAME RUN --replace"


@dataclass(frozen=True)
class Baseline:
    """A side that was measured, and what is known of where it is from.

    Attributes:
        side: the side; its path is that of the file.
        commits: of git, which were checked out where it was saved, or recordings were added; none where that is not known.
        changed: whether files had other content than in one of them.
        steplens: the version that saved it.
    """

    side: Side
    commits: tuple[str, ...]
    changed: bool
    steplens: str


def encode_baseline(side: Side, commits: Sequence[str] = (), *, changed: bool = False) -> bytes:
    """The file of a baseline.

    Args:
        side: with three steps at least.
        commits: as in ``Baseline``.
        changed: as in ``Baseline``.

    Raises:
        InputError: it is larger than a baseline may be.
    """
    version: str = sys.modules["steplens"].__version__
    document = BaselineDocument(FORMAT, VERSION, version, Program(list(commits), changed), describe_side(side))
    plain = msgspec.json.encode(document)
    packer = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    packed = packer.compress(plain) + packer.flush()
    content = _GZIP_HEADER + packed + struct.pack("<II", zlib.crc32(plain), len(plain) & 0xFFFFFFFF)
    if len(content) > _MOST_BYTES or len(plain) > _MOST_EXPANDED:
        raise InputError(side.path, "has more figures than a baseline may hold", "Save fewer recordings, or shorter ones")
    return content


def read_baseline(path: Path) -> Baseline:
    """What a baseline holds.

    Args:
        path: of its file.

    Raises:
        InputError: it is not there, damaged, no baseline, or of a later format.
    """
    check_baseline(path)
    try:
        with open_file(path) as handle:
            if size_of(handle) > _MOST_BYTES:
                raise InputError(path, f"is larger than a baseline may be ({_MOST_BYTES >> 20} MiB)", _REMEDY)
            content = handle.read(_MOST_BYTES + 1)
    except OSError as error:
        raise InputError(path, f"cannot be read ({error.strerror or error})", "Check its permissions") from None
    try:
        plain = expand_bytes(content, _MOST_EXPANDED, is_gzip=True)
        parsed = json_text.loads(plain)
        head = msgspec.convert(parsed, type=Head)
        if head.format != FORMAT:
            raise InputError(path, "is no baseline of steplens", _REMEDY)
        if head.version > VERSION:
            problem = f"is a baseline of format {head.version}, and this version of steplens reads those up to {VERSION}"
            raise InputError(path, problem, "Update steplens")
        document = msgspec.convert(parsed, type=BaselineDocument)
        side = read_side(document.side, path)
    except (ValueError, msgspec.MsgspecError, zlib.error, RecursionError) as error:
        raise InputError(path, f"is a damaged baseline, or none ({_shorten_reason(error)})", _REMEDY) from None
    return Baseline(side, tuple(document.program.commits), document.program.changed, document.steplens)


def _shorten_reason(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 200 else text[:197] + "..."
