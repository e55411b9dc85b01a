"""``python -m steplens.offline analyse RUN_DIR``: what collection starts when it has recorded a run."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from steplens.common import parent
from steplens.offline import analyse
from steplens.offline.outcome import EXIT_BAD_INPUT, exit_code, one_line, polars_panic


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line of ``python -m steplens.offline``; see the module.

    Returns:
        0 when every run is complete, 3 when only some runs or outputs could be written, 2 when none could.
    """
    parser = argparse.ArgumentParser(prog="python -m steplens.offline", description="Turn recorded runs into results.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("analyse", help="write the result files of a run directory or a folder of them")
    command.add_argument("path", type=Path)
    command.add_argument("--force", action="store_true", help="analyse again what is complete already")
    options = parser.parse_args(arguments)
    parent.end_with_parent()
    try:
        return exit_code(analyse(options.path, force=options.force))
    # The boundary to the shell, or to the training process that started this one: one line, no traceback.
    except (Exception, polars_panic()) as error:
        print(f"steplens: {one_line(error)}", file=sys.stderr)
        return EXIT_BAD_INPUT


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Everything is on disk; taking a few hundred MB of tables apart first would only take time.
    os._exit(code)
