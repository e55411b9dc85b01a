"""Events of Chrome's format from JSON: the shapes that the dialects of several profilers share, and how a piece is decoded.

One event that cannot be read costs that event and none of its neighbours. A dialect says what its ids are, and adds its times
and arguments behind; members stand in the order of the files.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

import msgspec

from steplens.common.json_text import TooDeepError
from steplens.readers.common.json_decoder import Decoder
from steplens.readers.common.json_events import Piece, behind_damage, events_of

Event = TypeVar("Event")
#: what processes and threads are told apart by, and the two ends of arrows
Identifier = TypeVar("Identifier")
ArrowIdentifier = TypeVar("ArrowIdentifier")

#: stands for an event that is not valid JSON, or no event
DAMAGED: Any = object()

_NO_CONTROLS = dict.fromkeys(range(32), " ")


def clean_json_text(text: bytes) -> str:
    """A JSON text without invalid UTF-8 and raw control characters, which occur in symbol names of other runtimes."""
    return text.decode("utf-8", "replace").translate(_NO_CONTROLS)


def one_by_one(piece: Piece, one: Callable[[bytes], Event]) -> Iterator[Event]:
    """The events of a piece that cannot be decoded as a whole.

    Args:
        piece: JSON array text.
        one: makes an event of its text; raises ValueError where it cannot.

    Yields:
        what ``one`` makes; ``DAMAGED`` for what it cannot make an event of.
    """
    bodies = [bytes(piece)[1:-1]]
    while bodies:
        for text in events_of(bodies.pop()):
            if text is None:
                yield DAMAGED
                continue
            try:
                event = one(text)
            except TooDeepError:
                # it ends where its brackets do
                yield DAMAGED
            except ValueError:
                yield DAMAGED
                if (behind := behind_damage(text)) is not None:
                    bodies.append(behind)
            else:
                yield event


class EventDecoder(Generic[Event]):
    """Decodes events of one type, a piece at a time.

    Args:
        kind: the type of an event.
        float_hook: see ``Decoder``.

    Attributes:
        damaged: how many could not be decoded so far.
    """

    def __init__(self, kind: Any, *, float_hook: Callable[[str], Any] | None = None) -> None:
        self.damaged = 0
        self._many: Decoder[list[Event]] = Decoder(list[kind], float_hook=float_hook)
        self._one: Decoder[Event] = Decoder(kind, float_hook=float_hook)

    def events(self, piece: Piece) -> list[Event]:
        """The events of a piece; those that cannot be decoded are left out and counted."""
        try:
            return self._many.decode(piece)
        except ValueError:
            decoded = list(one_by_one(piece, self._decode_tolerantly))
        undamaged = [event for event in decoded if event is not DAMAGED]
        self.damaged += len(decoded) - len(undamaged)
        return undamaged

    def _decode_tolerantly(self, text: bytes) -> Event:
        try:
            return self._one.decode(text)
        except TooDeepError:
            raise
        except ValueError:
            return self._one.decode(clean_json_text(text))


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
    unused = (
        msgspec.defstruct(f"Other{number}", [], gc=False, tag_field="ph", tag=phase) for number, phase in enumerate(other_phases)
    )
    event: Any = functools.reduce(operator.or_, (*kinds, *unused))
    return Decoder(list[event], float_hook=float_hook), Decoder(event, float_hook=float_hook)
