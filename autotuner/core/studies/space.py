"""OptimizerSpace: which optimizers, numbers, batches and data-parallel degrees a study tries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autotuner.core import check
from autotuner.core.runs.optimizer import OptimizerName, OptimizerSettings
from autotuner.errors import InvalidInput

__all__ = ["LEARNING_RATES", "Candidate", "OptimizerSpace", "Range"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Numbers from ``low`` to ``high``, both of them included; equal ones leave nothing to search."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high:
            raise InvalidInput(
                "low", self.low, "must be 0 or more, and no more than high", min(max(self.low, 0), self.high)
            )


LEARNING_RATES: Mapping[OptimizerName, Range] = {
    OptimizerName.ADAMW: Range(low=1e-4, high=3e-2),
    OptimizerName.LAMB: Range(low=1e-3, high=1e-1),
    OptimizerName.MADGRAD: Range(low=1e-4, high=1e-1),
}
"""Where a study looks for a learning rate unless told: around what the optimizers' papers tune.

AdamW: 1e-3 of arXiv 1412.6980, a decade down and one and a half up; LAMB: 5e-4 to 1e-2 of arXiv 1904.00962 for large
models, and a decade more for small ones, whose tensors have small norms; MADGRAD: 2.5e-5 to 2.5e-1 of arXiv 2101.11075,
its inner decades.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerSpace:
    """What a study may try.

    Attributes:
        learning_rate: On a logarithmic scale; None: what suits each optimizer (``LEARNING_RATES``).
        beta1: On a logarithmic scale of what is left to 1.
        beta2: On such a scale, too.
        weight_decay: On a linear scale.
        warmup_steps: Each of these.
        global_batch_sizes: Each of these; empty: the workload's.
        data_parallel_degrees: Each of these; empty: the layout's. Fewer ranks take fewer accelerators.
    """

    optimizers: tuple[OptimizerName, ...] = tuple(OptimizerName)
    learning_rate: Range | None = None
    beta1: Range = Range(low=0.8, high=0.95)
    beta2: Range = Range(low=0.8, high=0.999)
    weight_decay: Range = Range(low=0.0, high=0.1)
    warmup_steps: tuple[int, ...] = (0, 10, 40)
    global_batch_sizes: tuple[int, ...] = ()
    data_parallel_degrees: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for field in ("optimizers", "warmup_steps"):
            if not getattr(self, field):
                raise InvalidInput(field, [], "must name at least one")
        for field in ("global_batch_sizes", "data_parallel_degrees"):
            for value in getattr(self, field):
                if value < 1:
                    raise InvalidInput(field, value, "must be 1 or more", 1)
        for field in ("beta1", "beta2"):
            if getattr(self, field).high >= 1:
                raise InvalidInput(f"{field}.high", getattr(self, field).high, "must be below 1", 0.999)
        if self.learning_rate is not None:
            check.positive(self.learning_rate, "low")

    def learning_rates(self, name: OptimizerName) -> Range:
        """Where to look for that optimizer's."""
        return self.learning_rate or LEARNING_RATES[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One choice of all that a study searches."""

    optimizer: OptimizerSettings
    global_batch_size: int
    data_parallel_degree: int

    def __str__(self) -> str:
        chosen = self.optimizer
        scale = f"batch {self.global_batch_size}, data-parallel degree {self.data_parallel_degree}"
        return f"{chosen.name}, learning rate {chosen.learning_rate:.3g}, {scale}"
