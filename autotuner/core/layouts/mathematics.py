"""What says which function a layout trains, so that the verdict of a loss gate is one for all that train the same.

It holds for one layout and for numpy columns of them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

from autotuner.core.layouts.choice import NARROW_PRECISIONS, GradientClip, GradientSync
from autotuner.core.layouts.layout import OPTIONS, Layout

__all__ = ["mathematics", "trains_no_better"]

_CHANGING = {name for name, one in OPTIONS.items() if one.changes_mathematics}

_FIELDS = tuple(name for name, one in OPTIONS.items() if name in _CHANGING or one.qualifies in _CHANGING)

_LESS_IS_SENT: Mapping[str, Callable[[Any, Any], Any]] = {
    "sync_sparsity": operator.ge,
    "sync_top_k": operator.le,
    "sync_period": operator.ge,
    "payload_precision": operator.ge,
}
"""Where a layout sends less than another, or as much, all else being the same."""


def mathematics(x: Layout) -> Mapping[str, Any]:
    """Every number that says which function is trained, by its name.

    Beside the fields themselves: over how many replicas a lossy exchange averages; over how many ranks an early clip
    averages, and how buckets are cut that it takes norms of; over how many ranks a matrix is split that shares a scale
    in 8 bits or fewer.
    """
    is_lossy, clips_early = x.gradient_sync != GradientSync.FULL, x.gradient_clip != GradientClip.POST
    in_buckets = x.gradient_clip == GradientClip.BUCKET
    is_narrow = reduce(operator.or_, (x.precision == one for one in NARROW_PRECISIONS))
    return {
        **{name: getattr(x, name) for name in _FIELDS},
        "replicas": x.data_parallel_replicate_degree * is_lossy,
        "clipping ranks": x.data_parallel_degree * x.context_parallel_degree * clips_early,
        "bucket": x.gradient_bucket_bytes * in_buckets,
        "stages": x.num_stages * in_buckets,
        "split": x.tensor_parallel_degree * (is_narrow | in_buckets),
    }


def trains_no_better(x: Layout, other: Layout) -> Any:
    """Whether ``x`` has the mathematics of ``other``, but for sending less of what it learns, or as much.

    Args:
        x: A layout, or columns; then the answer is a column.
        other: One layout.
    """
    mine, theirs = mathematics(x), mathematics(other)
    compared = [_less_or_equal(name)(mine[name], theirs[name]) for name in mine]
    return reduce(operator.and_, compared)


def _less_or_equal(name: str) -> Callable[[Any, Any], Any]:
    return _LESS_IS_SENT.get(name, operator.eq)
