"""Which rules there are: all that the modules of ``advice.rules`` define, and those of installed packages."""

from __future__ import annotations

import functools
import importlib
import logging
import pkgutil
from collections.abc import Iterator, Mapping

from steplens.advice import rules
from steplens.advice.rule import Rule
from steplens.advice.texts import CATALOGUES, ENGLISH, TEXTS, Text
from steplens.common.extensions import RULES, load_extensions

_LOG = logging.getLogger("steplens.advice")


@functools.cache
def built_in_rules() -> tuple[Rule, ...]:
    """Our own rules, in the order of the catalogue."""
    order = {name: place for place, name in enumerate(CATALOGUES[ENGLISH].rules)}
    return tuple(sorted(_defined_rules(), key=lambda rule: order[rule.name]))


def _defined_rules() -> Iterator[Rule]:
    names: set[str] = set()
    for entry in pkgutil.walk_packages(rules.__path__, f"{rules.__name__}."):
        for value in vars(importlib.import_module(entry.name)).values():
            # a module may import a rule of another one
            if isinstance(value, Rule) and value.name not in names:
                names.add(value.name)
                yield value


@functools.cache
def all_rules() -> tuple[Rule, ...]:
    """Our own rules, then those of installed packages by the names of their entry points.

    One that has the name of ours replaces it. One that nothing has words for is left out with a warning.
    """
    installed = []
    for rule in load_extensions(RULES, Rule):
        if ENGLISH in rule.texts or rule.name in TEXTS:
            installed.append(rule)
        else:
            _LOG.warning(
                'rule %r of an installed package is left out: it has no words; give it texts={"en": Text(...)}', rule.name
            )
    return tuple({rule.name: rule for rule in (*built_in_rules(), *installed)}.values())


def all_texts() -> dict[str, Mapping[str, Text]]:
    """Rule -> language -> what is said of it, of all rules."""
    return {**TEXTS, **{rule.name: rule.texts for rule in all_rules() if rule.texts}}
