"""The list of features that CANN offers to frameworks, as its library returns it."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

#: more than any CANN has listed; a larger count is not believed
_MOST = 256

#: The version of every feature that is asked for here.
_OUR_VERSION = "1"

#: A framework only heeds entries for every framework or for itself; what works there works here.
_COMPONENTS = frozenset({"all", "PTA", "mindspore"})


@dataclass(frozen=True)
class Feature:
    """One entry of the list.

    Attributes:
        name: such as ``ATTR``, ``MemoryAccess`` or ``AICORE_SHAPE``.
        compatibility: ``1``: also versions older than ``version`` work.
        version: the version that CANN has.
        component: for which framework it is meant.
        component_version: for which version of the framework.
        message: CANN's text for frameworks that do not know the feature.
    """

    name: str
    compatibility: str
    version: str
    component: str
    component_version: str
    message: str


class _Plain(ctypes.Structure):
    """An entry as CANN's documents have it."""

    _fields_ = (
        ("name", ctypes.c_char * 64),
        ("compatibility", ctypes.c_char * 16),
        ("version", ctypes.c_char * 16),
        ("component", ctypes.c_char * 16),
        ("component_version", ctypes.c_char * 16),
        ("message", ctypes.c_char * 128),
    )


class _Virtual(ctypes.Structure):
    """An entry as CANN compiles it: a C++ object in an object, each with a virtual destructor and so with a hidden pointer."""

    _fields_ = (
        ("_record_table", ctypes.c_void_p),
        ("name", ctypes.c_char * 64),
        ("_information_table", ctypes.c_void_p),
        *_Plain._fields_[1:],
    )


def decode_features(address: int, count: int) -> list[Feature]:
    """The entries at an address; none when they make no sense.

    The layout depends on how CANN was compiled, so it is recognised by the first entry: a pointer is not
    a name, and the middle of a name is followed by fields that do not hold what they should.

    Args:
        address: of the first entry; 0 when there is none.
        count: number of entries.
    """
    if not address or not 0 < count <= _MOST:
        return []
    for layout in (_Virtual, _Plain):
        # Both layouts hold what is looked at here within the bytes of the smaller one.
        if _is_plausible_entry(layout.from_address(address)):
            entries = (layout * count).from_address(address)
            texts = ([_decode_text(getattr(entry, field)) for field, *_ in _Plain._fields_] for entry in entries)
            return [Feature(*fields) for fields in texts if fields[0]]
    return []


def _is_plausible_entry(entry: _Virtual | _Plain) -> bool:
    name = _decode_text(entry.name)
    short = [_decode_text(getattr(entry, field)) for field in ("compatibility", "version", "component", "component_version")]
    # A field that is filled to its last byte has no end: it is two fields of the other layout.
    return bool(name) and len(name) < 64 and all(text and len(text) < 16 for text in short) and short[1].isdecimal()


def _decode_text(data: bytes) -> str:
    """The text of a field; empty when it is not printable ASCII."""
    text = data.decode("ascii", errors="replace")
    return text if text.isascii() and text.isprintable() else ""


def is_feature_supported(listed: list[Feature] | None, name: str) -> bool:
    """Whether a feature can be used: it is listed for us, in our version or in a newer one that says it is compatible."""
    return any(
        feature.version == _OUR_VERSION or (feature.compatibility == "1" and int(feature.version) > int(_OUR_VERSION))
        for feature in listed or ()
        if feature.name == name and feature.component in _COMPONENTS and feature.version.isdecimal()
    )
