"""What the file of a baseline holds (docs/compare.md): JSON, whose types and bounds are checked as it is read."""

from __future__ import annotations

from typing import Annotated

import msgspec

from steplens.comparison.baselines.bounds import (
    MOST_RANKS,
    MOST_RECORDINGS,
    MOST_ROWS,
    Amount,
    Amounts,
    Count,
    Counts,
    Share,
    SomeAmounts,
    Text,
    Texts,
    Wholes,
)
from steplens.comparison.baselines.causes_document import CausesDocument

FORMAT = "steplens baseline"
#: a file of a later version is refused; within a version members may be added
VERSION = 1


class Head(msgspec.Struct):
    """What is read first: whether the rest can be."""

    format: str
    version: Count


class Samples(msgspec.Struct):
    """One kind of time of the items of a recording: ``noise.Sample`` by name. An item that is not named took no time."""

    name: Texts
    usual: Amounts
    sampling_variance: Annotated[list[Annotated[float, msgspec.Meta(ge=0, le=1e36)]], msgspec.Meta(max_length=MOST_ROWS)]
    spread: Amounts
    block: Counts


class HeldDocument(msgspec.Struct):
    """``held_memory.measure_peak`` of a recording."""

    device_type: Texts
    name: Texts
    bytes: Amounts


class RecordingDocument(msgspec.Struct):
    """A recording: ``recordings.Recording``, and of it what ``side.Figures`` has of each recording.

    Attributes:
        steps: window, step, start_ns and step_time_ns of each step that figures are of.
        usual: window, step, step_time_ns and the parts of the usual ones.
        samples: kind of time -> times of items; kinds that were not recorded are missing.
        held: what holds memory at its peak; none where that was not recorded.
    """

    ranks: Annotated[int, msgspec.Meta(ge=1, le=MOST_RANKS)]
    waited_share: Share | None
    memory_peak: Count | None
    steps: dict[Text, SomeAmounts]
    usual: dict[Text, SomeAmounts]
    samples: dict[Text, Samples]
    held: HeldDocument | None = None


class CircumstancesDocument(msgspec.Struct):
    """``circumstances.Circumstances``."""

    ranks: Annotated[list[Annotated[int, msgspec.Meta(ge=-1, le=1 << 31)]], msgspec.Meta(max_length=MOST_RANKS)]
    begin_ns: Count
    identities: Texts
    devices: Texts
    machine: dict[Text, Texts]
    options: dict[Text, Texts]
    steps_ns: Amounts
    waited_share: Share
    doubtful_steps: Texts
    problems: Annotated[list[tuple[Text, Text]], msgspec.Meta(max_length=MOST_ROWS)]
    clock_mhz: dict[Text, Amounts] = msgspec.field(default_factory=dict)
    recorded_calls: Amount = 0.0
    recording_ns: Amount = 0.0


class Items(msgspec.Struct):
    """Operators or device tasks with their calls and time in all steps; ``input_shapes`` where they are told apart by these."""

    name: Texts
    calls: Wholes
    time_ns: Wholes
    input_shapes: Texts | None = None


class Paths(msgspec.Struct):
    """``call_tree.CallPaths.calls``, with sums over all steps."""

    name: Texts
    module: Texts
    depth: Counts
    parent: Wholes
    calls: Wholes
    self_ns: Wholes
    device_ns: Wholes


class SideDocument(msgspec.Struct):
    """``side.Side``, with all of its figures.

    Attributes:
        steps: over how many steps operators, tasks and paths are added up: sums are whole numbers, and means are not.
        causes: what tells the causes of a change; none of a file that an earlier steplens saved.
    """

    has_device: bool
    circumstances: CircumstancesDocument
    recordings: Annotated[list[RecordingDocument], msgspec.Meta(min_length=1, max_length=MOST_RECORDINGS)]
    steps: Annotated[int, msgspec.Meta(ge=1, le=1 << 40)]
    kernel_ns: Count
    operators: Items
    shapes: Items | None
    tasks: Items
    paths: Paths
    causes: CausesDocument | None = None


class Program(msgspec.Struct):
    """Which version of the program was recorded, as far as the place says where the baseline was saved.

    Attributes:
        commits: of git, those of what was added to a baseline later behind that of what it began with.
        changed: whether files had other content than in one of these commits.
    """

    commits: Texts = []
    changed: bool = False


class BaselineDocument(msgspec.Struct):
    """The file.

    Attributes:
        steplens: the version that saved it.
    """

    format: str
    version: Count
    steplens: Text
    program: Program
    side: SideDocument
