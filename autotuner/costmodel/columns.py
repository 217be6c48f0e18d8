"""LayoutColumns: many layouts as numpy columns with the field names of ``Layout``.

A legality rule or a cost formula reads ``x.tensor_parallel_degree`` and does not know whether ``x`` is one layout or a
million of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, Never, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from autotuner.core.choices import Precision
from autotuner.core.job import Job
from autotuner.core.layout import LAYOUT_FIELDS, OPTIONS, Layout
from autotuner.core.option import Kind
from autotuner.core.rules.legality import illegal
from autotuner.core.rules.rule import Rule

__all__ = [
    "Booleans",
    "Choices",
    "Floats",
    "Integers",
    "LayoutColumns",
    "as_column",
    "broken_rows",
    "is_one_of",
    "joined",
]

Integers: TypeAlias = npt.NDArray[np.int64]
Choices: TypeAlias = npt.NDArray[np.int8]
Booleans: TypeAlias = npt.NDArray[np.bool_]
Floats: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, kw_only=True)
class LayoutColumns:
    """Layouts as columns of equal length, named as in ``Layout``; a ``Choice`` is its integer.

    Degrees are 64 bits wide: products of five of them must not wrap.
    """

    data_parallel_replicate_degree: Integers
    data_parallel_shard_degree: Integers
    tensor_parallel_degree: Integers
    context_parallel_degree: Integers
    expert_parallel_degree: Integers
    pipeline_parallel_degree: Integers
    virtual_stages_per_rank: Integers
    micro_batch_size: Integers
    pipeline_schedule: Choices
    sequence_parallel: Booleans
    shard_level: Choices
    reshard_after_forward: Booleans
    recompute: Choices
    attention_kernel: Choices
    precision: Choices
    fused_norm: Booleans
    first_stage_less_layers: Integers
    last_stage_less_layers: Integers
    loss_parallel: Booleans
    async_tensor_parallel: Booleans
    context_exchange: Choices
    recompute_every: Integers
    gradient_bucket_bytes: Integers
    fp32_gradient_reduce: Booleans
    fp8_recipe: Choices
    compiled: Booleans
    optimizer_kernel: Choices
    offload_activations: Booleans
    collective_algorithm: Choices
    collective_protocol: Choices
    collective_channels: Integers
    extra_slack: Integers
    p2p_transport: Choices
    num_delegates: Integers
    rank_order: Choices
    stage_rotation: Integers
    gradient_sync: Choices
    sync_sparsity: Integers
    sync_chunk: Integers
    sync_top_k: Integers
    sync_period: Integers
    sync_sign: Booleans
    sync_decay_permille: Integers
    payload_precision: Choices
    gradient_clip: Choices
    batch_balance: Choices
    num_dealing_ranks: Integers
    sequence_packing: Booleans
    collective_hierarchy: Choices
    rank_placement: Choices
    pxn: Booleans
    queue_pairs: Integers

    @classmethod
    def from_layouts(cls, layouts: Iterable[Layout]) -> LayoutColumns:
        """One row per layout, in their order."""
        rows = list(layouts)
        return cls.from_values({name: [getattr(row, name) for row in rows] for name in LAYOUT_FIELDS})

    @classmethod
    def from_values(cls, values: Mapping[str, Sequence[Any] | npt.NDArray[Any]]) -> LayoutColumns:
        """Columns from one sequence per field, all equally long; converted to each field's type."""
        return cls(**{name: as_column(name, values[name]) for name in LAYOUT_FIELDS})

    def __len__(self) -> int:
        return len(self.tensor_parallel_degree)

    def row(self, index: int) -> Layout:
        """The layout of one row."""
        values = {name: one.value_of(int(getattr(self, name)[index])) for name, one in OPTIONS.items()}
        return Layout(**values)  # type: ignore[arg-type]  # each field has its own type

    def take(self, index: npt.NDArray[Any] | slice) -> LayoutColumns:
        """The rows that an index array, a mask or a slice picks."""
        return LayoutColumns(**{name: getattr(self, name)[index] for name in LAYOUT_FIELDS})

    def only(self, *names: str, **changed: npt.NDArray[Any]) -> LayoutColumns:
        """These layouts with the named columns alone, derived ones among them; reading another raises.

        What is computed once for all rows that agree in some columns is handed these, so that it reads no other.
        Columns given by keyword stand in the place of the layouts' own.
        """
        return _SomeColumns({name: getattr(self, name) for name in names} | changed)

    def distinct(self, *names: str) -> tuple[LayoutColumns, Integers]:
        """One row for each combination of the named columns that occurs, and for every row the number of its own.

        Those rows have the named columns only.
        """
        if len(self) == 1:
            return self.only(*names), np.zeros(1, dtype=np.int64)
        columns = [getattr(self, name) for name in names]
        # numbers, most of which are degrees, change together and seldom: a space crosses them with all choices
        num_codes, code = _codes_of_runs([column for column in columns if column.dtype == np.int64], len(self))
        for column in columns:
            if column.dtype == np.int64 or not column.any():
                continue
            count = int(column.max()) + 1
            num_codes, code = num_codes * count, code * count + column
            if num_codes > len(self):  # so that counting them stays cheap
                num_codes, code = _ranks(code)
        num_different, which = _ranks(code)
        first = np.zeros(num_different, dtype=np.int64)
        first[which[::-1]] = np.arange(len(self) - 1, -1, -1)
        return self.only(*names).take(first), which

    # ------------------------------------------------------------ derived, as in Layout
    @cached_property
    def data_parallel_degree(self) -> Integers:
        """Replicas of the model, sharded or not."""
        return self.data_parallel_replicate_degree * self.data_parallel_shard_degree

    @cached_property
    def world_size(self) -> Integers:
        """Ranks."""
        return (
            self.data_parallel_degree
            * self.context_parallel_degree
            * self.tensor_parallel_degree
            * self.pipeline_parallel_degree
        )

    @cached_property
    def pipeline_stride(self) -> Integers:
        """How far apart the ranks of neighbouring pipeline ranks are."""
        inner = self.data_parallel_degree * self.context_parallel_degree * self.tensor_parallel_degree
        if not self.rank_order.any():
            return inner
        return np.where(self.rank_order > 0, inner // self.data_parallel_replicate_degree, inner)

    @cached_property
    def element_bytes(self) -> Floats:
        """Bytes of an activation: 4 in fp32, else 2; fp8 multiplies what bf16 stores."""
        return np.where(self.precision == Precision.FP32, 4.0, 2.0)

    @cached_property
    def num_stages(self) -> Integers:
        """Pipeline stages, in PyTorch's sense."""
        return self.pipeline_parallel_degree * self.virtual_stages_per_rank


class _SomeColumns(LayoutColumns):
    """Layouts of which only some columns are known."""

    def __init__(self, columns: Mapping[str, npt.NDArray[Any]]) -> None:
        self.__dict__.update(columns)

    def __getattr__(self, name: str) -> Never:
        raise AttributeError(f"{name} is not among {', '.join(self.__dict__)}, on which this computation may depend")

    def __len__(self) -> int:
        return len(next(iter(self.__dict__.values()), ()))

    def take(self, index: npt.NDArray[Any] | slice) -> LayoutColumns:
        return _SomeColumns({name: column[index] for name, column in self.__dict__.items()})


def joined(tables: Sequence[LayoutColumns]) -> LayoutColumns:
    """The rows of all tables, one table after the other."""
    return LayoutColumns(**{name: np.concatenate([getattr(t, name) for t in tables]) for name in LAYOUT_FIELDS})


def as_column(name: str, values: Sequence[Any] | npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Values of one field, as wide as its column is."""
    return np.asarray(values, dtype=_DTYPES[OPTIONS[name].kind])


def broken_rows(x: LayoutColumns, job: Job, rules: Iterable[Rule]) -> Booleans:
    """Which rows break any of the rules, each of which is written for one layout with operators that columns have."""
    verdict = illegal(cast("Layout", x), job, rules)
    return np.broadcast_to(np.asarray(verdict, dtype=np.bool_), (len(x),))  # a rule of the job alone gives one answer


def is_one_of(column: Choices, members: Iterable[int]) -> Booleans:
    """Where a field has one of the values."""
    return reduce(np.logical_or, (column == member for member in members))


_MAX_COUNTED = 1 << 24
"""Values below this are told apart by counting, which is faster than sorting."""


def _codes_of_runs(columns: list[Integers], size: int) -> tuple[int, Integers]:
    """A number for each row, equal where all columns are, and one more than the highest; told apart run by run."""
    ends = reduce(
        np.logical_or, (column[1:] != column[:-1] for column in columns), np.zeros(max(0, size - 1), np.bool_)
    )
    starts = np.concatenate([np.zeros(min(1, size), np.int64), np.flatnonzero(ends) + 1])
    num_codes, code = 1, np.zeros(len(starts), dtype=np.int64)
    for column in columns:
        count, ranks = _ranks(column[starts])
        num_codes, code = _ranks(code * count + ranks)
    return num_codes, np.repeat(code, np.diff(starts, append=size))


def _ranks(values: npt.NDArray[Any]) -> tuple[int, Integers]:
    """How many different values there are, none below zero, and the number of each value among them."""
    highest = int(values.max(initial=0))
    if highest >= _MAX_COUNTED:
        present, ranks = np.unique(values, return_inverse=True)
        return len(present), ranks.astype(np.int64)
    index = values.astype(np.intp, copy=False)
    occurs = np.zeros(highest + 1, dtype=np.bool_)
    occurs[index] = True
    number = np.cumsum(occurs) - 1
    return int(number[-1]) + 1, number[index]


_DTYPES: Mapping[Kind, type[np.generic]] = {
    Kind.DEGREE: np.int64,
    Kind.COUNT: np.int64,
    Kind.SWITCH: np.bool_,
    Kind.CHOICE: np.int8,
}
