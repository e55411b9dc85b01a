"""Builds the libraries of C++ beside their sources, where this checkout finds them whatever the cache of its user holds.

Usage: ``python tools/build_native.py``. What cannot be built is left, and said: everything works without, slower.
"""

from __future__ import annotations

import importlib.util
import sys

from steplens.common.native.build import BuildError, build_library
from steplens.common.native.libraries import PREBUILT, WITHOUT_PYTORCH, NativeLibrary


def build_all() -> None:
    """Build what can be built; files of sources that have changed since are removed."""
    libraries = [NativeLibrary(name) for name in WITHOUT_PYTORCH]
    if importlib.util.find_spec("torch") is not None:
        from steplens.collect.recorder.recorder_library import RecorderError, recorder_library

        try:
            libraries.append(recorder_library())
        except RecorderError as error:
            print(f"The recorder is not built: {error}", file=sys.stderr)
    PREBUILT.mkdir(exist_ok=True)
    for library in libraries:
        for stale in PREBUILT.glob(f"{library.name}-*"):
            if stale.name != library.file_name():
                stale.unlink()
        try:
            build_library(library, PREBUILT)
        except BuildError as error:
            print(f"The library {library.name} is not built: {error}. Everything works without it, slower.", file=sys.stderr)


if __name__ == "__main__":
    build_all()
