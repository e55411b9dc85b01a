"""Comparisons as a test report in JUnit's XML, which systems for continuous integration show: a test for each limit.

There is no standard of the format; what is written here is what Jenkins, GitLab and the actions for GitHub read of it. They count
``failure`` and ``error`` as failed. GitLab shows the text of these elements and Jenkins their ``message``, so both are written. A
limit of which nothing can be told is ``skipped``: it was neither kept nor exceeded, and all of them show that apart from both.
Whether that ends a job is for the exit code to say. Bad input is an ``error``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from steplens.common.display import clean

if TYPE_CHECKING:
    from steplens.comparison.reports.reported import Reported

#: what no document of XML 1.0 can hold, not even as a reference
_NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_CLASS = "steplens.compare"
#: causes that a test names
_MOST_CAUSES = 5
#: outcomes, as elements
_FAILURE, _ERROR, _SKIPPED = "failure", "error", "skipped"


def junit_report(comparisons: Sequence[Reported]) -> str:
    """A test suite for each comparison.

    Args:
        comparisons: what was compared, with judgements and what is wrong with it.
    """
    suites = [_make_suite(reported, several=len(comparisons) > 1) for reported in comparisons]
    return _as_document(suites)


def junit_problem(sides: Sequence[str], problem: str) -> str:
    """The report where nothing could be compared.

    Args:
        sides: the paths that were to be compared.
        problem: why they were not.
    """
    suite = ElementTree.Element("testsuite", name=_xml_text(f"steplens compare {' '.join(sides)}"))
    _add_test(suite, "comparison", _ERROR, "bad input", problem)
    return _as_document([suite])


def _make_suite(reported: Reported, several: bool) -> ElementTree.Element:
    from steplens.comparison.comparison import CANNOT_TELL
    from steplens.comparison.gate import EXCEEDED, KEPT
    from steplens.comparison.reports.sentences import explained_lines, judgement_reason

    comparison = reported.comparison
    (before, of_before), (after, of_after) = reported.named_sides
    suite = ElementTree.Element("testsuite", name=_xml_text(f"steplens compare {before} {after}"))
    properties = ElementTree.SubElement(suite, "properties")
    remarks = [("doubtful", doubt) for doubt in reported.all_doubts]
    if reported.explained:
        remarks.append(("recorded", reported.explained))
    for name, value in (("before", f"{before}: {of_before}"), ("after", f"{after}: {of_after}"), *remarks):
        ElementTree.SubElement(properties, "property", name=name, value=_xml_text(value))
    sentence = reported.verdict_text
    text = "\n".join([sentence, *explained_lines(comparison, _MOST_CAUSES)])
    # names that stay from run to run, so that a system can show what became of each
    ending = f" {after}" if several else ""
    for judgement in reported.judgements:
        outcome = {EXCEEDED: _FAILURE, KEPT: ""}.get(judgement.verdict, _SKIPPED)
        reason = f"{judgement.verdict}: {judgement_reason(judgement)}"
        _add_test(suite, f"{judgement.limit}{ending}", outcome, reason, f"{reason}\n{text}")
    if not reported.judgements:
        unknown = comparison.step is None or comparison.step.step_verdict == CANNOT_TELL
        _add_test(suite, f"step{ending}", _SKIPPED if unknown else "", sentence, text)
    for problem in reported.problems:
        _add_test(suite, f"recordings{ending}", _ERROR, "bad input", problem)
    return suite


def _add_test(suite: ElementTree.Element, name: str, outcome: str, message: str, text: str) -> None:
    # readers that show times take a missing one for no number; a limit is judged in none
    test = ElementTree.SubElement(suite, "testcase", classname=_CLASS, name=_xml_text(name), time="0")
    if outcome:
        ElementTree.SubElement(test, outcome, message=_xml_text(message)).text = _xml_text(text)
    else:
        ElementTree.SubElement(test, "system-out").text = _xml_text(text)


def _as_document(suites: Sequence[ElementTree.Element]) -> str:
    root = ElementTree.Element("testsuites", name="steplens compare")
    root.extend(suites)
    for element in (root, *suites):
        element.set("tests", str(len(element.findall(".//testcase"))))
        for attribute, outcome in (("failures", _FAILURE), ("errors", _ERROR), ("skipped", _SKIPPED)):
            element.set(attribute, str(len(element.findall(f".//testcase/{outcome}"))))
        element.set("time", "0")
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _xml_text(text: str) -> str:
    lines = [_NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", clean(line)) for line in text.split("\n")]
    return "\n".join(lines)
