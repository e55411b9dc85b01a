"""Rules of the user's own: a folder of plain Python files."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path

from steplens.advice.rule import Rule
from steplens.advice.texts import ENGLISH, Text
from steplens.common.errors import InputError


def load_rules(folder: Path) -> tuple[list[Rule], dict[str, Mapping[str, Text]]]:
    """The rules of every ``*.py`` in ``folder``, by name of the file, and their texts.

    A file has ``RULE = Rule(...)`` and ``TEXT = Text(...)``, or ``TEXTS = {"en": Text(...), "zh": Text(...)}``. It is run, as
    any Python that its author wrote.

    Raises:
        InputError: the folder has no rules, or a file is no rule.
    """
    if not folder.is_dir():
        raise InputError(folder, "is no folder of rules", "Name a folder with a Python file per rule")
    rules: list[Rule] = []
    texts: dict[str, Mapping[str, Text]] = {}
    for file in sorted(folder.glob("*.py")):
        if file.name.startswith("_"):
            continue
        spec = importlib.util.spec_from_file_location(f"steplens_rules.{file.stem}", file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        # dataclasses look their module up by name
        sys.modules[spec.name] = module
        try:
            spec.loader.exec_module(module)
        except Exception as error:  # whatever the file does, it is the user's, and one line says where to look
            raise InputError(file, f"cannot be loaded as a rule ({type(error).__name__}: {error})") from error
        rule = getattr(module, "RULE", None)
        words = getattr(module, "TEXTS", None) or {ENGLISH: getattr(module, "TEXT", None)}
        if not isinstance(rule, Rule) or not isinstance(words.get(ENGLISH), Text):
            raise InputError(file, "has no RULE and TEXT", "Define RULE = Rule(...) and TEXT = Text(...) of steplens.advice")
        rules.append(rule)
        texts[rule.name] = words
    if not rules:
        raise InputError(folder, "holds no rules", "Put a Python file with RULE and TEXT into it")
    return rules, texts
