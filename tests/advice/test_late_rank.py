"""The finding of a late rank: what it names as the reason, and how it stands beside another finding with the same cause."""

from __future__ import annotations

from pathlib import Path

import pytest

from steplens.advice import Advice, Finding, advise
from steplens.advice.finding import Saving
from steplens.advice.judging.ranks import RankFindings, with_common_causes
from steplens.advice.rule import Rule
from steplens.advice.rules.cluster import slow_interval, slow_rank
from steplens.advice.rules.loaders import loader_without_workers
from steplens.advice.rules.tools.ranks import outlying_ranks
from steplens.advice.texts import LANGUAGES
from steplens.advice.words import Words
from steplens.run import Run, Source
from steplens.trace.trace import Trace

from ..analysis.test_late_work import MS, cpu_job, device_rank


def advice_on(traces: list[Trace], *rules: Rule) -> Advice:
    run = Run(Path("run"), [(Source(Path("run") / f"rank{trace.rank}"), trace) for trace in traces], [])
    return advise(run, rules or None)


def late_rank(advice: Advice) -> Finding:
    (finding,) = (finding for finding in advice.findings if finding.rule == "slow_rank")
    return finding


def evidence_of(finding: Finding) -> dict[str, tuple[float, tuple[str, ...]]]:
    return {item.what: (item.value, item.places) for item in finding.evidence}


def test_late_data_is_one_cause_of_two_findings_whose_savings_count_once() -> None:
    """Rank 1 loads 34 ms, rank 0 4 ms: 30 of the 34 ms that loading takes rank 1 are what it holds the other up."""
    advice = advice_on(cpu_job(2, 1, data=30), slow_rank, slow_interval, loader_without_workers)
    late, loading = advice.findings
    assert (late.id, late.values["case"], late.lies_in) == ("slow_rank:rank1", "late_data", ("data_wait_ns",))
    # why is known
    assert "next_slow_rank" not in {finding.rule for finding in advice_on(cpu_job(2, 1, data=30)).findings}
    figures = evidence_of(late)
    assert (figures["more_data"], figures["others_in_that_part"]) == ((30 * MS, ("rank 1",)), (4 * MS, ()))
    assert figures["in_one_function"] == (34 * MS, ("rank 1", "photos.py(7): __getitem__"))
    assert figures["same_cause"][1] == (loading.id,) and evidence_of(loading)["makes_rank_late"][1] == (late.id,)
    assert loading.id in late.overlaps and late.id in loading.overlaps
    assert late.saving is not None and loading.saving is not None
    # what all ranks have is worth what it takes the rank that the others wait for
    assert 30 * MS < loading.saving.likely_ns <= 34 * MS
    # together they take off what loading takes there
    together = late.saving.likely_ns + loading.after_ns[late.id]
    assert advice.likely_together_ns == pytest.approx(together) and together == pytest.approx(34 * MS, rel=0.01)
    assert advice.likely_together_ns <= advice.together_ns <= 34 * MS * 1.01


def test_the_part_and_the_call_that_take_a_rank_longer_are_named() -> None:
    late = late_rank(advice_on(cpu_job(3, 2, mm=20)))
    figures = evidence_of(late)
    assert (late.values["case"], late.values["call"]) == ("one_call", "aten::mm")
    assert figures["more_forward"] == (20 * MS, ("rank 2",)) and figures["others_in_that_part"][0] == 3.5 * MS
    assert figures["in_one_operator"] == (22 * MS, ("rank 2", "aten::mm")) and figures["others_in_that_call"][0] == 2 * MS
    assert "same_cause" not in figures
    assert Words("en").of(late).title == "Rank 2 keeps the others waiting: aten::mm"
    assert "aten::mm" in Words("zh").of(late).title


def test_a_part_without_a_call_that_is_most_of_it() -> None:
    """Python runs longer, and none of its functions that were recorded does."""
    late = late_rank(advice_on(cpu_job(2, 0, python=20)))
    assert (late.values["case"], late.lies_in) == ("late_python", ("python_ns",))
    assert evidence_of(late)["more_python"][0] == 20 * MS and "no_python_calls" not in evidence_of(late)


def test_a_rank_whose_device_computes_longer() -> None:
    late = late_rank(advice_on([device_rank(0, 10, 2, 41), device_rank(1, 38, 2, 41)]))
    assert (late.values["case"], late.values["call"], late.lies_in) == ("one_call", "aten::mm", ("computing_ns",))
    assert evidence_of(late)["more_computing"][0] == 28 * MS


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_reason_has_words_of_its_own(language: str) -> None:
    names = ("data", "forward", "backward", "optimizer", "device_wait", "between", "python", "computing", "copy", "idle")
    values = {"rank": 3, "times": 4, "of": 5, "call": ""}
    words = Words(language)
    plain = words.of(Finding("slow_rank", 1.0, (), values={**values, "case": ""})).title
    titles = [words.of(Finding("slow_rank", 1.0, (), values={**values, "case": f"late_{name}"})).title for name in names]
    assert len(set(titles)) == len(names) and all(title.startswith(plain) and title != plain for title in titles)
    what = ["others_in_that_part", "in_one_operator", "in_one_function", "others_in_that_call", "others_in_that_stage"]
    what += [f"slower_{stage}" for stage in ("fetch", "transform", "collate", "transfer", "pin")]
    what += [f"more_{name}" for name in names] + ["same_cause", "makes_rank_late"]
    assert all(words.evidence(key) != key.replace("_", " ") for key in what)


def test_little_that_a_rank_has_beyond_the_others_is_no_common_cause() -> None:
    def of(rule: str, likely_ms: float, *ranks: int, subject: str = "", overlaps: tuple[str, ...] = ()) -> Finding:
        saving = Saving(0, likely_ms * MS, likely_ms * MS)
        return Finding(rule, 0.9, (), saving, 50 * MS, subject, ranks=ranks, overlaps=overlaps)

    late = of("slow_rank", 30, 1, subject="rank1", overlaps=("loader",))
    for own_ms, is_common in ((13, False), (15, True)):
        found = [late, of("loader", own_ms, overlaps=(late.id,))]
        named = with_common_causes(found, RankFindings([(0, [of("loader", 4)]), (1, [of("loader", own_ms)])]))
        assert [bool(finding.evidence) for finding in named] == [is_common, is_common]
    # another part of the step
    apart = [of("slow_rank", 30, 1, subject="rank1"), of("loader", 40)]
    assert with_common_causes(apart, RankFindings([(0, []), (1, [of("loader", 40)])])) == apart


def test_of_many_ranks_the_farthest_off_are_named() -> None:
    off_by = {rank: 0.2 + rank / 1000 for rank in range(1, 21)}
    assert outlying_ranks(off_by, 1000) == [13, 14, 15, 16, 17, 18, 19, 20]
    assert outlying_ranks({3: 0.5, 1: 0.3}, 1000) == [1, 3] == outlying_ranks({3: 0.5, 1: 0.3}, 4)
    # where so many are, they differ in kind
    assert outlying_ranks(off_by, 100) == [] == outlying_ranks({}, 2)
