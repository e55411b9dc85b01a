"""What the file of a baseline holds (docs/compare.md): JSON, whose types and bounds are checked as it is read."""

from __future__ import annotations

from typing import Annotated

import msgspec

FORMAT = "steplens baseline"
#: a file of a later version is refused; within a version members may be added
VERSION = 1

#: rows of a table
_MOST_ROWS = 1_000_000
_MOST_RECORDINGS = 10_000
_MOST_RANKS = 1 << 20

Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
Whole = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]
#: times and calls of a step: no time is negative but by damage of a recording
Amount = Annotated[float, msgspec.Meta(ge=-1e18, le=1e18)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Text = Annotated[str, msgspec.Meta(max_length=100_000)]
Texts = Annotated[list[Text], msgspec.Meta(max_length=_MOST_ROWS)]
Amounts = Annotated[list[Amount], msgspec.Meta(max_length=_MOST_ROWS)]
Counts = Annotated[list[Count], msgspec.Meta(max_length=_MOST_ROWS)]
Wholes = Annotated[list[Whole], msgspec.Meta(max_length=_MOST_ROWS)]
SomeAmounts = Annotated[list[Whole | Amount | None], msgspec.Meta(max_length=_MOST_ROWS)]


class Head(msgspec.Struct):
    """What is read first: whether the rest can be."""

    format: str
    version: Count


class Samples(msgspec.Struct):
    """One kind of time of the items of a recording: ``noise.Sample`` by name. An item that is not named took no time."""

    name: Texts
    usual: Amounts
    sampling_variance: Annotated[list[Annotated[float, msgspec.Meta(ge=0, le=1e36)]], msgspec.Meta(max_length=_MOST_ROWS)]
    spread: Amounts
    block: Counts


class RecordingDocument(msgspec.Struct):
    """A recording: ``recordings.Recording``, and of it what ``side.Figures`` has of each recording.

    Attributes:
        steps: window, step, start_ns and step_time_ns of each step that figures are of.
        usual: window, step, step_time_ns and the parts of the usual ones.
        samples: kind of time -> times of items; kinds that were not recorded are missing.
    """

    ranks: Annotated[int, msgspec.Meta(ge=1, le=_MOST_RANKS)]
    waited_share: Share | None
    memory_peak: Count | None
    steps: dict[Text, SomeAmounts]
    usual: dict[Text, SomeAmounts]
    samples: dict[Text, Samples]


class CircumstancesDocument(msgspec.Struct):
    """``circumstances.Circumstances``."""

    ranks: Annotated[list[Annotated[int, msgspec.Meta(ge=-1, le=1 << 31)]], msgspec.Meta(max_length=_MOST_RANKS)]
    begin_ns: Count
    identities: Texts
    devices: Texts
    machine: dict[Text, Texts]
    options: dict[Text, Texts]
    steps_ns: Amounts
    waited_share: Share
    doubtful_steps: Texts
    problems: Annotated[list[tuple[Text, Text]], msgspec.Meta(max_length=_MOST_ROWS)]
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
    """

    has_device: bool
    circumstances: CircumstancesDocument
    recordings: Annotated[list[RecordingDocument], msgspec.Meta(min_length=1, max_length=_MOST_RECORDINGS)]
    steps: Annotated[int, msgspec.Meta(ge=1, le=1 << 40)]
    kernel_ns: Count
    operators: Items
    shapes: Items | None
    tasks: Items
    paths: Paths


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
