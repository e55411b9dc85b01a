"""What the user adds to a run: ``add_metadata`` and ``add_metadata_json``."""

from __future__ import annotations

from typing import Any

from steplens.collect.common import log
from steplens.common import json_text

_TEXT_LIMIT = 4096
#: of everything that was added, characters
TOTAL_LIMIT_2_4 = 50 * 1024
TOTAL_LIMIT_2_10 = 100 * 1024 * 1024


class Metadata:
    """Keys and values; they stay over all windows of their profiler.

    Args:
        limit: how many characters all of them may have together.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self.values: dict[str, Any] = {}

    def add(self, key: Any, value: Any) -> None:
        """Add a text; a wrong one is left out with a warning."""
        if self._is_acceptable(key, value):
            self._put_entry(key, value, value)

    def add_json(self, key: Any, text: Any) -> None:
        """Add a JSON text, which is written as what it means; a wrong one is left out with a warning."""
        if not self._is_acceptable(key, text):
            return
        try:
            value = json_text.loads(text)
        except ValueError as error:
            log.warning(f"add_metadata_json: the value of {key!r} is no JSON ({error}) and is left out.")
            return
        self._put_entry(key, text, value)

    def _put_entry(self, key: str, text: str, value: Any) -> None:
        if key in self.values:
            log.warning(f"add_metadata: {key!r} was there already and has the new value now.")
        self.values[key] = value
        self._size += len(key) + len(text)

    def _is_acceptable(self, key: Any, value: Any) -> bool:
        if not isinstance(key, str) or not isinstance(value, str):
            log.warning(f"add_metadata: key and value must be texts, not {type(key).__name__} and {type(value).__name__}.")
            return False
        if max(len(key), len(value)) > _TEXT_LIMIT:
            log.warning(f"add_metadata: {key[:40]!r} is left out: a key or value has more than {_TEXT_LIMIT} characters.")
            return False
        if self._size + len(key) + len(value) > self._limit:
            log.warning(f"add_metadata: {key!r} is left out: all of them together have more than {self._limit} characters.")
            return False
        return True
