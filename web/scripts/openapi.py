"""Prints the OpenAPI document of the server for the types of the pages: no texts for people, and of answers only good ones."""

from __future__ import annotations

import json
import sys
from typing import Any

from steplens.server.app import create_api
from steplens.server.runs import RunLibrary

_TEXTS = ("description", "summary", "title")


def without_texts(value: Any) -> Any:
    """A part of the document without its texts; what is called like one, as a property, stays."""
    if isinstance(value, list):
        return [without_texts(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: without_texts(item) for key, item in value.items() if key not in _TEXTS or not isinstance(item, str)}


if __name__ == "__main__":
    document = without_texts(create_api(RunLibrary(())).openapi())
    for operations in document["paths"].values():
        for operation in operations.values():
            operation["responses"] = {"200": operation["responses"]["200"]}
    json.dump(document, sys.stdout)
