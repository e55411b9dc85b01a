"""A process that has imported MindSpore, and runs each program that it is asked for in a fork of its own.

To import MindSpore takes longer than most of the trainings of the tests. Nothing is trained and nothing of steplens is imported
here, so a program finds what it would find in an interpreter of its own: its own folder, environment, arguments and files, its
own ``__main__``, and an end with all that a program does at its end.

Requests come as lines of JSON: a list of programs that run at the same time, each with ``folder``, ``program``, ``arguments``,
``environment``, ``stdout`` and ``stderr``. The answer is a line with the list of their exit codes.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import types
from typing import Any


def serve() -> dict[str, Any] | None:
    """Answer requests; in a fork, gives the program to run."""
    answers = os.fdopen(os.dup(1), "w")
    requests = os.fdopen(os.dup(0), "r")
    null = os.open(os.devnull, os.O_RDWR)
    # what MindSpore prints, or a program asks for, is neither an answer nor a request
    for descriptor in (0, 1):
        os.dup2(null, descriptor)
    for line in iter(requests.readline, ""):
        children = []
        for request in json.loads(line):
            child = os.fork()
            if not child:
                answers.close()
                requests.close()
                os.close(null)
                return dict(request)
            children.append(child)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        answers.write(json.dumps(codes) + "\n")
        answers.flush()
    return None


def become(request: dict[str, Any]) -> dict[str, Any]:
    """Turn this process into one that was started to run a program; gives the names of its ``__main__``."""
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        opened = os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(opened, descriptor)
        os.close(opened)
    # as the interpreter does for its own: block buffered, written at the end
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.argv = [request["program"], *request["arguments"]]
    sys.path[0] = os.path.dirname(request["program"])
    main = types.ModuleType("__main__")
    main.__file__ = request["program"]
    sys.modules["__main__"] = main
    return main.__dict__


if __name__ == "__main__":
    for module in ("mindspore", "mindspore.dataset", "mindspore.nn", "mindspore.train"):
        importlib.import_module(module)
    # what is there is garbage to nobody: else every fork would look through it, and copy it, at its end
    gc.freeze()
    program = serve()
    if program is not None:
        with open(program["program"], encoding="utf-8") as file:
            code = compile(file.read(), program["program"], "exec")
        exec(code, become(program))
