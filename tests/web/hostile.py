"""Names that try to be more than names, in every place of a trace that a user or an attacker can fill."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

#: what each of them would do if it were run sets this
FLAG = "steplens_hostile_ran"
_RUN = f"window.{FLAG}=1"

NAMES = (
    f"<img src=x onerror={_RUN}>",
    f"</script><script>{_RUN}</script>",
    f"<!--<script>{_RUN}//-->",
    f"\"><svg onload={_RUN}>",
    f"'-({_RUN})-'",
    f"{{{{constructor.constructor('{_RUN}')()}}}}",
    f"${{{_RUN}}}",
    f"javascript:{_RUN}",
    f"]]><iframe srcdoc='<script>parent.{FLAG}=1</script>'></iframe>",
    "<b id=planted>bold</b><form id=planted action=//evil></form>",
    "\x1b[31mred\x1b[0m\x07",
    "\u202egnp.exe\u2066\u200b",
    "{a|rich}{b}%s&lt;&#60;\\u003cb\\u003e",
    "__proto__",
    "constructor",
    "名前 🎉 שלום",
)  # fmt: skip
LONG = "long" * 250_000
#: ids, classes and tags that only these names could bring
PLANTED = "#planted, main img, main iframe, main script, main svg[onload], main form[action], [onerror], [onload]"


def trace_file(folder: Path) -> Path:
    """A Kineto trace with these names for operators, ranges, modules, frames, tasks, calls, threads, shapes and metadata."""
    events: list[dict[str, Any]] = []

    def add(name: str, category: str, start: float, length: float, tid: int = 7, pid: int = 7, **arguments: Any) -> None:
        events.append(
            {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": start, "dur": length, "args": arguments}
        )

    for step in range(4):
        # one is long enough
        every = (*NAMES, LONG if step == 0 else LONG[:1000])
        start = 1_000 + 100_000 * step
        add(f"ProfilerStep#{step}", "user_annotation", start, 95_000)
        for place, name in enumerate(every):
            at, number = start + 100 + 5_000 * place, 1 + place + 100 * step
            add(name, "user_annotation", at, 4_000)
            ids = {"External id": number, "Input Dims": [[4, 4], name[:200]], "Input type": [name[:200], "float"]}
            add(name, "cpu_op", at + 10, 3_000, **ids)
            add(f"nn.Module: {name[:2000]}_0", "python_function", at + 5, 3_500, **{"Python id": number, "Python parent id": 0})
            add(f"{name[:2000]}.py(3): {name[:2000]}", "python_function", at + 6, 3_400, **{"Python id": 1000 + number})
            add(name, "cuda_runtime", at + 20, 10, correlation=number)
            add(name, "kernel", at + 40, 1_000, tid=5, pid=0, correlation=number, device=0, stream=5, **{"External id": number})
            memory = {"Total Allocated": 10_000 + number, "Bytes": 64, "Device Type": 0, "Device Id": -1, "Addr": number}
            events.append(
                {
                    "ph": "i",
                    "cat": "cpu_instant_event",
                    "s": "t",
                    "name": "[memory]",
                    "pid": 7,
                    "tid": 7,
                    "ts": at + 30,
                    "args": memory,
                }
            )
    for place, name in enumerate(NAMES):
        events.append({"ph": "M", "name": "thread_name", "pid": 7, "tid": 7 + place, "args": {"name": name}})
    described = {"id": 0, "name": NAMES[0], "computeMajor": 8, "computeMinor": 0}
    whole = {
        "schemaVersion": 1, "deviceProperties": [described], NAMES[1]: NAMES[1], "host_name": NAMES[0],
        "distributedInfo": {"backend": NAMES[9], "rank": 0, "world_size": 1}, "traceEvents": events,
    }  # fmt: skip
    folder.mkdir(parents=True)
    path = folder / "trace.json"
    path.write_text(json.dumps(whole))
    return path


#: what a name is as the message of a mark: told apart from operators of that name
MARKED = "mark: {}"


def run_directory(folder: Path) -> Path:
    """A run directory with this trace, and beside it marks and counters with these names as messages, domains, and units."""
    run = folder / "hostile_ascend_pt"
    trace_file(run / "KINETO")
    texts = [[NAMES[-1 - place % len(NAMES)], MARKED.format(name)] for place, name in enumerate((*NAMES, LONG))]
    rows = []
    for number in range(len(texts)):
        # ns; an instant, and a range on a stream
        start = 1_200_000 + 5_000_000 * number
        rows += [(number, 0, start, start, 7, -1), (number, 2, start + 1000, start + 2_000_000, 7, 5)]
    (run / "KINETO" / "marks.bin").write_bytes(
        b"".join(value.to_bytes(8, "little", signed=True) for row in rows for value in row)
    )
    (run / "KINETO" / "marks.json").write_text(json.dumps({"pid": 7, "texts": texts}))
    series = [{"group": name, "name": name, "unit": name, "time_ns": [2_000_000, 90_000_000], "value": [1, 2]} for name in NAMES]
    (run / "KINETO" / "host_samples.json").write_text(json.dumps({"series": series}))
    return run
