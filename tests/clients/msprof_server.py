"""Answers for ``tests/clients/msprof.py``, run by the Python of msprof-analyze: imports it once and forks for each question.

A question is a line of JSON with the arguments, the folder to work in and the file for what the tool prints; the answer is a line
with its exit status. Nothing that one question leaves in its process is there for the next.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import traceback
from typing import Any

from msprof_analyze.cli.entrance import msprof_analyze_cli


def answer(question: dict[str, Any]) -> int:
    """Run the tool in a fork of this process; return its exit status."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    status = 1
    try:
        nothing = os.open(os.devnull, os.O_RDONLY)
        log = os.open(question["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for number, target in ((0, nothing), (1, log), (2, log)):
            os.dup2(target, number)
        os.chdir(question["folder"])
        sys.argv = ["msprof-analyze", *question["arguments"]]
        msprof_analyze_cli()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # the boundary to a foreign program: Python would show what it raises
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    # as it imports, the tool chooses the way in which each of its workers imports everything once more
    multiprocessing.set_start_method("fork", force=True)
    # what the tool prints where it should not is no answer
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        print(answer(json.loads(line)), file=answers, flush=True)
