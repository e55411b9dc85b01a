"""``python -m steplens.writers.exports FORMAT SOURCE TARGET``: one export in a process of its own, for the training process."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import polars as pl

from steplens.common.errors import SteplensError
from steplens.writers.exports.export import export
from steplens.writers.exports.flame import stacks
from steplens.writers.exports.formats import all_formats


def main(arguments: Sequence[str] | None = None) -> int:
    """Export, and say in one line what went wrong.

    Returns:
        0, or 2 when nothing was written.
    """
    parser = argparse.ArgumentParser(prog="python -m steplens.writers.exports", description="Export one trace.")
    parser.add_argument("to", choices=list(all_formats()))
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--metric", choices=stacks.METRICS, default=stacks.SELF_CPU)
    parser.add_argument("--device")
    options = parser.parse_args(arguments)
    try:
        export(options.source, options.to, options.target, metric=options.metric, device=options.device)
    # The boundary to the process that started this one: one line, no traceback.
    except (Exception, pl.exceptions.PanicException) as error:
        name = "" if isinstance(error, SteplensError) else f"{type(error).__name__}: "
        print(f"steplens: {name}{' '.join(str(error).split())}", file=sys.stderr)
        return SteplensError.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
