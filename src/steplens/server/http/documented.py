"""What the OpenAPI document says of answers beyond their Python types; the types of the pages are made from it.

Answers are not changed by it: the rows of frames are sent as they are.
"""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field, TypeAdapter

#: of a ``TypedDict``: a row has more columns, numbers or flags, whose names differ from run to run
MORE_COLUMNS = ConfigDict(
    json_schema_extra={"additionalProperties": {"anyOf": [{"type": name} for name in ("number", "boolean", "null")]}}
)


def as_type(described: Any) -> Any:
    """Of a field: it is documented as another type, such as ``Literal``, or a list of rows that a ``TypedDict`` describes."""
    schema = TypeAdapter(described).json_schema()
    rows = schema.pop("$defs", {})
    if rows:
        schema["items"] = next(iter(rows.values()))

    def replace_schema(field: dict[str, Any]) -> None:
        field.clear()
        field.update(schema)

    return Field(json_schema_extra=replace_schema)
