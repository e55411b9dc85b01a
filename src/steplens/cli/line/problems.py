"""What is wrong with a command line, in one sentence that names no library."""

from __future__ import annotations

import re
from typing import Any

#: how the libraries below typer say it -> how we do; typer 0.2x checks values with pydantic, older ones with click
_WORDS = (
    (r"Value error, ", ""),
    (r"Assertion failed, ", ""),
    (r"Input should be a valid integer.*", "it must be a whole number"),
    (r"'[^']*' is not a valid integer.*", "it must be a whole number"),
    (r"'[^']*' is not a valid float.*", "it must be a number"),
    (r"Input should be a valid number.*", "it must be a number"),
    (r"Input should be a finite number.*", "it must be a finite number"),
    (r"Input should be greater than or equal to (\S+)", r"it must be at least \1"),
    (r"Input should be less than or equal to (\S+)", r"it must be at most \1"),
    (r"Input should be greater than (\S+)", r"it must be more than \1"),
    (r"Input should be less than (\S+)", r"it must be less than \1"),
    (r"Input should be ", "it must be "),
    (r"No such option '(\S+)'", r"No such option: \1"),
)


def problem_sentence(error: Any) -> str:
    """What an error of click says, with the help that goes on from it where none is in it.

    Args:
        error: of the kind that click raises for a wrong command line.
    """
    message: str = " ".join(error.format_message().split())
    for pattern, words in _WORDS:
        message = re.sub(pattern, words, message)
    return message
