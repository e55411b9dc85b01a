"""Shapes and types of operator inputs in Kineto's own form: ``2,3;;[4;5]`` becomes ``[[2, 3], [], [[4], [5]]]``."""

from __future__ import annotations

import json
from typing import Any


def shapes_json(text: str) -> str | None:
    """``Input Dims`` of a text of shapes; None where the text is none."""
    try:
        return json.dumps([_parse_shape(item) for item in _split_list(text)])
    except (ValueError, RecursionError):
        return None


def types_json(text: str) -> str | None:
    """``Input type`` of a text of types."""
    try:
        return json.dumps([_parse_type(item) for item in _split_list(text)], ensure_ascii=False)
    except (ValueError, RecursionError):
        return json.dumps(text.split(";"), ensure_ascii=False)


def _parse_shape(item: str) -> list[Any]:
    if item.startswith("["):
        return [_parse_shape(inner) for inner in _split_list(_strip_brackets(item))]
    return [int(size) for size in item.split(",")] if item else []


def _parse_type(item: str) -> Any:
    return [_parse_type(inner) for inner in _split_list(_strip_brackets(item))] if item.startswith("[") else item


def _strip_brackets(item: str) -> str:
    if not item.endswith("]"):
        raise ValueError(f"unbalanced brackets in {item!r}")
    return item[1:-1]


def _split_list(text: str) -> list[str]:
    """The parts between the semicolons that are in no brackets."""
    parts, depth, begin = [], 0, 0
    for position, character in enumerate(text):
        if character == "[":
            depth += 1
        elif character == "]":
            depth -= 1
        elif character == ";" and depth == 0:
            parts.append(text[begin:position])
            begin = position + 1
    if depth:
        raise ValueError(f"unbalanced brackets in {text!r}")
    return [*parts, text[begin:]]
