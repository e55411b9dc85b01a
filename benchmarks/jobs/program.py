"""What the ranks of a pipeline stage call in a step, in order: forward and backward of micro-batches as they alternate (1F1B)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.jobs import faults, operators
from benchmarks.jobs.layout import Layout
from benchmarks.jobs.operators import ELEMENT_BYTES, LAYER_PARAMETERS, TOKENS, WIDTH, Operator

MAIN, ENGINE = 0, 1

#: streams of a device
COMPUTE, TENSOR, DATA, WORLD, SEND_NEXT, RECEIVE_PREVIOUS, SEND_PREVIOUS, RECEIVE_NEXT = 7, 20, 24, 28, 32, 36, 40, 44

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, SEND, RECEIVE = "allreduce", "_allgather_base", "_reduce_scatter_base", "send", "recv"

#: ns that a call lies inside of the call around it, on both sides
NESTED_NS = 900
_GAP_NS, _BEFORE_NS, _LAUNCH_NS, _BEHIND_NS = 4_000, 2_500, 4_500, 1_500


@dataclass(frozen=True)
class Kernel:
    """Work of a device that computes or copies; ``direction`` says what it is part of, ``operator`` what launched it."""

    name: str
    usual_ns: int
    direction: str
    operator: str
    copied_bytes: int = 0


@dataclass(frozen=True)
class Transfer:
    """Part of a rank in a message; ``peer``: +1 to or from the next stage, -1 the one before, 0 of a group of more."""

    operation: str
    stream: int
    elements: int
    dtype: str = "BFloat16"
    peer: int = 0

    @property
    def size(self) -> int:
        return self.elements * (4 if self.dtype == "Float" else ELEMENT_BYTES)


@dataclass(frozen=True)
class Call:
    """One outermost call of a host thread.

    Attributes:
        names: its nested calls, from outside to inside.
        work: what it launches.
        batch: number of the micro-batch; -1 outside of them.
        stream: where its work goes.
        gap_ns: usually, from the end of the call before it to its beginning.
        host_ns: how long the host works in it, nothing launched.
        thread: MAIN or ENGINE.
        annotation: it is a range, no operator.
        sequence: number of the node that it makes (forward), of the step.
        shapes: of its inputs.
        after: streams that the work which computes waits for, from here on.
        holds: the work that computes waits for this from here on.
        waits: the host waits until the stream has nothing to do.
        sleeps: the host sleeps in front of it where a fault says so.
    """

    names: tuple[str, ...]
    work: Kernel | Transfer | None = None
    batch: int = -1
    stream: int = COMPUTE
    gap_ns: int = _GAP_NS
    host_ns: int = 0
    thread: int = MAIN
    annotation: bool = False
    sequence: int | None = None
    shapes: tuple[tuple[int, ...], ...] = ()
    after: tuple[int, ...] = ()
    holds: bool = False
    waits: bool = False
    sleeps: bool = False

    @property
    def before_ns(self) -> int:
        """From its beginning to that of the launch."""
        return len(self.names) * NESTED_NS + (_BEFORE_NS if self.work is not None else 0)

    @property
    def launch_ns(self) -> int:
        return _LAUNCH_NS if self.work is not None else self.host_ns + (1_000 if self.waits else 0)

    @property
    def whole_ns(self) -> int:
        return self.before_ns + self.launch_ns + _BEHIND_NS + max(len(self.names) - 1, 0) * NESTED_NS


@dataclass(frozen=True)
class Span:
    """A range around calls, ``first`` to ``last``: it begins ``lead_ns`` before and ends ``tail_ns`` behind them."""

    category: str
    name: str
    thread: int
    first: int
    last: int
    lead_ns: int
    tail_ns: int
    #: of a node of backward: what it answers to
    sequence: int | None = None


@dataclass
class Program:
    """The calls of a step, the ranges around them, and where the parts of the step are.

    Attributes:
        forwards, backwards: first and last call of each pass, in order.
    """

    stage: int
    calls: list[Call] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    forwards: list[tuple[int, int]] = field(default_factory=list)
    backwards: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True)
class Model:
    """What is trained, and how.

    Attributes:
        layers: of each stage.
        operators_per_layer: None for all that a layer has.
        batches: micro-batches of a step; as many as stages where it is None, and at least four.
        buckets: gradient collectives of a step, at most.
        shards: gradients are reduced and scattered and parameters gathered, in place of all-reduces.
    """

    layers: int = 2
    operators_per_layer: int | None = None
    batches: int | None = None
    buckets: int = 4
    shards: bool = False

    def batches_on(self, layout: Layout) -> int:
        """How many micro-batches a step has."""
        return self.batches or max(4, layout.pipeline)


#: ns by which ranges begin in front of their first call, the outer the more
_STEP_LEAD, _PART_LEAD, _NODE_LEAD = 2_400, 1_500, 900


#: the range that PyTorch opens around a collective, by its name
_RANGES = {ALL_REDUCE: "all_reduce", ALL_GATHER: "_all_gather_base", REDUCE_SCATTER: "_reduce_scatter_base"}
_OPERATORS = {
    ALL_REDUCE: "c10d::allreduce_",
    ALL_GATHER: "c10d::_allgather_base_",
    REDUCE_SCATTER: "c10d::_reduce_scatter_base_",
    SEND: "c10d::send",
    RECEIVE: "c10d::recv_",
}
#: calls around the launch of a message: of c10d, the one that describes it, the range
DESCRIBES, RANGE = 1, 2


class _Builder:
    def __init__(self, model: Model, layout: Layout, stage: int) -> None:
        self.model, self.layout, self.stage = model, layout, stage
        self.program = Program(stage)
        self.is_first, self.is_last = stage == 0, stage == layout.pipeline - 1
        self.batches = model.batches_on(layout)
        self.sequence = 0
        #: per micro-batch, what its backward answers to: operator, sequence number, whether it is reduced, layer
        self.pending: dict[int, list[tuple[Operator, int, bool, int]]] = {}

    def add(self, call: Call) -> int:
        self.program.calls.append(call)
        return len(self.program.calls) - 1

    def span(self, name: str, first: int, *, lead: int = _PART_LEAD, category: str = "user_annotation", thread: int = MAIN,
             sequence: int | None = None) -> None:  # fmt: skip
        last = len(self.program.calls) - 1
        self.program.spans.append(Span(category, name, thread, first, last, lead, lead // 2, sequence))

    def build(self) -> Program:
        loader = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        self.add(Call((loader,), gap_ns=30_000, host_ns=400_000, annotation=True))
        copy = Kernel("Memcpy HtoD (Pinned -> Device)", 9_000, "data", "aten::copy_", TOKENS * 8)
        self.add(Call(("aten::to", "aten::_to_copy", "aten::copy_"), copy, shapes=((TOKENS,),)))
        if self.model.shards and self.layout.data > 1:
            elements = self.model.layers * LAYER_PARAMETERS // self.layout.data
            self._communicate(Transfer(ALL_GATHER, DATA, elements), holds=True)
        for is_forward, batch in _one_forward_one_backward(self.layout.pipeline, self.stage, self.batches):
            (self._forward if is_forward else self._backward)(batch)
        self._optimizer()
        self.program.spans.append(
            Span("user_annotation", "ProfilerStep#", MAIN, 0, len(self.program.calls) - 1, _STEP_LEAD, _STEP_LEAD)
        )
        return self.program

    def _communicate(self, work: Transfer, *, batch: int = -1, thread: int = MAIN, holds: bool = False, gap_ns: int = _GAP_NS,
                     shape: tuple[int, ...] | None = None) -> None:  # fmt: skip
        if work.peer:
            arrow = "->" if work.operation == SEND else "<-"
            what = f"{work.operation} {self.stage}{arrow}{self.stage + work.peer}"
        else:
            what = _RANGES[work.operation]
        names = (_OPERATORS[work.operation], "record_param_comms", f"nccl:{what}")
        shapes = (shape or (work.elements,),)
        self.add(Call(names, work, batch, work.stream, gap_ns, thread=thread, holds=holds, shapes=shapes))

    def _message(self, operation: str, stream: int, peer: int, holds: bool) -> None:
        work = Transfer(operation, stream, TOKENS * WIDTH, peer=peer)
        self._communicate(work, holds=holds, gap_ns=9_000, shape=(TOKENS, WIDTH))

    def _forward(self, batch: int) -> None:
        if not self.is_first:
            self._message(RECEIVE, RECEIVE_PREVIOUS, -1, holds=True)
        first = len(self.program.calls)
        pending = self.pending.setdefault(batch, [])
        if self.is_first:
            self._operator(operators.EMBEDDING, batch, pending, False, -1, gap_ns=12_000)
        for layer in range(self.model.layers):
            for place, operator in operators.layer_operators(self.model.operators_per_layer):
                self._operator(operator, batch, pending, place in operators.REDUCED, layer)
        for operator in operators.HEAD if self.is_last else ():
            self._operator(operator, batch, pending, False, self.model.layers)
        self.program.forwards.append((first, len(self.program.calls) - 1))
        self.span("DistributedDataParallel.forward", first)
        if not self.is_last:
            self._message(SEND, SEND_NEXT, 1, holds=False)

    def _operator(
        self, operator: Operator, batch: int, pending: list[tuple[Operator, int, bool, int]], reduced: bool, layer: int,
        gap_ns: int = _GAP_NS,
    ) -> None:  # fmt: skip
        kernel = Kernel(operator.kernel, operator.kernel_ns, faults.FORWARD, operator.name)
        sequence = self.sequence if operator.node else None
        self.add(Call(operator.calls, kernel, batch, gap_ns=gap_ns, sequence=sequence, shapes=operator.shapes))
        if operator.node:
            pending.append((operator, self.sequence, reduced, layer))
            self.sequence += 1
        if reduced and self.layout.tensor > 1:
            self._tensor_reduction(MAIN, batch)

    def _tensor_reduction(self, thread: int, batch: int) -> None:
        work = Transfer(ALL_REDUCE, TENSOR, TOKENS * WIDTH)
        self._communicate(work, batch=batch, thread=thread, holds=True, shape=(TOKENS, WIDTH))

    def _backward(self, batch: int) -> None:
        if not self.is_last:
            self._message(RECEIVE, RECEIVE_NEXT, 1, holds=True)
        first = len(self.program.calls)
        if self.is_last:
            kernel = Kernel(operators.elementwise("at::native::FillFunctor<float>", 1), 1_500, faults.BACKWARD, "aten::fill_")
            self.add(Call(("aten::ones_like", "aten::fill_"), kernel, batch, gap_ns=25_000))
        last_batch = batch == self.batches - 1
        nodes = self.pending.pop(batch)[::-1]
        for place, (operator, sequence, reduced, layer) in enumerate(nodes):
            begin = len(self.program.calls)
            for number, (name, kernel_name, kernel_ns) in enumerate(operator.backward):
                gap = 40_000 if place == 0 and number == 0 else _GAP_NS
                work = Kernel(kernel_name, kernel_ns, faults.BACKWARD, name)
                self.add(Call((name,), work, batch, gap_ns=gap, thread=ENGINE, shapes=operator.shapes[:2]))
                # the gradient of the weights does not wait for that of the input, which is reduced
                if number == 0 and reduced and self.layout.tensor > 1:
                    self._tensor_reduction(ENGINE, batch)
            self.span(operator.node, begin, lead=_NODE_LEAD // 2, category="cpu_op", thread=ENGINE, sequence=sequence)
            name = f"autograd::engine::evaluate_function: {operator.node}"
            self.span(name, begin, lead=_NODE_LEAD, category="cpu_op", thread=ENGINE, sequence=sequence)
            ends_layer = place + 1 == len(nodes) or nodes[place + 1][3] != layer
            if last_batch and ends_layer and layer < self.model.layers and self.layout.data > 1:
                self._reduce_gradients(layer)
        self.program.backwards.append((first, len(self.program.calls) - 1))
        if not self.is_first:
            self._message(SEND, SEND_PREVIOUS, -1, holds=False)

    def _reduce_gradients(self, layer: int) -> None:
        """A bucket, when backward is through its last layer."""
        per_bucket = -(-self.model.layers // self.model.buckets)
        if layer < 0 or layer % per_bucket:
            return
        layers = min(per_bucket, self.model.layers - layer)
        elements = layers * LAYER_PARAMETERS
        operation = REDUCE_SCATTER if self.model.shards else ALL_REDUCE
        begin = len(self.program.calls)
        add = Kernel(operators.ADD, 40_000, faults.BACKWARD, "aten::add_")
        names = ("torch::autograd::AccumulateGrad", "aten::add_")
        self.add(Call(names, add, self.batches - 1, thread=ENGINE, shapes=((elements,), (elements,))))
        self._communicate(Transfer(operation, DATA, elements), thread=ENGINE)
        name = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
        self.span(name, begin, lead=_NODE_LEAD, category="cpu_op", thread=ENGINE)

    def _optimizer(self) -> None:
        calls, layout = self.program.calls, self.layout
        norm = "void at::native::lpnorm_cleanup<float, (at::native::NormType)1, float, float, float>"
        clip = Kernel(norm, 30_000, "optimizer", "aten::_foreach_norm")
        # clipping waits for all gradients
        streams = (DATA,) if layout.data > 1 else ()
        self.add(Call(("aten::_foreach_norm",), clip, gap_ns=15_000, after=streams))
        if layout.ranks > 1:
            self._communicate(Transfer(ALL_REDUCE, WORLD, 1, "Float"), holds=True)
        begin = len(calls)
        copy = Kernel("Memcpy DtoH (Device -> Pinned)", 1_400, "optimizer", "aten::_local_scalar_dense", 4)
        self.add(Call((), copy, gap_ns=6_000))
        self.add(Call((), gap_ns=300, waits=True))
        self.span("aten::_local_scalar_dense", begin, lead=1_000, category="cpu_op")
        self.span("aten::item", begin, lead=2_000, category="cpu_op")
        begin = len(calls)
        adam = (
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4, ADAM_MODE::ADAMW>>"
        )
        update = Kernel(adam, 150_000, "optimizer", "aten::_fused_adamw_")
        for number in range(min(self.model.layers, 8)):
            gap = 12_000 if number == 0 else _GAP_NS
            self.add(Call(("aten::_fused_adamw_",), update, gap_ns=gap, sleeps=number == 0))
        self.span("Optimizer.step#AdamW.step", begin)
        begin = len(calls)
        zero = Kernel(operators.elementwise("at::native::FillFunctor<c10::BFloat16>", 1), 20_000, "optimizer", "aten::zero_")
        self.add(Call(("aten::zero_",), zero, gap_ns=8_000))
        self.span("Optimizer.zero_grad#AdamW.zero_grad", begin)


def _one_forward_one_backward(stages: int, stage: int, batches: int) -> Sequence[tuple[bool, int]]:
    """(forward or backward, micro-batch) of a stage in order."""
    ahead = min(stages - stage - 1, batches)
    order = [(True, batch) for batch in range(ahead)]
    for batch in range(batches - ahead):
        order += [(True, ahead + batch), (False, batch)]
    return order + [(False, batch) for batch in range(batches - ahead, batches)]


def stage_program(model: Model, layout: Layout, stage: int) -> Program:
    """What the ranks of a stage call in a step."""
    return _Builder(model, layout, stage).build()
