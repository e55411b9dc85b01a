"""Events of Chrome's format as typed structs: the shapes that the dialects of several profilers share.

A dialect says what its ids are, and adds its times and arguments behind; members stand in the order of the files.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

import msgspec

from steplens.readers.common.json_decoder import Decoder

#: what processes and threads are told apart by, and the two ends of arrows
Identifier = TypeVar("Identifier")
ArrowIdentifier = TypeVar("ArrowIdentifier")


class NamedEvent(msgspec.Struct, Generic[Identifier], gc=False, tag_field="ph"):
    """An event with a name, on a thread."""

    name: str = ""
    pid: Identifier | None = None
    tid: Identifier | None = None


class CallEvent(msgspec.Struct, Generic[Identifier], gc=False, tag_field="ph"):
    """An event with a name and a category, on a thread."""

    name: str = ""
    cat: str = ""
    pid: Identifier | None = None
    tid: Identifier | None = None


class ArrowEvent(msgspec.Struct, Generic[Identifier, ArrowIdentifier], gc=False, tag_field="ph"):
    """Where an arrow of a category starts or ends."""

    cat: str = ""
    id: ArrowIdentifier | None = None
    pid: Identifier | None = None
    tid: Identifier | None = None


def event_decoders(
    kinds: Iterable[Any], other_phases: Iterable[str], float_hook: Callable[[str], Any] | None = None
) -> tuple[Decoder[list[Any]], Decoder[Any]]:
    """Decoders of an array of events and of one event.

    Args:
        kinds: classes of the events that are used.
        other_phases: phases of the format that are not used, and do not make an event unreadable.
        float_hook: see ``Decoder``.
    """
    others = (
        msgspec.defstruct(f"Other{number}", [], gc=False, tag_field="ph", tag=phase) for number, phase in enumerate(other_phases)
    )
    event: Any = functools.reduce(operator.or_, (*kinds, *others))
    return Decoder(list[event], float_hook=float_hook), Decoder(event, float_hook=float_hook)
