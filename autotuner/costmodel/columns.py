"""LayoutColumns: many layouts as numpy columns with the field names of ``Layout``.

A legality rule or a cost formula reads ``x.tensor_parallel_degree`` and does not know whether ``x`` is one layout or a
million of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, TypeAlias, get_type_hints

import numpy as np
import numpy.typing as npt

from autotuner.domain.choice import Choice
from autotuner.domain.layout import LAYOUT_FIELDS, Layout

__all__ = ["Booleans", "Choices", "Floats", "Integers", "LayoutColumns"]

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

    @classmethod
    def from_layouts(cls, layouts: Iterable[Layout]) -> LayoutColumns:
        """One row per layout, in their order."""
        rows = list(layouts)
        return cls.from_values({name: [getattr(row, name) for row in rows] for name in LAYOUT_FIELDS})

    @classmethod
    def from_values(cls, values: Mapping[str, Sequence[Any] | npt.NDArray[Any]]) -> LayoutColumns:
        """Columns from one sequence per field, all equally long; converted to each field's type."""
        return cls(**{name: np.asarray(values[name], dtype=_DTYPES[name]) for name in LAYOUT_FIELDS})

    def __len__(self) -> int:
        return len(self.tensor_parallel_degree)

    def row(self, index: int) -> Layout:
        """The layout of one row."""
        return Layout(**{name: _READERS[name](getattr(self, name)[index]) for name in LAYOUT_FIELDS})

    def take(self, index: npt.NDArray[Any] | slice) -> LayoutColumns:
        """The rows that an index array, a mask or a slice picks."""
        return LayoutColumns(**{name: getattr(self, name)[index] for name in LAYOUT_FIELDS})

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
    def num_stages(self) -> Integers:
        """Pipeline stages, in PyTorch's sense."""
        return self.pipeline_parallel_degree * self.virtual_stages_per_rank


def _dtype(annotation: Any) -> type[np.generic]:
    if annotation is bool:
        return np.bool_
    return np.int8 if issubclass(annotation, Choice) else np.int64


_TYPES = {name: hint for name, hint in get_type_hints(Layout).items() if name in {f.name for f in fields(Layout)}}
_DTYPES = {name: _dtype(hint) for name, hint in _TYPES.items()}
_READERS = {name: (lambda value, hint=hint: hint(int(value))) for name, hint in _TYPES.items()}
