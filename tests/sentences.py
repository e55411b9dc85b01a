"""The sentences that collecting, the certificate and the command line can say, found in their source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import steplens

SOURCE = Path(steplens.__file__).parent
#: where sentences about the reasons of things are made: folders and modules
PLACES = (
    "collect",
    "cli",
    "comparison/reports",
    "trace/building/checks",
    "trace/building/build.py",
    "trace/building/device_work.py",
    "trace/cache/secret.py",
    "trace/building/steps.py",
    "readers/common/run_info.py",
    "readers/common/side_files.py",
    "readers/steplens_run/run_directory.py",
    "common/rundir.py",
    "common/links.py",
    "mindspore/r2_2.py",
)
#: stands for what is put into a sentence
VALUE = "…"

#: fewer words are a name, a title or a piece that says nothing alone
_LEAST_WORDS = 3
_WORD = re.compile(r"[(\"'`;]*[A-Za-z][\w'.-]*[….,:;)\"'`]*")
#: descriptions of options say what they do, and are no messages
_DESCRIBING = ("Option", "Argument", "optional_parameter")


def sentences() -> dict[str, list[str]]:
    """Sentence -> the modules that hold it."""
    found: dict[str, list[str]] = {}
    for place in PLACES:
        path = SOURCE / place
        for module in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            for sentence in of_source(module.read_text("utf-8")):
                modules = found.setdefault(sentence, [])
                name = module.relative_to(SOURCE).as_posix()
                if name not in modules:
                    modules.append(name)
    return found


def of_source(text: str) -> Iterator[str]:
    """The sentences of a module's source."""
    tree = ast.parse(text)
    described = {id(node) for found in ast.walk(tree) for node in _not_said(found)}
    for node in ast.walk(tree):
        if id(node) in described:
            continue
        sentence = normalised(_text(node))
        if sum(bool(_WORD.fullmatch(word)) for word in sentence.split()) >= _LEAST_WORDS:
            yield sentence


def normalised(text: str) -> str:
    """A sentence with one blank between its words, and one sign for every value in it."""
    return " ".join(re.sub(r"%[sd]|%\.\d[fg]", VALUE, text).split())


def _not_said(node: ast.AST) -> Iterator[ast.AST]:
    """Nodes below this one that hold no sentence of their own: docstrings, parts of texts, descriptions of options."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield from (value for value in node.values if isinstance(value, ast.Constant))
    elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in _DESCRIBING:
        yield from ast.walk(node)


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(value.value) if isinstance(value, ast.Constant) else VALUE for value in node.values)
    return ""
