"""Order, silence, comparison, catalogue and the user's own rules."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from steplens.advice import Advice, Evidence, Finding, Saving, Silenced, advise
from steplens.advice.compare import compare
from steplens.advice.facts import Facts
from steplens.advice.judging.order import with_first_ones_first
from steplens.advice.registry import built_in_rules
from steplens.advice.rule import Rule
from steplens.advice.texts import CATALOGUES, LANGUAGES, TEXTS
from steplens.advice.user_rules import load_rules
from steplens.advice.words import Words
from steplens.cli.text.advise_text import finding_headline
from steplens.common.errors import InputError
from steplens.run import Run, Source
from steplens.trace.health import MEMORY, STEP_DEVICE_TIMES, STEP_PHASES, WARNING, finding, frame_of
from steplens.trace.trace import Trace

from ..writers.builder import BASE_NS, build, kernel

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src" / "steplens" / "advice"


def found(rule: str, likely_ms: float | None, urgency: str = "low", subject: str = "") -> Finding:
    saving = None if likely_ms is None else Saving(likely_ms * 5e5, likely_ms * 1e6, likely_ms * 2e6)
    return Finding(rule, 0.9, (Evidence("reads", 1, "count", (1,)),), saving, step_ns=100e6, urgency=urgency, subject=subject)


def run_of(*traces: Trace, path: str = "run") -> Run:
    return Run(Path(path), [(Source(Path(path) / f"trace{number}"), trace) for number, trace in enumerate(traces)], [])


def test_what_has_to_be_cured_before_another_stands_before_it() -> None:
    findings = [replace(found("a", 30), first=("c", "gone")), found("b", 20), replace(found("c", 5), first=("d",)), found("d", 1)]
    assert [one.id for one in with_first_ones_first(findings)] == ["b", "d", "c", "a"]
    circle = [replace(found("a", 30), first=("b",)), replace(found("b", 20), first=("a",))]
    assert [one.id for one in with_first_ones_first(circle)] == ["a", "b"]


def test_an_end_of_a_range_is_only_explained_where_something_is_known() -> None:
    """That none or all of a time goes says nothing; behind a slower rank both ends are said in the line about the saving."""
    behind = replace(
        found("single_tensor_optimizer", 4), saving=Saving(0, 0, 2e6), basis="behind_slow_rank", values={"slow": "1"}
    )
    # nothing is likely: no level, as on the pages
    assert not behind.is_weighed and finding_headline(behind, Words("en")).startswith(Words("en").of(behind).title)
    english, chinese = (Words(language).of(behind) for language in LANGUAGES)
    assert (english.low, english.high) == ("while the others wait for rank 1", "once this rank is the slowest")
    assert "rank 1" in chinese.low and not chinese.likely
    assert finding_headline(behind, Words("en")).endswith(
        "saves nothing while the others wait for rank 1, up to 2 ms of a step (2 %) once this rank is the slowest"
    )
    assert finding_headline(behind, Words("zh")).endswith("不节省，本 rank 成为最慢的 rank 之后每步最多可节省 2 ms（2 %）")
    unknown = Words("en").of(replace(found("next_copy_bound", 1), saving=Saving(0, 0, 2e6)))
    assert (unknown.likely, unknown.low, unknown.high) == ("", "", "")


def test_where_all_of_a_saving_is_likely_both_ends_say_on_what_they_rest() -> None:
    finding = Finding("loader_too_slow", 0.9, (), Saving(18e6, 36e6, 36e6), 60e6, values={"case": "more_workers", "workers": 3})
    ends = "saves 36 ms of a step (60 %) if 3 workers have every batch ready in time, 18 ms if half of the waits stay"
    assert finding_headline(finding, Words("en")).endswith(ends)
    waiting = {**finding.values, "waiting": 6, "waiting_of": 9, "waiting_ms": "61"}
    cause = Words("en").of(replace(finding, values=waiting)).cause
    assert cause.endswith(" 6 of 9 steps wait, 61 ms on average; the others find their batch ready.")
    cause = Words("en").of(replace(finding, values={**waiting, "waiting_since": 5})).cause
    assert cause.endswith(" From step 5 on every step waits, 61 ms on average; before, batches were ready.")


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


def test_a_finding_names_the_ranks_where_it_was_made() -> None:
    """Rank 1 has it in two windows, rank 2 loses more by it, rank 0 does not have it."""
    lengths = {0: iter(()), 1: iter((3.0, 4.0)), 2: iter((8.0,))}
    of_ranks = [build(meta={"rank": rank}) for rank in (0, 1, 2, 1)]
    judged = [Rule("a", lambda facts: [found("a", length) for length in [next(lengths[facts.trace.rank], None)] if length])]
    (one,) = advise(run_of(*of_ranks), judged).findings
    assert one.evidence[-1] == Evidence("on_ranks", 2, "count", places=("rank 2", "rank 1"), per_step=False)
    assert one.saving == Saving(1.5e6, 8e6, 16e6)
    # all ranks have it, or there is one, however many windows: there is nothing to tell apart
    for traces in (of_ranks, of_ranks[1::2]):
        (alone,) = advise(run_of(*traces), [rule("a", found("a", 5))]).findings
        # whose figures they are is told where there are several
        assert [evidence.what for evidence in alone.evidence][:1] == ["reads"]
        assert [evidence.places for evidence in alone.evidence[1:]] == ([] if traces is not of_ranks else [("rank 0",)])


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


def explaining(*pairs: tuple[str, float | None, tuple[str, ...]]) -> list[Rule]:
    """Rules that each find something: name, likely saving in ms, the rules whose time it explains."""

    def judge(name: str, likely_ms: float | None) -> Any:
        return lambda facts: [found(name, likely_ms)]

    return [Rule(name, judge(name, likely_ms), explains=names) for name, likely_ms, names in pairs]


def test_what_one_finding_explains_is_taken_off_another() -> None:
    rules = explaining(("symptom", 30, ()), ("cause", 10, ("symptom",)), ("another", 5, ("symptom",)))
    advice = advise(run_of(build()), rules)
    assert [one.id for one in advice.findings] == ["symptom", "cause", "another"]
    symptom = advice.findings[0]
    assert symptom.saving == Saving(0, 15e6, 45e6)
    assert symptom.evidence[-1] == Evidence("explained_elsewhere", 15e6, "ns", places=("cause", "another"))
    # of a cause within a cause only the outer one counts, and what nothing is left of is not said
    nested = explaining(("symptom", 30, ()), ("cause", 28, ("symptom",)), ("inner", 20, ("cause", "symptom")))
    assert [(one.id, one.saving.likely_ns) for one in advise(run_of(build()), nested).findings if one.saving] == [
        ("inner", 20e6),
        ("cause", 8e6),
    ]
    # a finding that promises no time explains none
    assert (
        advise(run_of(build()), explaining(("symptom", 30, ()), ("cause", None, ("symptom",)))).findings[0].saving
        == found("symptom", 30).saving
    )


def test_a_cause_on_another_rank_explains_nothing_here() -> None:
    lengths = iter((20.0, 8.0))
    causes = iter(([found("cause", 18)], []))
    rules = [Rule("symptom", lambda facts: [found("symptom", next(lengths))])]
    rules.append(Rule("cause", lambda facts: next(causes), explains=("symptom", "of_all")))
    rules.append(Rule("of_all", judge_run=lambda run, facts: [found("of_all", 30)]))
    advice = advise(run_of(build(), build()), rules)
    savings = {one.id: one.saving.likely_ns for one in advice.findings if one.saving}
    assert savings == {"cause": 18e6, "of_all": 12e6, "symptom": 8e6}


def test_a_cause_on_several_ranks_is_taken_off_once() -> None:
    """The rule looks at all ranks at once and finds it on both; a step is shorter by one of them."""
    cause = Rule("a", judge_run=lambda run, facts: [found("a", 4), found("a", 4)], explains=("b",))
    symptom = Rule("b", judge_run=lambda run, facts: [found("b", 10)])
    advice = advise(run_of(build(), build()), [cause, symptom])
    (left,) = [one for one in advice.findings if one.rule == "b"]
    assert left.saving is not None and left.saving.likely_ns == 6e6


def test_what_became_of_the_findings() -> None:
    before = Advice((found("a", 30), found("b", 10), found("s", None, "high")), (), 100e6)
    after = Advice((found("b", 9), found("n", 1)), (Silenced("s", MEMORY, "x"),), 65e6)
    change = compare(before, after)
    assert [[one.id for one in part] for part in (change.cured, change.remaining, change.new)] == [["a"], ["b"], ["n"]]
    assert (change.saved_ns, change.promised_ns) == (35e6, 30e6)
    # findings that overlap promise no more than all of them together
    overlapping = Advice((found("a", 30), found("c", 30)), (), 100e6, 60e6, 40e6)
    assert compare(overlapping, Advice((), (), 65e6)).promised_ns == 40e6


def test_a_run_without_steps_cures_nothing() -> None:
    findings = (found("a", 30),)
    for before, after in ((Advice(findings, (), 100e6), Advice((), (), 0.0)), (Advice((), (), 0.0), Advice(findings, (), 100e6))):
        change = compare(before, after)
        assert (change.cured, change.remaining, change.new) == ((), (), ())
        assert (change.saved_ns, change.promised_ns) == (0, 0)
    # of both without steps the same rules could judge
    assert compare(Advice(findings, (), 0.0), Advice((), (), 0.0)).cured == findings


def test_every_step_counts_once() -> None:
    def window(*lengths_us: int) -> Trace:
        ends = [1_000 * sum(lengths_us[: number + 1]) for number in range(len(lengths_us))]
        steps = zip(range(len(ends)), ends, lengths_us, strict=True)
        return build(
            steps=[{"id": number, "start_ns": end - 1_000 * us, "end_ns": end, "pid": 1, "tid": 1} for number, end, us in steps]
        )

    # the median of the two medians would be 150 us
    assert advise(run_of(window(100, 100, 100), window(200)), []).step_ns == pytest.approx(100_000)
    assert advise(run_of(window(), window()), []).step_ns == 0


def test_every_rule_has_texts_in_every_language() -> None:
    assert [rule.name for rule in built_in_rules()] == list(TEXTS)
    english, chinese = (CATALOGUES[language] for language in LANGUAGES)
    for part in ("rules", "evidence", "frame"):
        assert list(getattr(english, part)) == list(getattr(chinese, part))
        assert all({**getattr(english, part), **getattr(chinese, part)}.values()), part
    for key, languages in TEXTS.items():
        holes = [set(re.findall(r"{(\w+)}", f"{text.title}{text.cause}{text.remedy}{text.patch}")) for text in languages.values()]
        assert holes[0] == holes[1], key
        assert any("\u4e00" <= character <= "\u9fff" for character in languages["zh"].cause), key


def test_every_rule_has_its_place_in_the_documentation() -> None:
    places = [f"{entry.documentation}#{name}" for name, entry in CATALOGUES["en"].rules.items()]
    pages = {entry.documentation for entry in CATALOGUES["en"].rules.values()}
    anchors = [f"{page}#{name}" for page in pages for name in re.findall(r'<a id="(\w+)"></a>`', (ROOT / page).read_text())]
    # one each, and none of a rule that is not there
    assert sorted(anchors) == sorted(places)
    assert Words("en", TEXTS).documentation(found("device_waits_for_host", 1)) == "docs/advice.md#device_waits_for_host"
    assert Words("en", TEXTS).documentation(found("of_a_user", 1)) == ""


def test_every_kind_of_evidence_has_words() -> None:
    named = set()
    for file in (SOURCES / "rules").rglob("*.py"):
        named |= set(re.findall(r'Evidence\(\s*"(\w+)"', file.read_text()))
    assert len(named) > 10
    assert named <= set(CATALOGUES["en"].evidence)


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


def contradicted(computing: str) -> Trace:
    """Two steps in which 50 us are computed, and a table of the capture beside them that says so or not."""
    tasks = [kernel("MatMul", start, start + 50, step=step, core="AI_CORE") for step, start in ((1, 0), (2, 100), (3, 200))]
    steps = [
        {"id": step, "start_ns": BASE_NS + 100_000 * (step - 1), "end_ns": BASE_NS + 100_000 * step, "pid": 1, "tid": 1}
        for step in (1, 2, 3)
    ]
    record = json.dumps({"Step": "1", "Computing": computing})
    return build(kernels=tasks, steps=steps, source_tables=[{"table": "step_trace_time", "row": 0, "record": record}])


def test_where_the_capture_contradicts_its_own_tables_nothing_is_sure() -> None:
    """A part of the device counts little then, and rules that rest on the figures of the device do not judge at all."""
    judged = [
        Rule("a", lambda facts: [replace(found("a", 0.01), part="computing_ns", step_ns=1e5)]),
        Rule("b", lambda facts: [replace(found("b", 0.01), step_ns=1e5)]),
        Rule("c", lambda facts: [replace(found("c", 0.01), step_ns=1e5)], (STEP_DEVICE_TIMES,)),
    ]
    said = {one.rule: one for one in advise(run_of(contradicted("50.0")), judged).findings}
    assert {name: one.confidence for name, one in said.items()} == {"a": 0.9, "b": 0.9, "c": 0.9}
    advice = advise(run_of(contradicted("20.0")), judged)
    said = {one.rule: one for one in advice.findings}
    assert {name: one.confidence for name, one in said.items()} == {"a": 0.3, "b": 0.9}
    assert said["a"].evidence[-1].what == "doubted_part"
    assert [one.rule for one in advice.silenced] == ["c"]
    assert [Facts(contradicted(text)).trusts(STEP_DEVICE_TIMES) for text in ("50.0", "20.0")] == [True, False]
