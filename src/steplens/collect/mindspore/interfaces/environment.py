"""``MS_PROFILER_OPTIONS``: a whole training is recorded without a change in its script, and analysed at its end."""

from __future__ import annotations

import atexit
import json
import os
import sys
from pathlib import Path
from typing import Any

from steplens.collect.common import log
from steplens.common import json_text

VARIABLE = "MS_PROFILER_OPTIONS"
#: says to children that somebody records already; MindSpore's own profiler reads it too
RUNNING_VARIABLE = "MS_PROFILER_RUN_CONFIG"

#: parameters of the newer interface; with one of them it is meant
_NEWER = {
    "activities", "profiler_level", "aic_metrics", "record_shapes", "export_type", "mstx", "mstx_domain_include",
    "mstx_domain_exclude", "sys_io", "sys_interconnection", "host_sys", "start_profile",
}  # fmt: skip
_EXPERIMENTAL = _NEWER - {"activities", "record_shapes", "start_profile"} | {"l2_cache", "data_simplification"}
#: of the older interface, which the variable does not offer
_NOT_OFFERED = {"hbm_ddr", "pcie", "profiler_level", "data_simplification", "start_profile"}


def on_import() -> None:
    """Begin to record if the variable asks for it. Never raises."""
    text = os.environ.get(VARIABLE)
    if not text:
        return
    try:
        options = json_text.loads(text)
        if not isinstance(options, dict):
            raise ValueError("it is no JSON object")
    except ValueError as error:
        log.error(f"{VARIABLE} cannot be read ({error}); nothing is recorded.")
        return
    start = options.pop("start", False)
    if not isinstance(start, bool):
        log.warning(f"{VARIABLE}: start should be true or false, not {start!r}; nothing is recorded.")
        return
    if not start:
        return
    if "mindspore" in sys.modules:
        log.error(f"{VARIABLE} has started MindSpore's own profiler already; import steplens.mindspore before mindspore.")
        return
    # neither MindSpore, which is imported next, nor a child of this process starts another recording
    del os.environ[VARIABLE]
    os.environ[RUNNING_VARIABLE] = json.dumps({"pid": os.getpid(), **options})
    try:
        _start_profiler(options)
    except Exception as error:  # the boundary to somebody's training
        log.report_failure(VARIABLE, error)


def _start_profiler(options: dict[str, Any]) -> None:
    output = _output_path(options.pop("output_path", None))
    profiler: Any
    if _NEWER & set(options):
        profiler = _newer_profiler(options, output)
    else:
        from steplens.collect.mindspore.interfaces.profiler import Profiler

        for name in sorted(_NOT_OFFERED & set(options)):
            log.warning(f"{VARIABLE}: {name} is an invalid param which doesn't work.")
            del options[name]
        profiler = Profiler(output_path=str(output), **options)
    atexit.register(_finish_profiler, profiler, os.getpid())


def _output_path(value: Any) -> Path:
    if value is None:
        return Path.cwd() / "data"
    if isinstance(value, str) and os.path.isabs(value):
        return Path(value)
    fallback = Path.cwd() / "data"
    log.warning(f"{VARIABLE}: output_path should be an absolute path, not {value!r}; {fallback} is used.")
    return fallback


def _newer_profiler(options: dict[str, Any], output: Path) -> Any:
    from steplens.collect.mindspore.interfaces.experimental import _ExperimentalConfig
    from steplens.collect.mindspore.interfaces.names import AicoreMetrics, ExportType, HostSystem, ProfilerActivity, ProfilerLevel
    from steplens.collect.mindspore.interfaces.profile import profile, tensorboard_trace_handler

    def resolve_names(name: str, kind: Any) -> None:
        if name not in options:
            return
        value = options[name]
        items = value if isinstance(value, list) else [value]
        found = []
        for item in items:
            text = "LevelNone" if item == "None" and kind is ProfilerLevel else str(item)
            match = [member for member in kind if text.lower() in (member.name.lower(), member.value.lower())]
            if match:
                found.append(match[0])
            else:
                log.warning(f"{VARIABLE}: {name} holds {item!r}, which is unknown and left out.")
        if not found:
            del options[name]
        else:
            options[name] = found if isinstance(value, list) or name in ("activities", "export_type", "host_sys") else found[0]

    for name, kind in (("activities", ProfilerActivity), ("profiler_level", ProfilerLevel), ("aic_metrics", AicoreMetrics),
                       ("export_type", ExportType), ("host_sys", HostSystem)):  # fmt: skip
        resolve_names(name, kind)
    accepted = {"activities", "with_stack", "profile_memory", "data_process", "parallel_strategy", "start_profile", "hbm_ddr",
                "pcie", "sync_enable", "record_shapes"}  # fmt: skip
    for name in sorted(set(options) - accepted - _EXPERIMENTAL):
        log.warning(f"{VARIABLE}: {name} has no effect.")
    experimental = _ExperimentalConfig(**{name: value for name, value in options.items() if name in _EXPERIMENTAL})
    handler = tensorboard_trace_handler(str(output))
    accepted_options = {name: value for name, value in options.items() if name in accepted}
    return profile(on_trace_ready=handler, experimental_config=experimental, **accepted_options)


def _finish_profiler(profiler: Any, pid: int) -> None:
    if os.getpid() != pid:
        return
    try:
        if hasattr(profiler, "analyse"):
            profiler.analyse()
        else:
            profiler.stop()
    except Exception as error:  # the program is over; there is nobody to raise to
        log.report_failure(VARIABLE, error)
