"""What of MindSpore can be recorded here, as one line of JSON: python -m steplens.collect.mindspore.recording.probe.

A process of its own, since importing MindSpore takes seconds and prints, and a broken one may end the process.
"""

from __future__ import annotations

import json
from typing import Any

from steplens.collect.mindspore.recording import framework


def probe_installation() -> dict[str, Any]:
    """``version`` and ``device`` of the MindSpore that is installed, and why its operators cannot be recorded (``problem``)."""
    answer: dict[str, Any] = {"version": "", "device": "", "problem": ""}
    try:
        framework.operator_profiler()
        answer.update(version=framework.mindspore_version(), device=framework.device_target())
    except Exception as error:  # the boundary to a foreign package: its import may fail in any way
        answer["problem"] = f"{error}"
    return answer


if __name__ == "__main__":
    # MindSpore itself may print before the answer
    print("\n" + json.dumps(probe_installation()), flush=True)
