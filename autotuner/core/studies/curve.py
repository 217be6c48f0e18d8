"""LossCurve: the losses of a training, and when they reached a target.

Every batch is new to the model when its loss is computed, so that losses of a training are those of validation, but for
the noise of a batch. To compare batches of different sizes, a loss is the mean over about as many sequences.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

__all__ = ["LossCurve"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LossCurve:
    """Losses by step.

    Attributes:
        losses: One per step, of the mean over the batch before the step's update.
        step_times_s: One per step.
        global_batch_size: Sequences of a step.
    """

    losses: tuple[float, ...] = ()
    step_times_s: tuple[float, ...] = ()
    global_batch_size: int

    def with_step(self, loss: float, step_time_s: float) -> LossCurve:
        """With one step more."""
        losses, times = (*self.losses, loss), (*self.step_times_s, step_time_s)
        return LossCurve(losses=losses, step_times_s=times, global_batch_size=self.global_batch_size)

    @property
    def num_steps(self) -> int:
        """Steps by now."""
        return len(self.losses)

    @property
    def num_samples(self) -> int:
        """Sequences by now."""
        return self.num_steps * self.global_batch_size

    @property
    def step_time_s(self) -> float:
        """Median of all steps but the first, which allocates and compiles; 0 before there is one."""
        return statistics.median(self.step_times_s[1:] or self.step_times_s or (0.0,))

    def smoothed(self, window_sequences: int) -> tuple[float, ...]:
        """Mean of each step and those before it over about so many sequences; over what there is where that is less."""
        width = max(1, math.ceil(window_sequences / self.global_batch_size))
        return tuple(statistics.fmean(self.losses[max(0, end - width) : end]) for end in range(1, self.num_steps + 1))

    def steps_to(self, target_loss: float, window_sequences: int) -> int | None:
        """Steps after which the mean over a whole window is at the target; None where it never was."""
        width = max(1, math.ceil(window_sequences / self.global_batch_size))
        for number, loss in enumerate(self.smoothed(window_sequences), start=1):
            if number >= width and loss <= target_loss:
                return number
        return None
