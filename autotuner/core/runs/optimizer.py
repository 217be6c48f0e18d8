"""OptimizerSettings: which optimizer trains, with its numbers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from autotuner.core import check
from autotuner.core.jobs.stages import ONE_STAGE_SCHEDULES
from autotuner.core.layouts.choice import GradientClip, GradientSync, ShardLevel
from autotuner.core.layouts.layout import Layout
from autotuner.errors import InvalidInput

__all__ = ["OptimizerName", "OptimizerSettings"]


class OptimizerName(StrEnum):
    """An optimizer that the trial job has."""

    ADAMW = "adamw"  # arXiv 1711.05101
    LAMB = "lamb"  # arXiv 1904.00962: the step of each tensor is as long as the tensor's norm says
    MADGRAD = "madgrad"  # arXiv 2101.11075: dual averaging, with the cube root of the summed squares


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerSettings:
    """An optimizer with its numbers.

    Attributes:
        learning_rate: Of every step behind the warm-up.
        beta1: Share of the first moment that stays from step to step; MADGRAD's momentum.
        beta2: Share of the second moment that stays; MADGRAD sums its squares, and has none.
        weight_decay: Share of the parameters, times the learning rate, that each step takes away; LAMB makes it a part
            of the update whose length it sets.
        warmup_steps: Over so many first steps the learning rate rises to its value, by equal parts.
    """

    name: OptimizerName = OptimizerName.ADAMW
    learning_rate: float
    beta1: float = 0.9
    beta2: float = 0.999
    weight_decay: float = 0.01
    warmup_steps: int = 0

    def __post_init__(self) -> None:
        check.positive(self, "learning_rate")
        check.non_negative(self, "weight_decay", "warmup_steps")
        for field in ("beta1", "beta2"):
            share = getattr(self, field)
            if not 0 <= share < 1:
                raise InvalidInput(field, share, "must be 0 or more and below 1", 0.9 if share >= 1 else 0.0)

    def learning_rate_at(self, step: int) -> float:
        """Of one step; the first is step 0."""
        return self.learning_rate * min(1.0, (step + 1) / (self.warmup_steps + 1))

    def refuses(self, layout: Layout) -> str | None:
        """Why it cannot train with the layout, as a sentence; None where it can."""
        if layout.gradient_sync != GradientSync.FULL and self.name is not OptimizerName.ADAMW:
            return f"{layout.gradient_sync.label} exchanges less than gradients, for which only AdamW has been tried"
        if self.name is not OptimizerName.LAMB or _holds_whole_tensors(layout):
            return None
        return (
            "LAMB takes a step as long as the norm of each whole tensor says, and ranks of this layout update parts: "
            "it needs shard level none, no tensor or expert ranks, clipping behind the reduction, and one stage per "
            "rank where replicas have pipelines"
        )


def _holds_whole_tensors(layout: Layout) -> bool:
    """Whether a rank updates each tensor that it holds as a whole, and not as a part of it or of a flat bucket."""
    is_split = layout.tensor_parallel_degree * layout.expert_parallel_degree > 1
    num_losses = layout.data_parallel_degree * layout.context_parallel_degree
    is_flat = num_losses > 1 and layout.pipeline_schedule not in ONE_STAGE_SCHEDULES
    is_clipped_flat = layout.gradient_clip != GradientClip.POST
    return layout.shard_level == ShardLevel.NONE and not (is_split or is_flat or is_clipped_flat)
