"""StepTimeColumns: the breakdown of a step for many layouts."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import reduce

import numpy as np

from autotuner.core.columns import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimeColumns:
    """``StepTime`` for many layouts: seconds by part."""

    matrix_s: Floats
    attention_s: Floats
    pointwise_s: Floats
    host_s: Floats
    recompute_s: Floats
    offload_s: Floats
    tensor_communication_s: Floats
    context_communication_s: Floats
    expert_communication_s: Floats
    pipeline_communication_s: Floats
    data_communication_s: Floats
    bubble_s: Floats
    optimizer_s: Floats

    @property
    def total_s(self) -> Floats:
        """The step time: the sum of all parts."""
        return total_s(self.before_data_s, self.data_communication_s, self.bubble_s, self.optimizer_s)

    @property
    def before_data_s(self) -> Floats:
        """The sum of all parts before ``data_communication_s``, which data-parallel ranks do not change."""
        parts: list[Floats] = [getattr(self, name) for name in _BEFORE_DATA]
        return reduce(np.add, parts)  # in order, so that a row's total does not depend on how many rows there are


def total_s(before_data_s: Floats, data_communication_s: Floats, bubble_s: Floats, optimizer_s: Floats) -> Floats:
    """The step time from its last three parts and the sum of those before."""
    return before_data_s + data_communication_s + bubble_s + optimizer_s


_NAMES = tuple(f.name for f in fields(StepTimeColumns))
_BEFORE_DATA = _NAMES[: _NAMES.index("data_communication_s")]
