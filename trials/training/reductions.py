"""When the gradients of a rank's stages begin to be reduced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trials.clipping.overlap import Overlap
from trials.distributed.data.optimizer_shard import OptimizerShard


@dataclass(frozen=True, slots=True, kw_only=True)
class Reductions:
    """Tells the shards of a rank when they may start, while backward passes of the step still run.

    Attributes:
        early: Shards of each stage that do not wait until the optimizer takes their gradients.
        overlap: Counts what starts before the last gradient.
    """

    early: Sequence[Sequence[OptimizerShard]]
    overlap: Overlap

    def expect_backward_passes(self, num_left: int) -> None:
        """So many backward passes of the step are to come, through the first stage."""
        for shard in self.early[0]:
            shard.expect_backward_passes(num_left)

    def start(self, stage: int) -> None:
        """The last backward pass of a stage is done."""
        self.overlap.gradient()  # gradients of weights that a schedule computes apart run no hooks
        for shard in self.early[stage]:
            shard.start_reduction()
