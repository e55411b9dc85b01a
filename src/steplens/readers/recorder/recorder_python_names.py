"""What Python names in a recorder's file, as PyTorch writes it: functions of Python and of C, and calls of modules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from steplens.readers.common import json_decoder
from steplens.trace.schema import MODULE_PREFIX

#: what a call is called whose name cannot be told
_UNNAMED = "(unnamed)"


class PythonName(msgspec.Struct, gc=False):
    """One text: of a function of Python, of one of C, or of a call of a module."""

    file: str | None = None
    line: int = 0
    function: str = ""
    builtin: str | None = None
    module: str | None = None
    class_number: int = msgspec.field(default=-1, name="class")
    object_number: int = msgspec.field(default=-1, name="object")


_DECODER: json_decoder.Decoder[PythonName] = json_decoder.Decoder(PythonName)


def read_names(texts: Sequence[bytes]) -> tuple[list[PythonName], int]:
    """What the texts of a file say, by number, with one that says nothing behind them; and how many cannot be read."""
    names, damaged = [], 0
    for text in texts:
        try:
            names.append(_DECODER.decode(text))
        except ValueError:
            names.append(PythonName())
            damaged += 1
    return [*names, PythonName()], damaged


def name_texts(names: Sequence[PythonName], in_order: Iterable[int]) -> tuple[list[str], list[int]]:
    """The name of each number, and of modules which of its class it is: numbered in the order in which they were called first.

    Args:
        names: by number.
        in_order: the numbers that are used, in the order of their first calls.
    """
    module_ids = [-1] * len(names)
    objects: dict[tuple[int, int], int] = {}
    counts: dict[int, int] = {}
    for row in in_order:
        name = names[row]
        if name.module is not None:
            key = (name.class_number, name.object_number)
            if key not in objects:
                objects[key] = counts.get(name.class_number, 0)
                counts[name.class_number] = objects[key] + 1
            module_ids[row] = objects[key]
    return [_name_text(name, module_id) for name, module_id in zip(names, module_ids, strict=True)], module_ids


def _name_text(name: PythonName, module_id: int) -> str:
    """As PyTorch writes it."""
    if name.module is not None:
        return f"{MODULE_PREFIX}{name.module}_{max(module_id, 0)}"
    if name.builtin is not None:
        return name.builtin
    return _UNNAMED if name.file is None else f"{name.file}({name.line}): {name.function}"
