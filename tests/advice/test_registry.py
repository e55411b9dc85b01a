"""Which rules there are: ours by their modules, those of installed packages by entry points."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from steplens.advice import advise
from steplens.advice.registry import all_rules, all_texts, built_in_rules
from steplens.advice.rule import Rule
from steplens.advice.rules.cluster import slow_link
from steplens.advice.texts import TEXTS
from steplens.advice.words import Words
from steplens.common.extensions import load_extensions
from steplens.run import Run, Source

from ..writers.builder import build

PACKAGE = """
from steplens.advice import Evidence, Finding
from steplens.advice.rule import Rule, rule
from steplens.advice.texts import Text


@rule(texts={"en": Text("A rule of a package", "Because of {what}.", "Do otherwise.")})
def of_a_package(facts, *, count=3):
    yield Finding(of_a_package.name, 0.5, (Evidence("my_figure", count, "count"),), values={"what": "it"})


@rule()
def without_words(facts):
    yield Finding(without_words.name, 0.5, ())


@rule()
def busy_host(facts):
    return ()


wrong = Text("", "", "")
"""


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[None]:
    """A package ``house-rules`` on the path: a rule, one without words, one in place of ours, and something that is no rule."""
    (tmp_path / "house_rules.py").write_text(PACKAGE)
    information = tmp_path / "house_rules-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: house-rules\nVersion: 1.0\n")
    names = ("of_a_package", "without_words", "busy_host", "wrong")
    (information / "entry_points.txt").write_text(
        "\n".join(["[steplens.rules]", *(f"{name} = house_rules:{name}" for name in names)])
    )
    # the path ends before the caches do: whatever asks for rules behind this test gets ours alone
    with pytest.MonkeyPatch.context() as path:
        path.syspath_prepend(tmp_path)
        load_extensions.cache_clear()
        all_rules.cache_clear()
        yield
    load_extensions.cache_clear()
    all_rules.cache_clear()


@pytest.mark.usefixtures("installed")
def test_rules_of_installed_packages_are_asked_and_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "steplens"):
        rules = all_rules()
    assert [rule.name for rule in rules] == [*(rule.name for rule in built_in_rules()), "of_a_package"]
    assert next(rule for rule in rules if rule.name == "busy_host").judge.__module__ == "house_rules"
    messages = sorted(record.getMessage() for record in caplog.records)
    assert messages == [
        "rule 'without_words' of an installed package is left out: it has no words; give it texts={\"en\": Text(...)}",
        "steplens.rules 'wrong' of house-rules is left out: house_rules:wrong is no steplens.advice.rule.Rule; "
        "update or remove it",
    ]
    advice = advise(Run(Path("run"), [(Source(Path("trace")), build())], []))
    (finding,) = [one for one in advice.findings if one.rule == "of_a_package"]
    for language in ("en", "zh"):
        words = Words(language)
        assert words.of(finding).cause == "Because of it."
        assert (words.documentation(finding), words.evidence("my_figure")) == ("", "my figure")
    assert all_texts().keys() == {*TEXTS, "of_a_package"}


def test_ours_alone_are_in_the_order_of_the_catalogue() -> None:
    names = [rule.name for rule in built_in_rules()]
    assert names == list(TEXTS)
    assert [names[0], names[-1], len(names)] == ["loader_without_workers", "next_slow_rank", 95]
    assert all((rule.judge_run or rule.judge).__module__.startswith("steplens.advice.rules.") for rule in built_in_rules())


def test_a_threshold_is_replaced_by_either_name_of_the_function() -> None:
    """docs/advice_ranks.md shows ``judge_run``; files of users may have ``judge``."""
    assert slow_link.judge_run is not None
    for judge in (slow_link.judge_run, slow_link.judge):
        rule = Rule("slow_link", judge_run=partial(judge, threshold=0.5))
        run = Run(Path("run"), [(Source(Path("trace")), build())], [])
        assert advise(run, [rule]).findings == ()
