"""What summary and advice ask of each trace of a run, and keep: what is not there is worked out one trace after the other."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

from steplens.advice.judging.asking import is_small
from steplens.advice.judging.pricing import summary_of_trace
from steplens.advice.rules.optimizers import backward_spans, gradients_of_steps
from steplens.analysis.cluster.clocks.messages import communication_rows
from steplens.analysis.cluster.cluster_steps import parts_of_steps
from steplens.analysis.cluster.communication_operations import operations_of_trace
from steplens.analysis.cluster.groups.kinds import forward_reductions
from steplens.analysis.cluster.groups.members import described_groups, used_groups
from steplens.analysis.cluster.measured_communication import link_transfers
from steplens.analysis.cluster.side_by_side.contents import rank_contents
from steplens.analysis.data_loading.data_wait import data_wait
from steplens.analysis.device.breakdown import overlap_of_devices
from steplens.analysis.device.idle import idle_causes
from steplens.analysis.device.step_work import mean_work
from steplens.analysis.operators.flops import flops_of_steps
from steplens.analysis.operators.operators import filled_columns, operators_by_name, operators_of_step
from steplens.analysis.operators.recording_cost import find_recording_cost
from steplens.analysis.steps.device_work import exposed_communication
from steplens.analysis.steps.phases import host_phase_names
from steplens.analysis.steps.times import times_of_steps
from steplens.analysis.stored_figures import find_contradictions
from steplens.analysis.tools.parallel import communication_kinds, largest_group
from steplens.analysis.tools.pipeline import sends_and_receives
from steplens.analysis.verdict import communication_by_operation
from steplens.run import findings_of_source
from steplens.trace.building.checks.ranks import describe_recording, recorded_span, step_bounds
from steplens.trace.building.framework import trace_framework
from steplens.trace.not_recorded import recorded_details
from steplens.trace.trace import Trace, answer_name

#: what is asked for with ``Trace.once``
_ONCE: tuple[Callable[[Trace], Any], ...] = (
    times_of_steps,
    host_phase_names,
    operators_by_name,
    operators_of_step,
    findings_of_source,
    describe_recording,
    largest_group,
    communication_kinds,
    parts_of_steps,
    communication_by_operation,
)
#: what keeps its answers itself
_KEEPING: tuple[Callable[[Trace], Any], ...] = (
    filled_columns,
    idle_causes,
    communication_rows,
    exposed_communication,
    sends_and_receives,
    step_bounds,
    recorded_span,
    data_wait,
    backward_spans,
    gradients_of_steps,
    is_small,
    forward_reductions,
    rank_contents,
    mean_work,
    overlap_of_devices,
    recorded_details,
    summary_of_trace,
    operations_of_trace,
    link_transfers,
    described_groups,
    used_groups,
    flops_of_steps,
    find_contradictions,
    find_recording_cost,
    trace_framework,
)


@functools.cache
def asked_names() -> tuple[str, ...]:
    """The names that the answers are kept under."""
    return tuple(name for make in (*_ONCE, *_KEEPING) if (name := answer_name(make)) is not None)


def ask_all(trace: Trace) -> None:
    """Ask a trace for all of it, which it knows from then on. What fails is asked again, and fails, where it matters."""
    for make in _ONCE:
        with contextlib.suppress(Exception):  # the boundary of a question, as of a trace without steps
            trace.once(make)
    for ask in _KEEPING:
        with contextlib.suppress(Exception):
            ask(trace)
