"""Small answers about a trace, kept beside its tables: what is asked of every rank of a job again and again.

With them the tables of a rank need not be read to speak of its job. They are believed like the tables are: with our seal, for
these very tables, and only by the version of steplens that worked them out.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from steplens.common import expansion, rundir
from steplens.trace.cache import seal
from steplens.trace.kept_tables import KeptTables

#: answers about a trace alone, and about all traces of a run together, which lie beside the first one
OF_TRACE, TOGETHER = "answers", "answers_together"
_SUFFIX = ".msgpack"
_MOST_BYTES = 64 << 20
#: of compression: small frames are mostly descriptions of their columns, which answers have in common
_LEVEL = 6
#: a rank is asked about alone and with others, which are sets of answers of their own: those used last are kept
_SETS = 3


def read_answers(
    kept: KeptTables, context: str, kind: str = OF_TRACE, usual_names: Sequence[str] = ()
) -> dict[str, bytes] | None:
    """The answers about a trace that were kept, by name; None where there are none of ours.

    Args:
        kept: where its tables are kept.
        context: what else they depend on, such as the other traces of the run.
        kind: OF_TRACE or TOGETHER.
        usual_names: as they were packed with.
    """
    try:
        with seal.cache_folder(seal.own_place(kept.folder)) as folder:
            name = _file_name(context, kind)
            content = seal.read_file(name, folder, _MOST_BYTES)
            with contextlib.suppress(OSError):  # of the sets those that were used last are kept
                os.utime(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None
    mark, answers = content[: seal.SIZE], content[seal.SIZE :]
    if not seal.is_sealed(kind, _sealed_identity(kept, context) + answers, mark):
        return None
    try:
        return unpack_answers(answers, usual_names)
    except ValueError:
        return None


def pack_answers(answers: Mapping[str, bytes], usual_names: Sequence[str] = ()) -> bytes:
    """All answers about a trace as they are kept and sent: compressed together.

    Args:
        answers: of ``answer_values.encode_answer``, by name.
        usual_names: names that most have; of thousands of ranks the names would be a tenth of all that is kept.
    """
    # several questions often have one answer; the small ones, which are alike, stand within what compression looks back
    numbers: dict[bytes, int] = {}
    in_order = sorted(answers.items(), key=lambda row: (len(row[1]), row[0]))
    names = {name: numbers.setdefault(answer, len(numbers)) for name, answer in in_order}
    packer = zlib.compressobj(_LEVEL, zdict=_join_names(usual_names)) if usual_names else zlib.compressobj(_LEVEL)
    return packer.compress(msgspec.msgpack.encode((names, [*numbers]))) + packer.flush()


def unpack_answers(packed: bytes, usual_names: Sequence[str] = ()) -> dict[str, bytes]:
    """The answers of ``pack_answers``.

    Raises:
        ValueError: it is something else, or was packed with other names.
    """
    try:
        content = expansion.expand_bytes(packed, _MOST_BYTES, dictionary=_join_names(usual_names))
        names, contents = msgspec.msgpack.decode(content, type=tuple[dict[str, int], list[bytes]])
        return {name: contents[number] for name, number in names.items()}
    except (zlib.error, msgspec.DecodeError, ValueError, IndexError) as error:
        raise ValueError(f"no answers that were kept: {error}") from error


def write_answers(kept: KeptTables, context: str, packed: bytes, kind: str = OF_TRACE) -> bool:
    """Keep answers about a trace; where nothing can be written they are worked out again the next time.

    Args:
        kept: where its tables are kept.
        context: as for ``read_answers``.
        kind: as for ``read_answers``.
        packed: of ``pack_answers``.

    Returns:
        Whether they are kept.
    """
    mark = seal.compute_seal(kind, _sealed_identity(kept, context) + packed)
    if mark is None or len(packed) > _MOST_BYTES:
        return False
    with contextlib.suppress(OSError), seal.cache_folder(seal.own_place(kept.folder)) as folder:
        place = seal.path_of(folder)
        rundir.write_bytes(place / _file_name(context, kind), mark + packed)
        sets = sorted(place.glob(f"{kind}-*{_SUFFIX}"), key=lambda path: path.stat().st_mtime_ns)
        for old in sets[:-_SETS]:
            old.unlink()
        return True
    return False


def _join_names(usual_names: Sequence[str]) -> bytes:
    return "\n".join(usual_names).encode()


def _file_name(context: str, kind: str) -> str:
    return f"{kind}-{hashlib.sha256(context.encode()).hexdigest()[:16]}{_SUFFIX}"


def _sealed_identity(kept: KeptTables, context: str) -> bytes:
    return "\0".join((kept.fingerprint, context, program_digest(), "")).encode()


@functools.cache
def program_digest() -> str:
    """What the program is known by that works answers out: all of its modules, since any may change an answer."""
    package = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    modules = sorted(_list_modules(package, ""))
    return hashlib.sha256("\n".join((sys.modules["steplens"].__version__, *modules)).encode()).hexdigest()


def _list_modules(folder: str, place: str) -> Iterator[str]:
    """Every module below a folder, with its size and time."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                status = entry.stat()
                yield f"{place}{entry.name} {status.st_size} {status.st_mtime_ns}"
            elif "." not in entry.name and entry.is_dir(follow_symlinks=False):
                yield from _list_modules(entry.path, f"{place}{entry.name}/")
