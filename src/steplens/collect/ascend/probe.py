"""``python -m steplens.collect.ascend.probe``: what CANN's profiling library here offers, as one JSON object.

It is meant to run in a process of its own, because loading a foreign library may end the process.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from steplens.collect.ascend import features, library

#: what depends on a feature of CANN, and what it is called there
FEATURES = {"op_attr": "ATTR", "aic_metrics MemoryAccess": "MemoryAccess", "shapes at Level0": "AICORE_SHAPE"}


def probe_library() -> dict[str, Any]:
    """What the library offers.

    Returns:
        ``problem``: why it cannot be used, empty when it can; then also ``library``: its path, ``symbols``: whether
        each call is there, ``features``: the list as CANN gives it or None, ``options``: whether each option that
        depends on a feature works.
    """
    try:
        cann = library.load_cann()
    except library.LibraryError as error:
        return {"problem": str(error)}
    listed = cann.features()
    return {
        "problem": "",
        "library": cann.path,
        "symbols": cann.symbols(),
        "features": None if listed is None else [dataclasses.asdict(feature) for feature in listed],
        "options": {option: features.is_feature_supported(listed, name) for option, name in FEATURES.items()},
    }


if __name__ == "__main__":
    print(json.dumps(probe_library()))
