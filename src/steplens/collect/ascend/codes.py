"""What the return codes of CANN's profiling calls mean, in a sentence a user can act on.

Source: the public header ``acl_base.h`` and the documentation of the calls.
"""

from __future__ import annotations

SUCCESS = 0

INVALID_PARAM = 100000
UNINITIALIZE = 100001
REPEAT_INITIALIZE = 100002
INVALID_FILE = 100003
WRITE_FILE = 100004
INVALID_PROFILING_CONFIG = 100010
PROF_ALREADY_RUN = 100042
PROF_NOT_RUN = 100043
PROF_API_CONFLICT = 148047
FEATURE_UNSUPPORTED = 200006
PROF_MODULES_UNSUPPORTED = 200007
STORAGE_OVER_LIMIT = 300000
PROFILING_FAILURE = 500005

#: the call exists, but this device or this version of CANN cannot do what it asks for
UNSUPPORTED = frozenset({FEATURE_UNSUPPORTED, PROF_MODULES_UNSUPPORTED})

_MEANINGS = {
    INVALID_PARAM: ("ACL_ERROR_INVALID_PARAM", "a value was refused"),
    UNINITIALIZE: ("ACL_ERROR_UNINITIALIZE", "the NPU is not initialised yet in this process"),
    REPEAT_INITIALIZE: (
        "ACL_ERROR_REPEAT_INITIALIZE",
        "another profiler of this process uses the NPU, such as torch_npu.profiler",
    ),
    INVALID_FILE: (
        "ACL_ERROR_INVALID_FILE",
        "CANN cannot write to the run directory, or does not accept a character of its path",
    ),
    WRITE_FILE: ("ACL_ERROR_WRITE_FILE", "CANN cannot write to the run directory"),
    INVALID_PROFILING_CONFIG: ("ACL_ERROR_INVALID_PROFILING_CONFIG", "this device or this CANN does not take the value"),
    PROF_ALREADY_RUN: (
        "ACL_ERROR_PROF_ALREADY_RUN",
        "the NPU is already being profiled, by the msprof command, by acl.json or by another part of this process",
    ),
    PROF_NOT_RUN: ("ACL_ERROR_PROF_NOT_RUN", "profiling of the NPU is not initialised"),
    PROF_API_CONFLICT: ("ACL_ERROR_PROF_API_CONFLICT", "another kind of profiling is active on the NPU"),
    FEATURE_UNSUPPORTED: ("ACL_ERROR_FEATURE_UNSUPPORTED", "this device or this CANN does not support it"),
    PROF_MODULES_UNSUPPORTED: (
        "ACL_ERROR_PROF_MODULES_UNSUPPORTED",
        "this device or this CANN does not support one of the options; try Level0 without further options",
    ),
    STORAGE_OVER_LIMIT: ("ACL_ERROR_STORAGE_OVER_LIMIT", "the disk is full"),
    PROFILING_FAILURE: (
        "ACL_ERROR_PROFILING_FAILURE",
        "CANN could not start or stop the device; versions of CANN and of the driver that do not fit are the usual cause",
    ),
}


def describe_failure(call: str, code: int) -> str:
    """One sentence part: which call failed, with which code, and what that usually means."""
    name, meaning = _MEANINGS.get(code, ("unknown code", "CANN's log under ~/ascend/log says more"))
    return f"{call} failed with {code} ({name}): {meaning}"
