"""The device waits for its input: it computes nothing while a batch is copied to it out of pinned memory."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from steplens.advice.facts import Facts
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.rule import EVERY_ACCELERATOR, Rule
from steplens.advice.rules.tools.common import exposed, per_step, source_lines, steps_of, torch_module
from steplens.analysis.tools.names import containing, distinct
from steplens.trace.health import KERNEL_TIMES, STEP_DEVICE_TIMES
from steplens.trace.schema import KIND_COPY

#: Kineto's, ROCm's and CANN's names of a copy from the host
FROM_HOST = r"(?i)HtoD|HostToDevice|host.to.device"
#: what is no matter of when it is copied, but of the memory it is copied from: ``pageable_copies`` speaks of it
_PAGEABLE = "(?i)pageable"
#: smaller ones cost their launch and not their bytes: ``small_copies`` speaks of them
_LEAST_BYTES = 64 << 10
_LEAST_SHARE = 0.03


def judge(facts: Facts) -> Iterator[Finding]:
    """Copies of more than 64 KiB from the host, as far as the device neither computes nor communicates meanwhile.

    Copied one step ahead and on a stream of its own, a batch arrives beside the computing of the step before it: at most as much
    is saved as there is computing to hide it behind. Copies out of pageable memory cannot run beside anything.
    """
    if not facts.step_ns:
        return
    copying = facts.tasks.filter((pl.col("kind") == KIND_COPY) & (pl.col("bytes") > _LEAST_BYTES))
    known = distinct(copying["name"])
    pageable = set(containing(known, _PAGEABLE))
    copies = copying.filter(pl.col("name").is_in([name for name in containing(known, FROM_HOST) if name not in pageable]))
    if copies.is_empty():
        return
    alone = exposed(facts, copies)
    if alone < _LEAST_SHARE * facts.step_ns:
        return
    hidden = min(alone, facts.median("computing_ns"))
    length = int(copies["duration_ns"].sum())
    yield Finding(
        rule=RULE.name,
        confidence=0.7,
        evidence=(
            Evidence("copying_input_alone", alone, "ns", steps_of(copies), source_lines(facts, copies)),
            Evidence("copied_input", per_step(facts, copies, "bytes"), "bytes"),
            Evidence("input_bandwidth", int(copies["bytes"].sum()) / max(length, 1), "GB/s", per_step=False),
        ),
        saving=Saving(0.0, 0.8 * hidden, hidden),
        step_ns=facts.step_ns,
        part="exposed_copy_ns",
        values={"module": torch_module(facts.device)},
    )


RULE = Rule("exposed_copies", judge, (KERNEL_TIMES, STEP_DEVICE_TIMES), devices=EVERY_ACCELERATOR)
