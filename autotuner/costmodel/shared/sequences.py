"""Lengths of sequences in the micro-batches of the slowest rank, for each layout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import cache, lru_cache

import numpy as np

from autotuner.core.columns import Floats, LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.workload import Workload
from autotuner.costmodel.shared.batch_shape import BatchShape, batch_shape

_BATCH_FIELDS = (
    "data_parallel_replicate_degree",
    "data_parallel_shard_degree",
    "tensor_parallel_degree",
    "context_parallel_degree",
    "pipeline_parallel_degree",
    "micro_batch_size",
    "shard_level",
    "batch_balance",
    "num_dealing_ranks",
    "sequence_packing",
)
"""Options that the shape of a batch depends on."""


def batch_shapes(x: LayoutColumns, job: Job) -> BatchShape[Floats]:
    """Return the tokens, padding and load imbalance of data-parallel ranks, on average, for every legal layout.

    They are computed once for each combination of the options that they depend on. ``BatchShape`` describes them.
    """
    few, which = x.distinct(*_BATCH_FIELDS)
    rows = zip(*(getattr(few, name).tolist() for name in _BATCH_FIELDS), strict=True)
    found = list(map(_shapes(job.workload, job.cluster.accelerators_per_node), rows))
    columns = {f.name: np.array([getattr(one, f.name) for one in found], np.float64) for f in fields(BatchShape)}
    return BatchShape(**{name: column[which] for name, column in columns.items()})


def with_batch_fields(names: tuple[str, ...], job: Job) -> tuple[str, ...]:
    """Return the given names of columns, plus the options that assign sequences to ranks.

    Use it to find the layouts with equal results. The options are added only if the workload's sequences have different
    lengths. Otherwise they have no effect.
    """
    return names if job.workload.lengths is None else tuple(dict.fromkeys((*names, *_BATCH_FIELDS)))


def tokens_per_sequence(x: LayoutColumns, job: Job) -> Floats | float:
    """Return the number of tokens per sequence that the slowest rank computes, including padding tokens."""
    return float(job.workload.seq_len) if job.workload.lengths is None else batch_shapes(x, job).tokens


def keys_per_token(x: LayoutColumns, job: Job) -> Floats:
    """Return the mean length of the sequence that a token attends to, which decides the time of attention.

    Tokens that a mask or a window hides are included.
    """
    if job.workload.lengths is None:
        return np.full(len(x), float(job.workload.seq_len))
    return batch_shapes(x, job).keys


@lru_cache(maxsize=16)
def _shapes(workload: Workload, devices_per_node: int) -> Callable[[tuple[int, ...]], BatchShape]:
    """Return a function that computes the shape of a workload's batches from the values of ``_BATCH_FIELDS``."""

    @cache
    def shape(values: tuple[int, ...]) -> BatchShape:
        chosen = {name: OPTIONS[name].value_of(value) for name, value in zip(_BATCH_FIELDS, values, strict=True)}
        return batch_shape(Layout(**chosen), workload, devices_per_node)  # type: ignore[arg-type]  # each its own type

    return shape
