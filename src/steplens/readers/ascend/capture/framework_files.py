"""The binary files of ``FRAMEWORK/``, the raw data of the Ascend PyTorch Profiler: records to numpy columns.

Two framings exist. A *tagged* file is a chain of records ``u16 type, u32 length, payload``; the payload is a fixed struct
and then fields ``u16 id, u32 length, text``. A *flat* file is fixed structs only. Everything is little-endian.

Files are read in blocks, and every distinct text is decoded once: stacks and shapes repeat by the thousand. Whatever
follows damage is given up, whatever precedes it is kept, and the health log says what was lost. Lengths come from the
file, so none of them decides how much memory is allocated.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from steplens.common.storage.files import open_file, read_into, size_of
from steplens.readers.ascend.capture.raw_files import find_files
from steplens.trace import health as conclusions
from steplens.trace.health import ERROR, WARNING, HealthLog

Int64Array = npt.NDArray[np.int64]
Structs = npt.NDArray[np.void]

#: what a text reads as that cannot be decoded
UNDECODABLE = "N/A"

#: what the allocator hands out again: larger blocks cost page faults
_BLOCK_BYTES = 2 << 20
#: a record that claims more is passed over unread; real ones, with all of an operator's tensors, stay below a megabyte
_RECORD_LIMIT = 32 << 20
#: no kind of record has more than ten fields
_FIELD_LIMIT = 32

_RECORD_HEADER = struct.calcsize("<HI")
_LENGTH = struct.Struct("<I")
_FIELD = np.dtype([("id", "<u2"), ("length", "<u4")])


@dataclass(frozen=True)
class FlatFormat:
    """Layout of a flat file.

    Attributes:
        prefix: what the file's name begins with.
        fixed: the struct of its records.
        unsafe: what lost records make unsafe.
    """

    prefix: str
    fixed: np.dtype[np.void]
    unsafe: tuple[str, ...]


@dataclass(frozen=True)
class TaggedFormat(FlatFormat):
    """Layout of a tagged file.

    Attributes:
        type: type number of its records.
        texts: field number -> name, for the fields that are wanted; others are passed over.
    """

    type: int
    texts: Mapping[int, str]


def _record_dtype(**columns: str) -> np.dtype[np.void]:
    return np.dtype(list(columns.items()))


OP_RANGE = TaggedFormat(
    "torch.op_range",
    _record_dtype(
        start="<i8", end="<i8", sequence="<i8", pid="<u8", start_tid="<u8", end_tid="<u8", forward_tid="<u8", scope="u1",
        is_async="u1",
    ),
    (conclusions.OPERATOR_CALLS, conclusions.OPERATOR_TIMES, conclusions.OPERATOR_SELF_TIMES, conclusions.STEP_TIMES),
    1,
    {2: "name", 3: "types", 4: "shapes", 8: "stack", 9: "module"},
)  # fmt: skip
OP_MARK = TaggedFormat(
    "torch.op_mark", _record_dtype(time="<i8", category="<u8", correlation="<u8", tid="<u8", pid="<u8"),
    (conclusions.OPERATOR_DEVICE_TIMES, conclusions.RUNTIME_CALLS), 2, {1: "name"},
)  # fmt: skip
MEMORY_USAGE = TaggedFormat(
    "torch.memory_usage",
    _record_dtype(
        address="<i8", time="<i8", bytes="<i8", allocated="<i8", reserved="<i8", active="<i8", stream="<i8", device_type="i1",
        device="i1", component="u1", event="u1", allocator="u1", tid="<u8", pid="<u8",
    ),
    (conclusions.MEMORY,), 3, {},
)  # fmt: skip
_STACKS = (conclusions.CALL_STACKS,)
PYTHON_NAMES = TaggedFormat("torch.python_tracer_hash", _record_dtype(key="<u8"), _STACKS, 4, {1: "name"})
PARAMETERS = TaggedFormat("torch.param_tensor_info", _record_dtype(key="<u8"), (), 5, {1: "module", 2: "optimizer"})
PYTHON_CALLS = FlatFormat(
    "torch.python_tracer_func", _record_dtype(time="<u8", tid="<u8", pid="<u8", key="<u8", tag="u1"), _STACKS
)
COLLECTIONS = FlatFormat("torch.gc_record", _record_dtype(pid="<u8", start="<u8", end="<u8"), (conclusions.GARBAGE_COLLECTION,))

FORMATS = (OP_RANGE, OP_MARK, MEMORY_USAGE, PYTHON_NAMES, PARAMETERS, PYTHON_CALLS, COLLECTIONS)


@dataclass(frozen=True)
class Texts:
    """A column of texts, each distinct one kept once.

    Attributes:
        codes: index into ``distinct`` of each row, -1 where the record has no such field; shape (n,).
        distinct: the texts.
    """

    codes: npt.NDArray[np.int32]
    distinct: list[str]

    def series(self, name: str, dtype: pl.DataType) -> pl.Series:
        """The texts as a polars column, null where absent."""
        # the last entry stands for "absent"; the column is converted before it is spread over the rows
        values = pl.Series(name, [*self.distinct, None], dtype=pl.String).cast(dtype)
        rows: pl.Series = values.gather(np.where(self.codes < 0, len(self.distinct), self.codes))
        return rows


@dataclass(frozen=True)
class Records:
    """The records of all files of one kind.

    Attributes:
        fixed: the fixed structs, shape (n,).
        texts: name of the field -> its texts.
    """

    fixed: Structs
    texts: dict[str, Texts]

    def __len__(self) -> int:
        return len(self.fixed)


@dataclass
class _Damage:
    """What one file loses: bytes at its end, records of another type or an impossible length, texts."""

    lost_bytes: int = 0
    records: int = 0
    fields: int = 0


class _Numbers(dict[bytes, int]):
    """Numbers its keys in the order in which they are first asked for."""

    def __missing__(self, key: bytes) -> int:
        number = self[key] = len(self)
        return number


@dataclass
class _Tails:
    """What follows the fixed structs of a file's records: a run repeats few of them, so each is taken apart once.

    Attributes:
        number_of: the distinct ones, numbered as they come.
        blocks: the number of each record, by block.
    """

    number_of: _Numbers = field(default_factory=_Numbers)
    blocks: list[npt.NDArray[np.int32]] = field(default_factory=list)

    def add(self, block: bytes, begin: Int64Array, end: Int64Array) -> None:
        """Add the tails ``block[begin:end]``."""
        # maps of built-in functions: a loop or a comprehension takes twice as long
        tails = map(block.__getitem__, map(slice, begin.tolist(), end.tolist()))
        self.blocks.append(np.fromiter(map(self.number_of.__getitem__, tails), dtype=np.int32, count=len(begin)))

    def texts(
        self, wanted: Mapping[int, str], numbers_of: Mapping[str, _Numbers], damage: _Damage
    ) -> dict[str, npt.NDArray[np.int32]]:
        """For each wanted field of each record the number of its text in ``numbers_of``, -1 where it has none."""
        if not self.blocks:
            return {}
        record = np.concatenate(self.blocks)
        lengths = np.fromiter(map(len, self.number_of), dtype=np.int64, count=len(self.number_of))
        end = np.cumsum(lengths)
        joined = b"".join(self.number_of)
        fields = _locate_text_fields(joined, end - lengths, end, np.bincount(record, minlength=len(end)), wanted, damage)
        columns = {}
        for name, (begin, behind) in fields.items():
            number_of = numbers_of[name]
            texts = zip(begin.tolist(), behind.tolist(), strict=True)
            codes = [-1 if first < 0 else number_of[joined[first:last]] for first, last in texts]
            columns[name] = np.array(codes, dtype=np.int32)[record]
        return columns


def _decode_texts(number_of: _Numbers, blocks: list[npt.NDArray[np.int32]]) -> tuple[Texts, int]:
    """The column, and the number of rows whose text could not be decoded."""
    undecodable = []
    distinct = []
    for raw in number_of:
        try:
            distinct.append(raw.decode())
        except UnicodeDecodeError:
            undecodable.append(len(distinct))
            distinct.append(UNDECODABLE)
    codes = np.concatenate(blocks) if blocks else np.empty(0, dtype=np.int32)
    return Texts(codes, distinct), int(np.isin(codes, undecodable).sum()) if undecodable else 0


def read_tagged(folder: Path, layout: TaggedFormat, health: HealthLog) -> Records:
    """Read all records of one kind.

    Args:
        folder: the ``FRAMEWORK`` directory; several files of the kind follow each other by name.
        layout: the kind.
        health: gets what was lost.
    """
    structs: list[Structs] = []
    numbers_of = {name: _Numbers() for name in layout.texts.values()}
    codes: dict[str, list[npt.NDArray[np.int32]]] = {name: [] for name in numbers_of}
    for path in find_files(folder, layout.prefix):
        damage, tails = _Damage(), _Tails()
        try:
            for block, begin, length in _read_payloads(path, layout.type, damage):
                _add_block(block, begin, length, layout, structs, tails, damage)
        except OSError as error:
            _report_unreadable(path, error, layout, health)
        for name, column in tails.texts(layout.texts, numbers_of, damage).items():
            codes[name].append(column)
        _report_damage(path, damage, layout, health)
    columns = {name: _decode_texts(number_of, codes[name]) for name, number_of in numbers_of.items()}
    if undecodable := sum(lost for _, lost in columns.values()):
        message = f'texts of {layout.prefix} are not UTF-8 and read as "{UNDECODABLE}"'
        health.add("undecodable_text", WARNING, undecodable, message, layout.unsafe)
    texts = {name: column for name, (column, _) in columns.items()}
    return Records(np.concatenate(structs) if structs else np.empty(0, dtype=layout.fixed), texts)


def read_flat(folder: Path, layout: FlatFormat, health: HealthLog) -> Structs:
    """Read all records of one kind; see ``read_tagged``."""
    structs: list[Structs] = []
    for path in find_files(folder, layout.prefix):
        size = layout.fixed.itemsize
        try:
            count, surplus = divmod(path.stat().st_size, size)
            # the number of records is bounded by the file, and what is read is what is kept
            records = np.empty(count, dtype=layout.fixed)
            with open_file(path) as file:
                complete = read_into(file, records.view(np.uint8).data) // size
            structs.append(records[:complete])
        except OSError as error:
            _report_unreadable(path, error, layout, health)
            continue
        _report_damage(path, _Damage(lost_bytes=surplus), layout, health)
    return np.concatenate(structs) if structs else np.empty(0, dtype=layout.fixed)


def first_time(folder: Path) -> int | None:
    """The first raw time that a file of ``folder`` holds, as recorded; None where no file holds any."""
    for layout in (OP_RANGE, PYTHON_CALLS, OP_MARK, MEMORY_USAGE, COLLECTIONS):
        header = _RECORD_HEADER if isinstance(layout, TaggedFormat) else 0
        for path in find_files(folder, layout.prefix):
            head = b""
            with contextlib.suppress(OSError), open_file(path) as file:
                head = file.read(header + layout.fixed.itemsize)
            if len(head) == header + layout.fixed.itemsize:
                name = next(name for name in ("start", "time") if name in (layout.fixed.names or ()))
                value = int(np.frombuffer(head, dtype=layout.fixed, offset=header)[name][0])
                return value if value < 1 << 63 else None
    return None


def _add_block(
    block: bytes,
    begin: Int64Array,
    length: Int64Array,
    layout: TaggedFormat,
    structs: list[Structs],
    tails: _Tails,
    damage: _Damage,
) -> None:
    """Add the records of one block: payloads ``block[begin:begin + length]``."""
    size = layout.fixed.itemsize
    is_whole = length >= size
    damage.records += int((~is_whole).sum())
    begin, end = begin[is_whole], (begin + length)[is_whole]
    if not len(begin):
        return
    structs.append(_structs_at(block, layout.fixed, begin))
    tails.add(block, begin + size, end)


def _structs_at(block: bytes, dtype: np.dtype[np.void], begin: Int64Array) -> Structs:
    """The struct at each position: a view that starts a struct at every byte, of which the wanted ones are copied."""
    view: Structs = np.ndarray((len(block) - dtype.itemsize + 1,), dtype=dtype, buffer=block, strides=(1,))
    return view[begin]


def _locate_text_fields(
    block: bytes, position: Int64Array, end: Int64Array, records: Int64Array, wanted: Mapping[int, str], damage: _Damage
) -> dict[str, tuple[Int64Array, Int64Array]]:
    """Where each wanted text of each tail ``block[position:end]`` lies: field name -> (begin, end), -1 where it has none.

    All tails advance by one field per round; ``records`` is how many records have each.
    """
    count = len(position)
    places_of = {name: (np.full(count, -1, dtype=np.int64), np.full(count, -1, dtype=np.int64)) for name in wanted.values()}
    rows = np.arange(count)
    position = position.copy()
    for _ in range(_FIELD_LIMIT):
        left = end[rows] - position
        damage.fields += int(records[rows[(left > 0) & (left < _FIELD.itemsize)]].sum())
        complete = left >= _FIELD.itemsize
        rows, position = rows[complete], position[complete]
        if not len(rows):
            return places_of
        header = _structs_at(block, _FIELD, position)
        begin = position + _FIELD.itemsize
        position = begin + header["length"]
        is_inside = position <= end[rows]
        damage.fields += int(records[rows[~is_inside]].sum())
        rows, begin, position, number = rows[is_inside], begin[is_inside], position[is_inside], header["id"][is_inside]
        for wanted_number, name in wanted.items():
            mine = number == wanted_number
            places_of[name][0][rows[mine]] = begin[mine]
            places_of[name][1][rows[mine]] = position[mine]
    damage.fields += int(records[rows].sum())
    return places_of


def _read_payloads(path: Path, wanted_type: int, damage: _Damage) -> Iterator[tuple[bytes, Int64Array, Int64Array]]:
    """The payloads of a tagged file, in blocks: (block, begin of each payload, its length)."""
    with open_file(path) as file:
        size = size_of(file)
        remainder = b""
        done = 0
        wanted_bytes = _BLOCK_BYTES
        while data := file.read(wanted_bytes):
            block = remainder + data if remainder else data
            starts = _record_offsets(block)
            position = starts.pop()
            if starts:
                begin, length, foreign = _of_type(block, starts, position, wanted_type)
                damage.records += foreign
                yield block, begin, length
            remainder = block[position:]
            done += position
            missing = _missing_bytes(remainder)
            if missing > size - done - len(remainder):
                break
            if len(remainder) + missing > _RECORD_LIMIT:
                damage.records += 1
                done += len(remainder) + missing
                remainder, missing = b"", 0
                file.seek(done)
            wanted_bytes = max(_BLOCK_BYTES, missing)
        damage.lost_bytes += max(size - done, 0)


def _record_offsets(block: bytes) -> list[int]:
    """Where each whole record of ``block`` begins; last, where the records end."""
    starts = [0]
    append = starts.append
    unpack = _LENGTH.unpack_from
    last = len(block) - _RECORD_HEADER
    position = 0
    while position <= last:
        position += _RECORD_HEADER + unpack(block, position + 2)[0]
        append(position)
    if position > len(block):
        starts.pop()
    return starts


def _of_type(block: bytes, starts: Sequence[int], end: int, wanted: int) -> tuple[Int64Array, Int64Array, int]:
    """Begin and length of the payloads of records of the wanted type, and how many others there are."""
    bounds = np.array([*starts, end], dtype=np.int64)
    begin, length = bounds[:-1] + _RECORD_HEADER, np.diff(bounds) - _RECORD_HEADER
    types: npt.NDArray[Any] = np.ndarray((len(block) - 1,), dtype="<u2", buffer=block, strides=(1,))[bounds[:-1]]
    right = types == wanted
    return begin[right], length[right], int((~right).sum())


def _missing_bytes(rest: bytes) -> int:
    """How many bytes the record that begins with ``rest`` still lacks."""
    if not rest:
        return 0
    if len(rest) < _RECORD_HEADER:
        return _RECORD_HEADER - len(rest)
    return int(_RECORD_HEADER + _LENGTH.unpack_from(rest, 2)[0] - len(rest))


def _report_unreadable(path: Path, error: OSError, layout: FlatFormat, health: HealthLog) -> None:
    health.add("unreadable_file", ERROR, 1, f"{path.name} cannot be read ({error.strerror or error})", layout.unsafe)


def _report_damage(path: Path, damage: _Damage, layout: FlatFormat, health: HealthLog) -> None:
    name, lost = path.name, damage.lost_bytes
    if lost:
        message = f"{name} breaks off inside a record; its last {lost} bytes were lost, what precedes them was read"
        health.add("truncated_file", ERROR, 1, message, layout.unsafe)
    if damage.records:
        message = f"records of {name} are of another type or an impossible length and were left out"
        health.add("damaged_records", ERROR, damage.records, message, layout.unsafe)
    if damage.fields:
        message = f"texts of {name} run past the end of their record and were left out"
        health.add("damaged_fields", WARNING, damage.fields, message, layout.unsafe)
