"""Every question that a run answers with a table: one visible list, for the command line, documentation, tests and benchmarks."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

import polars as pl

from steplens.trace.run import Run


@dataclass(frozen=True)
class Analysis:
    """One question.

    Attributes:
        name: of the method of ``Run`` that answers it.
        question: in a few words.
        groups: what ``by`` may be, the default first; empty where the method has no such argument.
    """

    name: str
    question: str
    groups: tuple[str, ...] = ()

    def __call__(self, run: Run, by: str | None = None) -> pl.DataFrame:
        """The answer for one run.

        Args:
            run: the run.
            by: one of ``groups``; None is the first.

        Raises:
            ValueError: ``by`` is none of them.
        """
        if by is not None and by not in self.groups:
            allowed = f"one of {', '.join(self.groups)}" if self.groups else "left out"
            raise ValueError(f"{self.name} by {by!r}: it must be {allowed}")
        method = getattr(run, self.name)
        found: pl.DataFrame = method(by) if by is not None else method()
        return found


#: in the order of the documentation
ANALYSES: tuple[Analysis, ...] = (
    Analysis("steps", "where the time of each step went, on the device and on the host"),
    Analysis("step_trace", "interval, forward and backward, and tail of each step"),
    Analysis("bound", "whether the host or the device limits each step or operator", ("step", "operator")),
    Analysis("idle", "why the device was idle inside each step"),
    Analysis("operators", "which operators took the time", ("name", "category", "shape", "stack", "line", "module")),
    Analysis("shapes", "which operators see new input shapes, and what that costs", ("operator", "step")),
    Analysis(
        "flops", "how much arithmetic, how fast, how close to the device's peak", ("name", "shape", "module", "line", "step")
    ),
    Analysis("kernels", "which device tasks took the time", ("name", "type", "category", "kind")),
    Analysis("storms", "where tasks run shorter than issuing them takes"),
    Analysis("launches", "what launching costs the host, by runtime call"),
    Analysis("queues", "how many launched tasks wait on each stream"),
    Analysis("api_calls", "which runtime calls took the time"),
    Analysis("device_time", "how long each device computed, did something else, and idled"),
    Analysis("device_timeline", "the whole time line of the devices, what of it was exposed, and idle time"),
    Analysis("device_kinds", "which kinds of task ran at once"),
    Analysis("stream_idle", "why each stream idled between two tasks"),
    Analysis("memory", "the peak of each device"),
    Analysis("memory_peak", "what the memory at its peak was used for", ("operator", "module", "line", "phase", "block")),
    Analysis("memory_categories", "what tensors were used for at the peak, as the profiler saw them"),
    Analysis("memory_growth", "whether memory grows from step to step"),
    Analysis("memory_churn", "what is allocated and soon given back", ("step", "operator", "module", "line")),
    Analysis("fragmentation", "what the allocator reserves beyond use"),
    Analysis("communication", "waiting, moving data and overlap", ("operation", "group", "size", "step", "rank")),
    Analysis("communication_operations", "every communication operation of every rank"),
    Analysis("arrivals", "when each rank came to each collective"),
    Analysis("waits", "which rank waited for which"),
    Analysis("pairs", "what each rank sent to each other one"),
    Analysis("links", "what moved over each link, as the communication library measured it"),
    Analysis("overlap", "how much of the communication computing hides"),
    Analysis("ranks", "the steps of all ranks beside each other"),
    Analysis("cluster_steps", "the steps of all ranks as far as they tell of the job's parallelism"),
    Analysis("work", "how much arithmetic every rank does in a step"),
    Analysis("communication_costs", "how long every rank moved data and waited in each step"),
    Analysis("core_types", "which types of operators took the time of AI Cores"),
    Analysis("core_operators", "which operators ran on AI Cores, and their arithmetic as the device counted it"),
    Analysis("ai_cpu_types", "which types of kernels took the time of AI CPUs"),
    Analysis("dynamic_shapes", "how long operators take from step to step, and with how many shapes", ("operator", "kernel")),
    Analysis("pipeline", "the operations of the data pipeline and their queues"),
    Analysis("processors", "how busy the processors were while the data pipeline worked"),
    Analysis("health", "what is wrong with the data itself"),
)

_BY_NAME = {analysis.name: analysis for analysis in ANALYSES}


def find(name: str) -> Analysis:
    """An analysis by its name.

    Raises:
        ValueError: there is none; the message names similar ones.
    """
    found = _BY_NAME.get(name)
    if found is None:
        near = difflib.get_close_matches(name, _BY_NAME, n=3, cutoff=0.5) or sorted(_BY_NAME)
        raise ValueError(f"there is no table {name!r}; there is {', '.join(near)}")
    return found
