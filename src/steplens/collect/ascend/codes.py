"""What the return codes of CANN's profiling calls mean, in a sentence a user can act on.

Source: the public header ``acl_base.h`` and the documentation of the calls.
"""

from __future__ import annotations

SUCCESS = 0

PROF_MODULES_UNSUPPORTED = 200007

#: the call exists, but this device or this version of CANN cannot do what it asks for
UNSUPPORTED = frozenset({200006, PROF_MODULES_UNSUPPORTED})

#: code -> what stands behind ``ACL_ERROR_`` in its name, and what it means
_MEANINGS = {
    100000: ("INVALID_PARAM", "a value was refused"),
    100001: ("UNINITIALIZE", "the NPU is not initialised yet in this process"),
    100002: ("REPEAT_INITIALIZE", "another profiler of this process uses the NPU, such as torch_npu.profiler"),
    100003: ("INVALID_FILE", "CANN cannot write to the run directory, or does not accept a character of its path"),
    100004: ("WRITE_FILE", "CANN cannot write to the run directory"),
    100010: ("INVALID_PROFILING_CONFIG", "this device or this CANN does not take the value"),
    100042: (
        "PROF_ALREADY_RUN",
        "the NPU is already being profiled, by the msprof command, by acl.json or by another part of this process",
    ),
    100043: ("PROF_NOT_RUN", "profiling of the NPU is not initialised"),
    148047: ("PROF_API_CONFLICT", "another kind of profiling is active on the NPU"),
    200006: ("FEATURE_UNSUPPORTED", "this device or this CANN does not support it"),
    PROF_MODULES_UNSUPPORTED: (
        "PROF_MODULES_UNSUPPORTED",
        "this device or this CANN does not support one of the options; try Level0 without further options",
    ),
    300000: ("STORAGE_OVER_LIMIT", "the disk is full"),
    500005: (
        "PROFILING_FAILURE",
        "CANN could not start or stop the device; versions of CANN and of the driver that do not fit are the usual cause",
    ),
}


def describe_failure(call: str, code: int) -> str:
    """One sentence part: which call failed, with which code, and what that usually means."""
    name, meaning = _MEANINGS.get(code, ("", "CANN's log under ~/ascend/log says more"))
    return f"{call} failed with {code} ({f'ACL_ERROR_{name}' if name else 'unknown code'}): {meaning}"
