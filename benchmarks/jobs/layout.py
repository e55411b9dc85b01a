"""Who is where in a job: data, pipeline and tensor parallelism, hosts, process groups."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

#: as many as a machine of today has
RANKS_PER_HOST = 8


@dataclass(frozen=True)
class Group:
    """A process group: number as PyTorch counts them over the job, what it is for, its ranks."""

    number: int
    description: str
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """Ranks in Megatron's order: tensor parallelism innermost, then data parallelism, pipeline stages outermost."""

    data: int
    pipeline: int
    tensor: int
    ranks_per_host: int = RANKS_PER_HOST

    @property
    def ranks(self) -> int:
        return self.data * self.pipeline * self.tensor

    @property
    def ranks_per_stage(self) -> int:
        return self.data * self.tensor

    @property
    def hosts(self) -> int:
        return -(-self.ranks // self.ranks_per_host)

    def host_of(self, rank: int) -> int:
        return rank // self.ranks_per_host

    def local_rank(self, rank: int) -> int:
        return rank % self.ranks_per_host

    def ranks_of_host(self, host: int) -> list[int]:
        first = host * self.ranks_per_host
        return list(range(first, min(first + self.ranks_per_host, self.ranks)))

    def stage_of(self, rank: int) -> int:
        return rank // self.ranks_per_stage

    def ranks_of_stage(self, stage: int) -> Ints:
        return np.arange(stage * self.ranks_per_stage, (stage + 1) * self.ranks_per_stage)

    def data_index(self, rank: int) -> int:
        return rank % self.ranks_per_stage // self.tensor

    def tensor_index(self, rank: int) -> int:
        return rank % self.tensor

    @cached_property
    def everybody(self) -> Group:
        return Group(0, "default_pg", tuple(range(self.ranks)))

    def data_group(self, rank: int) -> Group:
        """Ranks with the same part of the model."""
        stage, tensor = self.stage_of(rank), self.tensor_index(rank)
        first = stage * self.ranks_per_stage + tensor
        ranks = tuple(range(first, first + self.ranks_per_stage, self.tensor))
        return Group(1 + stage * self.tensor + tensor, "DATA_PARALLEL_GROUP", ranks)

    def tensor_group(self, rank: int) -> Group:
        """Ranks that share a layer."""
        first = rank - self.tensor_index(rank)
        number = 1 + self.pipeline * self.tensor + first // self.tensor
        return Group(number, "TENSOR_MODEL_PARALLEL_GROUP", tuple(range(first, first + self.tensor)))

    def pipeline_group(self, rank: int) -> Group:
        """Ranks that share a micro-batch."""
        first = rank % self.ranks_per_stage
        number = 1 + self.pipeline * self.tensor + self.ranks // self.tensor + first
        return Group(number, "PIPELINE_MODEL_PARALLEL_GROUP", tuple(range(first, self.ranks, self.ranks_per_stage)))

    def groups_of(self, rank: int) -> list[Group]:
        """All groups of a rank that have more than one member."""
        own = [self.everybody, self.data_group(rank), self.tensor_group(rank), self.pipeline_group(rank)]
        return [group for group in own if group is self.everybody or len(group.ranks) > 1]


def choose_layout(ranks: int, ranks_per_host: int = RANKS_PER_HOST) -> Layout:
    """A usual layout of so many ranks: tensor parallelism inside a host, at least two ranks of data parallelism.

    8 ranks are 2 x 4 x 1 (data x pipeline x tensor), 64 are 2 x 4 x 8, 1024 are 16 x 8 x 8.
    """
    sizes = (8, 4, 2, 1)
    tensor = next(size for size in sizes if ranks % size == 0 and size <= ranks_per_host and (size == 1 or ranks // size >= 8))
    rest = ranks // tensor
    most = 8 if rest >= 64 else 4
    pipeline = next(size for size in sizes if size <= most and rest % size == 0 and (size == 1 or rest // size >= 2))
    return Layout(rest // pipeline, pipeline, tensor, ranks_per_host)


def parse_layout(text: str, ranks: int | None, ranks_per_host: int = RANKS_PER_HOST) -> Layout:
    """``DATAxPIPELINExTENSOR``, such as ``2x4x1``."""
    data, pipeline, tensor = (int(part) for part in text.split("x"))
    layout = Layout(data, pipeline, tensor, ranks_per_host)
    if min(data, pipeline, tensor) < 1 or (ranks is not None and layout.ranks != ranks):
        raise ValueError(f"a layout of {text} has {layout.ranks} ranks, not {ranks}")
    return layout
