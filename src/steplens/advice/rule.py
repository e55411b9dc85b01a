"""What a rule is: a question to the facts, and what its answer rests on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from steplens.advice.facts import Facts
from steplens.advice.finding import Finding
from steplens.advice.texts import Text
from steplens.run import Run
from steplens.trace.schema import CORE_CPU

#: of ``Rule.devices``: all but the CPU, those too that nobody heard of yet
EVERY_ACCELERATOR = ("every accelerator",)


def _find_nothing(_: Facts) -> Iterable[Finding]:
    return ()


def _is_about_every_run(_: Sequence[Facts]) -> bool:
    return True


@dataclass(frozen=True)
class Rule:
    """One rule.

    Attributes:
        name: key of its texts in the catalogue; ``Finding.rule`` of what it finds.
        judge: what it finds in one trace.
        rests_on: conclusions of ``trace.health``; where one of them is unsafe the rule is not asked.
        despite: checks of health that are no obstacle, although they call unsafe what the rule rests on.
        judge_run: in place of ``judge``, for what only several ranks together show.
        devices: kinds of device that it is about, in the words of ``trace.building.devices``, or ``EVERY_ACCELERATOR``; it is not
            asked about others. Empty is all.
        applies: whether the traces of a run hold what the rule is about; where not it is not asked, and not said to be silent.
        explains: rules that see the time of this one's findings as a symptom of something; ``advise`` takes it off theirs.
        framework: the only framework (``trace.building.framework``) whose programs can break it; empty is any.
        texts: language -> what is said of it, of a rule of an installed package; ours have theirs in ``words``.
    """

    name: str
    judge: Callable[[Facts], Iterable[Finding]] = _find_nothing
    rests_on: Sequence[str] = ()
    despite: Sequence[str] = ()
    judge_run: Callable[[Run, Sequence[Facts]], Iterable[Finding]] | None = None
    devices: Sequence[str] = ()
    explains: Sequence[str] = ()
    applies: Callable[[Sequence[Facts]], bool] = _is_about_every_run
    framework: str = ""
    texts: Mapping[str, Text] = field(default_factory=dict, hash=False)

    def is_about(self, device: str) -> bool:
        """Whether it is about a kind of device."""
        if self.devices == EVERY_ACCELERATOR:
            return device != CORE_CPU
        return not self.devices or device in self.devices


def rule(**conditions: Any) -> Callable[[Callable[..., Iterable[Finding]]], Rule]:
    """Make the function below a rule of its name, that is asked about one trace; thresholds are its keyword arguments.

    Args:
        conditions: further attributes of ``Rule``.
    """
    return lambda judge: Rule(judge.__name__, judge, **conditions)


def run_rule(**conditions: Any) -> Callable[[Callable[..., Iterable[Finding]]], Rule]:
    """Make the function below a rule of its name, that is asked about all ranks of a run together; see ``rule``.

    The function is its ``judge`` as well: files of users replace thresholds by ``partial(slow_link.judge, threshold=0.5)``.
    """
    return lambda judge: Rule(judge.__name__, judge, judge_run=judge, **conditions)
