"""Names from traces as text in GitHub's Markdown: they format nothing, link nowhere, and mention nobody.

Whoever makes a trace chooses the names in it, and a report of it is shown in other people's pull requests. Two things read such
text: the Markdown parser, for which a character reference (``&#42;``) is never formatting, and GitHub's filters after it, which
see the decoded text, look for ``@name``, ``#1`` and addresses outside of code, and are stopped by a space of no width.
"""

from __future__ import annotations

import re
import string

from steplens.common.display import clean

#: characters of a name or a sentence at most
_LONGEST_NAME, _LONGEST_SENTENCE = 100, 400
#: characters that format something somewhere in a line
_FORMATTING = frozenset("\\`*_[]<>#|~&!$")
#: at the beginning of a line these make a list, a heading or a quote
_BLOCK_START = re.compile(r"\d+[.)](?= |$)|[-+=:]")
_NO_WIDTH = "&#8203;"
#: in front of the place where no link begins any more: names of users, numbers of issues, addresses
_LINKS = re.compile(r"(?<=@)|(?<=#)|(?<=:)(?=//)|(?<=www)(?=\.)|(?<=gh-)", re.IGNORECASE)
#: text that is itself between backticks, in a table too
_PLAIN_CODE = re.compile(r"[^`|\\]+")


def code_span(text: str, longest: int = _LONGEST_NAME) -> str:
    """A name in the type of code; a longer one has its end, which tells names of modules apart.

    Args:
        text: any text.
        longest: characters that are shown.
    """
    name = _one_line(text)
    name = name if len(name) <= longest else f"...{name[-(longest - 3) :].lstrip()}"
    if not name:
        return "(no name)"
    if _PLAIN_CODE.fullmatch(name):
        return f"`{name}`"
    return f"<code>{_without_formatting(name, frozenset(string.punctuation))}</code>"


def plain_text(text: str, longest: int = _LONGEST_SENTENCE) -> str:
    """A sentence that may hold names, on one line.

    Args:
        text: any text.
        longest: characters that are shown.
    """
    sentence = _one_line(text)
    sentence = sentence if len(sentence) <= longest else f"{sentence[: longest - 3].rstrip()}..."
    written = _without_formatting(sentence, _FORMATTING)
    begin = _BLOCK_START.match(written)
    return written if begin is None else f"{written[: begin.end() - 1]}{_as_reference(begin[0][-1])}{written[begin.end() :]}"


def _one_line(text: str) -> str:
    # all kinds of white space, those that end a line among them
    return " ".join(clean(text).split())


def _without_formatting(text: str, formatting: frozenset[str]) -> str:
    pieces = _LINKS.split(text)
    written = ("".join(_as_reference(letter) if letter in formatting else letter for letter in piece) for piece in pieces)
    return _NO_WIDTH.join(written)


def _as_reference(character: str) -> str:
    # GitHub takes a dollar sign for the beginning of a formula, however it is written, but not in an element of its own
    return "<span>$</span>" if character == "$" else f"&#{ord(character)};"
