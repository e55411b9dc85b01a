"""Texts of the program that are exactly texts: a class of its own may raise in every method, and lie in all of them."""

from __future__ import annotations


def plain_text(value: object) -> str | None:
    """A text without what a subclass of ``str`` adds to it; None for what is no text. Runs no code of the program."""
    if type(value) is str:
        return value
    # not isinstance(), which asks the object
    return str.__str__(value) if issubclass(type(value), str) else None
