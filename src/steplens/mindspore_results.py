"""Makes the results of what MindSpore's interfaces recorded, of raw device logs and of MindSpore's records of the host.

In a process of its own, which the training process starts, or later; the work is done by ``steplens.offline.mindspore``.

python -m steplens.mindspore_results analyse PATH
python -m steplens.mindspore_results operators PATH -- Conv2D MatMul
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from steplens.common import parent
from steplens.offline.mindspore.operators import operators_json
from steplens.offline.mindspore.ranks import analyse_all_ranks, describe_failure
from steplens.offline.mindspore.settings import Options
from steplens.offline.outcome import EXIT_BAD_INPUT, exit_code, one_line, polars_panic


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line of ``python -m steplens.mindspore_results``; see the module.

    Returns:
        0 when everything is there, 3 when some ranks or files could not be written, 2 when none could.
    """
    parser = argparse.ArgumentParser(prog="python -m steplens.mindspore_results")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("analyse", help="write the results of every rank")
    command.add_argument("path", type=Path)
    command.add_argument("--pretty", action="store_true")
    command.add_argument("--steps", type=lambda text: tuple(map(int, text.split(","))), default=None)
    command.add_argument("--keep-raw", action="store_true")
    command.add_argument("--timeline-limit", type=int, default=None)
    command.add_argument("--processes", type=int, default=None)
    command = commands.add_parser("operators", help="times of operators as JSON")
    command.add_argument("path", type=Path)
    command.add_argument("--device", type=int, default=None)
    command.add_argument("types", nargs="+")
    options = parser.parse_args(arguments)
    try:
        if options.command == "operators":
            print(operators_json(options.path, options.types, options.device))
            return 0
        how = Options(options.pretty, options.steps, not options.keep_raw, options.timeline_limit)
        ranks = analyse_all_ranks(options.path, how, options.processes)
    # The boundary to the shell, or to the training process that started this one: one line, no traceback.
    except (Exception, polars_panic()) as error:
        print(f"steplens: {one_line(error)}", file=sys.stderr)
        return EXIT_BAD_INPUT
    if failures := [sentence for source, result in ranks if (sentence := describe_failure(source, result))]:
        print(f"steplens: {'; '.join(failures)}", file=sys.stderr)
    return exit_code([result for _, result in ranks])


if __name__ == "__main__":
    parent.end_with_parent()
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # giving the tables back piece by piece takes as long as writing one of the files; the system takes them at once
    os._exit(code)
