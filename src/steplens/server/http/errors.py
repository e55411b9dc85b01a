"""Why something has no answer: what is wrong, where, and what to do.

Nothing of the web is imported here, so that runs can be opened while the rest of the server is being loaded.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steplens.common.errors import InputError, SteplensError
from steplens.common.stand_ins import told_path

OPENING = 503


@dataclass(frozen=True)
class Problem:
    """Why a request has no answer."""

    problem: str
    where: str = ""
    remedy: str = ""


#: what an address may answer instead of what was asked for
PROBLEMS: dict[int | str, dict[str, Any]] = {
    401: {"model": Problem, "description": "the token is missing or wrong"},
    403: {"model": Problem, "description": "the request comes from another site"},
    404: {"model": Problem, "description": "there is no such run, trace, table or event"},
    409: {"model": Problem, "description": "the run cannot be read, or has nothing of what was asked for"},
    413: {"model": Problem, "description": "the body of the request is too large"},
    422: {"model": Problem, "description": "a parameter is wrong"},
    503: {"model": Problem, "description": "the run is still being opened"},
}


class Refusal(Exception):
    """A request that cannot be answered.

    Args:
        status: HTTP status code.
        problem: what is wrong.
        where: the path, parameter or column at fault.
        remedy: what to do.
    """

    def __init__(self, status: int, problem: str, where: str = "", remedy: str = "") -> None:
        self.status = status
        self.body = Problem(problem=problem, where=where, remedy=remedy)
        super().__init__(problem)


@contextlib.contextmanager
def not_found(where: str, remedy: str) -> Iterator[None]:
    """Around an analysis that raises ``ValueError`` for what does not exist.

    Raises:
        Refusal: it did (404).
    """
    try:
        yield
    except ValueError as error:
        raise Refusal(404, str(error), where, remedy) from None


def path_text(path: Path | str) -> str:
    """A path or a part of one as it is told, or the URL that it stands for.

    A name in another encoding, as GBK, is no text and would break every answer.
    """
    return os.fsencode(told_path(path)).decode(errors="replace")


def of_input(error: SteplensError) -> Problem:
    """What is wrong with a file or folder."""
    if isinstance(error, InputError):
        return Problem(problem=error.problem, where=path_text(error.path), remedy=error.remedy)
    return Problem(problem=str(error))
