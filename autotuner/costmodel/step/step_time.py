"""StepTimeColumns: the breakdown of a step for many layouts."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import reduce

import numpy as np

from autotuner.costmodel.columns import Floats

__all__ = ["StepTimeColumns"]


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
        parts: list[Floats] = [getattr(self, f.name) for f in fields(self)]
        return reduce(np.add, parts)  # in order, so that a row's total does not depend on how many rows there are
