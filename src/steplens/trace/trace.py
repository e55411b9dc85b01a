"""``Trace``: the tables of one rank. Tables are loaded from the store on first use."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Container, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeGuard, TypeVar, cast

import polars as pl

from steplens.common import json_text
from steplens.trace.kept_tables import KeptTables
from steplens.trace.schema import CORE_CPU, RESULTS_ONLY, SCHEMA

Made = TypeVar("Made")
Table: TypeAlias = "pl.DataFrame | pl.LazyFrame"

#: more than any job has; ranks and sizes of groups below it fit into every column that holds them
_MOST_RANKS = 1 << 31
#: a frame that stays in memory as long as its trace, of which there may be hundreds
_SMALL_BYTES = 4 << 20


def answer_name(make: Callable[[Any], Any]) -> str | None:
    """What an answer of ``Trace.once`` is kept under: the place of its function; None of one that nobody else can find."""
    module, name = getattr(make, "__module__", ""), getattr(make, "__qualname__", "")
    return f"{module}:{name}" if module.startswith("steplens.") and name and "<" not in name else None


class AnswersByName(Protocol):
    """Answers of ``Trace.once``, by ``answer_name``."""

    def __contains__(self, name: object, /) -> bool:
        """Whether there is one."""

    def find_answer(self, name: str) -> tuple[Any] | None:
        """An answer, in a tuple; None where there is none."""


@functools.cache
def _without_rows(name: str) -> pl.LazyFrame:
    """A table that a source does not have."""
    return pl.LazyFrame(schema=SCHEMA[name])


class Trace:
    """The tables of one rank, by attribute: ``trace.ops``, ``trace.kernels`` ...; None where absent.

    Args:
        source: the run directory or trace file the tables come from.
        tables: table name -> frame, eager or lazy, or what reads it when somebody asks for it; names and columns as in
            ``trace.schema``.
        kept: where these very tables are kept; None where they are not, or were changed since.
    """

    def __init__(self, source: Path, tables: Mapping[str, Table | Callable[[], Table]], kept: KeptTables | None = None) -> None:
        unknown = set(tables) - set(SCHEMA)
        if unknown:
            raise ValueError(f"not tables of a trace: {sorted(unknown)}")
        self.source = source
        self.kept = kept
        #: the traces of its run, itself among them: which steps figures are of is chosen for all of them together
        self.companions: tuple[Trace, ...] = (self,)
        self._tables: dict[str, Table | Callable[[], Table]] = dict(tables)
        self._made: dict[Callable[[Trace], Any], Any] = {}
        self._source_tables: dict[str, pl.DataFrame | None] = {}
        self._instead: dict[Callable[[Trace], Any], Callable[[Trace], Any]] = {}
        self.accepted: AnswersByName | None = None
        self._as_loaded = self._tables.copy()

    def __contains__(self, name: str) -> bool:
        return name in self._tables

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def table(self, name: str) -> pl.DataFrame | None:
        """The whole table as a frame (kept in memory from then on), or None where the source has none."""
        if name not in SCHEMA:
            raise AttributeError(f"a trace has no table {name!r}; its tables are {', '.join(SCHEMA)}")
        frame = self._table_as_read(name)
        if isinstance(frame, pl.LazyFrame):
            frame = frame.collect()
            self._tables[name] = frame
        return frame

    def __getattr__(self, name: str) -> pl.DataFrame | None:
        if name.startswith("_"):
            raise AttributeError(name)
        return self.table(name)

    def in_memory(self, name: str) -> pl.DataFrame | None:
        """The table if all of it is in memory already; None where it is absent, or would have to be read."""
        frame = self._table_as_read(name)
        return frame if isinstance(frame, pl.DataFrame) else None

    def lazy(self, name: str) -> pl.LazyFrame | None:
        """The table as a lazy frame, so that a query reads only the columns it needs; None where absent."""
        frame = self._table_as_read(name)
        return frame.lazy() if frame is not None else None

    def _table_as_read(self, name: str) -> Table | None:
        table = self._tables.get(name)
        if callable(table):
            table = self._tables[name] = table()
        return table

    def required(self, name: str) -> pl.LazyFrame:
        """Like ``lazy``, but an absent table is an empty one with the right columns."""
        frame = self.lazy(name)
        return _without_rows(name) if frame is None else frame

    def once(self, make: Callable[[Trace], Made]) -> Made:
        """``make(self)``, worked out once: small answers that several analyses rest on. Nobody may change what this returns."""
        if make in self._made:
            return cast(Made, self._made[make])
        accepted = self._find_accepted(make)
        if accepted is not None:
            return cast(Made, accepted[0])
        self._made[make] = answer = self._instead.get(make, make)(self)
        return cast(Made, answer)

    def once_if_small(self, make: Callable[[Trace], pl.DataFrame]) -> pl.DataFrame:
        """``make(self)``, as ``once`` if it takes little memory; a larger frame is worked out again whenever it is asked for."""
        answer = (self._made[make],) if make in self._made else self._find_accepted(make)
        if answer is not None:
            return cast(pl.DataFrame, answer[0])
        frame = make(self)
        if frame.estimated_size() <= _SMALL_BYTES:
            self._made[make] = frame
        return frame

    def has_answer(self, make: Callable[[Trace], Any]) -> bool:
        """Whether ``once(make)`` has its answer already."""
        return make in self._made or self._find_accepted(make) is not None

    def replace(self, make: Callable[[Trace], Made], answer: Made) -> None:
        """Let ``once(make)`` be an answer that was worked out elsewhere."""
        self._made[make] = answer

    def instead(self, make: Callable[[Trace], Made], other: Callable[[Trace], Made]) -> None:
        """Let ``once(make)`` be ``other(self)``: for a trace made of another one, whose files are not at its ``source``."""
        self._instead[make] = other

    def accept_answers(self, answers: AnswersByName) -> None:
        """Let answers that were kept, or worked out elsewhere, be those of ``once``: also of what was worked out here."""
        self.accepted = answers
        self.forget_answers(answers)

    def forget_answers(self, names: Container[str | None] | None = None, *, keep: Collection[str] = ()) -> None:
        """Let go of what was worked out here: it is worked out again when it is asked for.

        Args:
            names: under which names (``answer_name``); None is all.
            keep: functions of which it stays all the same.
        """
        self._made = {
            make: answer
            for make, answer in self._made.items()
            if (names is not None and answer_name(make) not in names) or getattr(make, "__name__", "") in keep
        }

    def known_answers(self) -> dict[str, Any]:
        """What was worked out once so far and has a name, by it; nothing of a trace that was made of another one."""
        if self._instead:
            return {}
        # other threads may ask meanwhile
        named = {answer_name(make): answer for make, answer in list(self._made.items())}
        return {name: answer for name, answer in named.items() if name is not None}

    def replace_tables(self, kept: Trace) -> None:
        """Let the tables be those of ``kept``, which holds the same ones and reads them where they are kept."""
        self.kept, self._tables, self._as_loaded = kept.kept, kept._tables, kept._as_loaded

    def release_tables(self) -> None:
        """Let go of tables that were read since the trace was loaded; they are read again when somebody asks for them."""
        self._tables = self._as_loaded.copy()
        self._source_tables.clear()

    def _find_accepted(self, make: Callable[[Trace], Any]) -> tuple[Any] | None:
        """An answer that was kept, in a tuple."""
        if self.accepted is None or make in self._instead:
            return None
        name = answer_name(make)
        return None if name is None else self.accepted.find_answer(name)

    def meta_values(self) -> dict[str, Any]:
        """The ``meta`` table as a dictionary, values decoded from JSON."""
        frame = self.table("meta")
        return {} if frame is None else {key: json_text.loads_stored(value) for key, value in frame[["key", "value"]].rows()}

    def meta_value(self, key: str) -> Any:
        """One of these values; None where it is absent. Those that hold no others are known of thousands of ranks at once."""
        plain_values, nested_keys = self.once(_plain_meta_values)
        if key not in nested_keys:
            return plain_values.get(key)
        rows = self.required("meta").filter(pl.col("key").cast(pl.String) == key).select("value").collect()
        return json_text.loads_stored(rows["value"][-1])

    def source_table(self, name: str) -> pl.DataFrame | None:
        """A table that the source keeps and steplens hands on unchanged, columns as the source names them; None if absent."""
        # several analyses of a page rest on one of them
        if name not in self._source_tables and "source_tables" not in self:
            self._source_tables[name] = None
        if name not in self._source_tables:
            rows = self.required("source_tables").filter(pl.col("table") == name).sort("row").select("record").collect()
            # all at once: a call for each takes longer than what it decodes
            records = json_text.loads_stored(f"[{','.join(rows['record'])}]")
            self._source_tables[name] = pl.DataFrame(records, infer_schema_length=None) if records else None
        return self._source_tables[name]

    @property
    def recorded_rank(self) -> int:
        """Rank of the process in its job as the source says it; -1 when it does not."""
        value = self.meta_value("rank")
        return value if is_count(value) else -1

    @property
    def rank(self) -> int:
        """Rank of the process in its job; a process without a process group is rank 0 of 1; -1 where nobody can tell."""
        return self.once(_process_rank)

    @property
    def is_results_only(self) -> bool:
        """Whether the source holds sums and times of another analysis alone, and none of the work that they are of."""
        return self.meta_value(RESULTS_ONLY) is True

    @property
    def has_accelerator(self) -> bool:
        """Whether any device task ran on something other than the CPU."""
        return any(core is not None and core != CORE_CPU for core, _ in self.used_devices)

    @property
    def used_devices(self) -> tuple[tuple[str | None, int | None], ...]:
        """What ran device tasks: every pair of the kind of core and the number of the device, in no order."""
        return self.once(_used_devices)


def is_count(value: object) -> TypeGuard[int]:
    """Whether something from a file can be a rank or a number of ranks: one that is larger is damage, and no column holds it."""
    return type(value) is int and 0 <= value < _MOST_RANKS


def is_distributed(meta: Mapping[str, Any], communicates: bool) -> bool:
    """Whether a trace shows that its process is one of several.

    Args:
        meta: the values of its ``meta`` table.
        communicates: whether it has communication operations.
    """
    size = meta.get("world_size")
    return bool(meta.get("distributedInfo")) or (isinstance(size, int) and size > 1) or communicates


def _process_rank(trace: Trace) -> int:
    recorded = trace.recorded_rank
    if recorded >= 0:
        return recorded
    return -1 if is_distributed(trace.meta_values(), "communication" in trace) else 0


def _plain_meta_values(trace: Trace) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The values of ``meta`` that hold no others, and the keys of those that do: a rank describes groups of thousands."""
    text_of = dict(trace.required("meta").select("key", "value").collect().rows())
    nested_keys = tuple(key for key, text in text_of.items() if text.lstrip().startswith(("{", "[")))
    return {key: json_text.loads_stored(text) for key, text in text_of.items() if key not in nested_keys}, nested_keys


def _used_devices(trace: Trace) -> tuple[tuple[str | None, int | None], ...]:
    kernels = trace.lazy("kernels")
    if kernels is None:
        return ()
    read = trace.in_memory("kernels")
    if read is not None and read.height and read["core"].n_unique() == 1 and read["device"].n_unique() == 1:
        # mostly there is one, and the first row says it
        return ((read["core"][0], read["device"][0]),)
    used = kernels.select("core", "device").unique().collect()
    return tuple(zip(used["core"].cast(pl.String).to_list(), used["device"].to_list(), strict=True))
