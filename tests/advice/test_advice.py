"""Order, silence, comparison, catalogue and the user's own rules."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from steplens.advice import Advice, Evidence, Finding, Saving, Silenced, advise
from steplens.advice.compare import compare
from steplens.advice.facts import Facts
from steplens.advice.rule import Rule
from steplens.advice.table import RULES
from steplens.advice.texts import EVIDENCE, FRAME, LANGUAGES, TEXTS
from steplens.advice.user_rules import load_rules
from steplens.advice.words import Words
from steplens.errors import InputError
from steplens.trace.health import MEMORY, STEP_PHASES, WARNING, finding, frame_of
from steplens.trace.run import Run, Source
from steplens.trace.trace import Trace

from ..writers.builder import build

SOURCES = Path(__file__).resolve().parents[2] / "src" / "steplens" / "advice"


def found(rule: str, likely_ms: float | None, urgency: str = "low", subject: str = "") -> Finding:
    saving = None if likely_ms is None else Saving(likely_ms * 5e5, likely_ms * 1e6, likely_ms * 2e6)
    return Finding(rule, 0.9, (Evidence("reads", 1, "count", (1,)),), saving, step_ns=100e6, urgency=urgency, subject=subject)


def run_of(*traces: Trace, path: str = "run") -> Run:
    return Run(Path(path), [(Source(Path(path) / f"trace{number}"), trace) for number, trace in enumerate(traces)], [])


def rule(name: str, *findings: Finding, rests_on: tuple[str, ...] = ()) -> Rule:
    return Rule(name, lambda facts: findings, rests_on)


def test_what_saves_most_comes_first() -> None:
    findings = [found("a", 1), found("b", 30), found("c", None, "high"), found("d", 12), found("e", None), found("f", 5)]
    advice = advise(run_of(build()), [rule(one.rule, one) for one in findings])
    assert [(one.rule, one.level) for one in advice.findings] == [
        ("b", "high"), ("d", "high"), ("c", "high"), ("f", "medium"), ("a", "low"), ("e", "low"),
    ]  # fmt: skip


def test_ranks_with_the_same_cause_give_one_finding() -> None:
    lengths = iter((3.0, 8.0))
    advice = advise(run_of(build(), build()), [Rule("a", lambda facts: [found("a", next(lengths))])])
    (one,) = advice.findings
    assert one.saving == Saving(1.5e6, 8e6, 16e6)


def test_nothing_is_said_on_unsafe_data() -> None:
    unsafe = Trace(Path("x"), {"health": frame_of([finding("lost", WARNING, 1, "allocations are lost", MEMORY)])})
    rules = [rule("a", found("a", 5), rests_on=(MEMORY,)), rule("b", found("b", 5), rests_on=(STEP_PHASES,))]
    advice = advise(run_of(unsafe), rules)
    assert [one.rule for one in advice.findings] == ["b"]
    assert advice.silenced == (Silenced("a", MEMORY, "allocations are lost"),)
    # a good trace beside it is judged
    assert [one.rule for one in advise(run_of(unsafe, build()), rules).findings] == ["a", "b"]
    together = Rule("c", rests_on=(MEMORY,), judge_run=lambda run, facts: [found("c", 5)])
    assert [one.rule for one in advise(run_of(unsafe, build()), [together]).silenced] == ["c"]


def test_what_became_of_the_findings() -> None:
    before = Advice((found("a", 30), found("b", 10), found("s", None, "high")), (), 100e6)
    after = Advice((found("b", 9), found("n", 1)), (Silenced("s", MEMORY, "x"),), 65e6)
    change = compare(before, after)
    assert [[one.id for one in part] for part in (change.cured, change.remaining, change.new)] == [["a"], ["b"], ["n"]]
    assert (change.saved_ns, change.promised_ns) == (35e6, 30e6)


def test_every_rule_has_texts_in_every_language() -> None:
    assert {rule.name for rule in RULES} == set(TEXTS)
    for catalogue in (TEXTS, EVIDENCE, FRAME):
        for key, languages in catalogue.items():
            assert set(languages) == set(LANGUAGES), key
            assert all(languages.values()), key
    for key, languages in TEXTS.items():
        holes = [set(re.findall(r"{(\w+)}", f"{text.title}{text.cause}{text.remedy}{text.patch}")) for text in languages.values()]
        assert holes[0] == holes[1], key
        assert any("\u4e00" <= character <= "\u9fff" for character in languages["zh"].cause), key


def test_every_kind_of_evidence_has_words() -> None:
    named = set()
    for file in (SOURCES / "rules").glob("*.py"):
        named |= set(re.findall(r'Evidence\(\s*"(\w+)"', file.read_text()))
    assert len(named) > 10
    assert named <= set(EVIDENCE)


def test_values_fill_the_texts_and_nothing_else() -> None:
    one = Finding("loader_without_workers", 0.9, (), values={"workers": 3})
    text = Words("en", TEXTS).of(one)
    assert "num_workers=3" in text.patch
    hostile = Finding("memory_growth", 0.9, (), values={"device": "{0.__class__} {device}"})
    assert Words("en", TEXTS).of(hostile).title == "Memory of {0.__class__} {device} grows from step to step"


OWN = """
from steplens.advice import Evidence, Finding, Saving
from steplens.advice.rule import Rule
from steplens.advice.texts import Text


def judge(facts):
    yield Finding(RULE.name, 0.5, (Evidence("my_figure", 7, "count"),), Saving(1, 2, 3), step_ns=10)


RULE = Rule("house_rule", judge)
TEXT = Text("Our own rule", "Because.", "Do otherwise.")
"""


def test_rules_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "house_rule.py").write_text(OWN)
    (tmp_path / "_helper.py").write_text("raise RuntimeError")
    rules, texts = load_rules(tmp_path)
    advice = advise(run_of(build()), rules)
    assert [one.id for one in advice.findings] == ["house_rule"]
    words = Words("zh", {**TEXTS, **texts})
    assert words.of(advice.findings[0]).title == "Our own rule"
    assert words.evidence("my_figure") == "my figure"
    assert isinstance(Facts(build()).step_ns, float)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("bad.py", "1 / 0", "bad.py: cannot be loaded as a rule (ZeroDivisionError"),
        ("bad.py", "x = (", "bad.py: cannot be loaded as a rule (SyntaxError"),
        ("empty.py", "", "empty.py: has no RULE and TEXT"),
        ("notes.txt", "", "holds no rules"),
    ],
)
def test_what_is_no_rule(tmp_path: Path, name: str, content: str, says: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=re.escape(says)):
        load_rules(tmp_path)
    with pytest.raises(InputError, match="is no folder of rules"):
        load_rules(tmp_path / "missing")
