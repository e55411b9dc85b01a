"""C++ names of device kernels: what in them is a vendor's or a framework's, and what a user put into them."""

from __future__ import annotations

import re
from collections.abc import Callable

from steplens.report.redaction import public

_TOKEN = re.compile(r"::|\(anonymous namespace\)|[^\W\d]\w*|\d\w*|.", re.DOTALL)
_OPEN, _CLOSE = "<({[", ">)}]"
#: a word in an identifier: ``CUDAFunctor_add`` has three
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_a-zA-Z]+")
_SEGMENT = re.compile(r"[A-Za-z0-9]+|[^\W\d_a-zA-Z]+")
#: numbers with a letter or two, as names of kernels have them: ``128x64``, ``f32f32``, ``s16816``, ``2D``
_CODE = re.compile(r"^(\d+[A-Za-z]{0,2}|\d+[A-Z]\d+|(\d+x)+\d+|([A-Za-z]{1,2}\d+)+|r2c|c2r|[nd]2[sd])$")
_LONGEST_CODE = 40

Name = Callable[[str, str], str]


def is_kernel(text: str) -> bool:
    """Whether a name begins as a vendor's or a framework's kernel does."""
    if text.startswith(("Memcpy ", "Memset ")) or text.startswith("void (anonymous namespace)::"):
        return True
    text = text.removeprefix("void ")
    begin = _TOKEN.match(text)
    return begin is not None and _is_public_start(begin[0], text.startswith("::", begin.end()))


def redact_kernel_name(text: str, name: Name) -> str:
    """A name of this form with pseudonyms for what is not public in it.

    A qualified name (``at::native::FillFunctor``) is public if its first namespace is, and one without a namespace if it has the
    form of a vendor's kernel; of both, the words stay that vendors make names of. All other names go whole, whatever their words:
    a template has types of the user between its brackets, and whoever writes a kernel may give it any words.

    Args:
        text: the name.
        name: gives the pseudonym for a kind of name and a name.
    """
    tokens = _TOKEN.findall(text)
    pieces: list[str] = []
    #: whether the name that a "::" would continue is public; of each open bracket, the same
    chain, outside, unnamed = False, list[bool](), False
    for place, token in enumerate(tokens):
        continues = place > 0 and tokens[place - 1] == "::"
        if token == "(anonymous namespace)":
            # without a namespace around it, what it holds is judged as what stands in none
            unnamed, chain = not continues, continues and chain
        elif token in _OPEN:
            outside.append(chain)
            chain = False
        elif token in _CLOSE:
            chain = outside.pop() if outside else False
        elif token[0].isdigit():
            token = token if public.NUMBER.match(token) or (continues and chain and _is_known(token)) else name("word", token)
        elif token[0].isalnum() or token[0] == "_":
            if token == "const" and not continues:
                pass  # what follows the parameters of a function belongs to it
            elif token in public.CXX_WORDS or (token in public.COPY_WORDS and text.startswith(("Memcpy ", "Memset "))):
                chain = chain if continues else False
            else:
                if not continues or unnamed:
                    chain = _is_public_start(token, place + 1 < len(tokens) and tokens[place + 1] == "::")
                unnamed = False
                token = redact_segments(token, name) if chain else name("word", token)
        elif token not in ("::", " "):
            chain = False
        pieces.append(token)
    return "".join(pieces)


def redact_segments(text: str, name: Name) -> str:
    """An identifier with pseudonyms for its parts that no vendor makes names of."""
    is_coded = public.CODED_KERNEL.match(text) is not None

    def redact_segment(found: re.Match[str]) -> str:
        part = found[0]
        is_public = _is_known(part) or (is_coded and len(part) <= _LONGEST_CODE and public.KERNEL_CODE.match(part))
        return part if is_public else name("word", part)

    return _SEGMENT.sub(redact_segment, text)


def is_made_of_words(text: str) -> bool:
    """Whether vendors make names of all parts of an identifier."""
    return all(map(_is_known, _SEGMENT.findall(text)))


def _is_public_start(token: str, is_namespace: bool) -> bool:
    if is_namespace:
        return public.KERNEL_NAMESPACE.match(token) is not None
    return public.BARE_KERNEL.match(token) is not None or token in ("Memcpy", "Memset")


def _is_known(segment: str) -> bool:
    # no vendor's word has letters of another script
    if not segment.isascii():
        return False
    words = _WORD.findall(segment)
    if any(len(word) > 2 for word in words):
        return all(len(word) <= 2 or word.lower() in public.KERNEL_WORDS for word in words)
    if len(words) > 1 and segment.isalpha():
        # short words together may be a name; beside one that vendors use they are none
        return any(word.lower() in public.KERNEL_WORDS for word in words)
    return segment.isalpha() or (len(segment) <= _LONGEST_CODE and _CODE.match(segment) is not None)
