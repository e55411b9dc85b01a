"""``steplens summary``: where the steps of a run went, in the terminal or as one JSON document."""

from __future__ import annotations

import dataclasses
import enum
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steplens.cli.text import print_json
from steplens.errors import InputError, SteplensError

if TYPE_CHECKING:
    from steplens.trace.run import Run

TRUNCATED = "truncated"


class By(str, enum.Enum):
    """What operators are grouped by."""

    name = "name"
    shape = "shape"
    stack = "stack"
    module = "module"


@dataclasses.dataclass(frozen=True)
class Summary:
    """Everything the summary shows, as rows.

    Attributes:
        path: what the user asked for.
        steps, operators, memory, health: rows of the frames of the same name of ``Run``.
        problem: why the picture is not whole, in one sentence; empty when it is.
    """

    path: str
    steps: list[dict[str, Any]]
    operators: list[dict[str, Any]]
    operator_count: int
    memory: list[dict[str, Any]]
    health: list[dict[str, Any]]
    problem: str = ""


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("summary")(summary)


def summary(
    path: Annotated[Path, typer.Argument(help="A run directory, a folder of them, or a trace file.", show_default=False)],
    by: Annotated[By, typer.Option(help="What operators are grouped by.")] = By.name,
    top: Annotated[int, typer.Option(min=1, help="How many operators to show, largest self time first.")] = 10,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")] = False,
) -> None:
    """Show where each step's time went, the top operators, the memory peak and what is doubtful about the data."""
    import steplens

    try:
        found = collect(steplens.open(path), path, by.value, top)
    except SteplensError as error:
        if json:
            print_json({"path": str(path), "problem": str(error)})
        raise
    if json:
        print_json(dataclasses.asdict(found))
    else:
        from steplens.cli.summary_text import show

        show(found, by.value, next_commands(found, by.value))
    if found.problem:
        raise InputError(path, found.problem)


def collect(run: Run, path: Path, by: str, top: int) -> Summary:
    """Ask ``run`` for everything the summary shows."""
    steps = run.steps()
    operators = run.operators(by=by).sort("self_ns", descending=True)
    health = run.health().to_dicts()
    return Summary(
        path=str(path),
        steps=steps.to_dicts(),
        operators=operators.head(top).to_dicts(),
        operator_count=operators.height,
        memory=run.memory().to_dicts(),
        health=health,
        problem=_problem(steps.height, operators.height, health),
    )


def _problem(steps: int, operators: int, health: list[dict[str, Any]]) -> str:
    for finding in health:
        if TRUNCATED in str(finding["check"]):
            return f"the data is truncated, what precedes the cut is shown: {finding['message']}"
    if not steps and not operators:
        return "there are no operators and no steps in it, so there is nothing to show"
    if not steps:
        return "there are no steps in it, only operators are shown; record with a schedule and prof.step(), or with steplens run"
    return ""


def next_commands(found: Summary, by: str) -> list[str]:
    """What to try after this summary, most useful first."""
    path = shlex.quote(found.path)
    other = [kind.value for kind in By if kind.value not in (by, By.name.value)]
    return [f"steplens summary {path} --by {kind}" for kind in other[:1]] + [f"steplens summary {path} --json"]
