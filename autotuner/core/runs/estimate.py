"""TrialEstimate: what a trial on fewer ranks than its job has is ranked by. Never a measurement."""

from __future__ import annotations

from dataclasses import dataclass

from autotuner.core import check
from autotuner.core.runs.footprint import Footprint
from autotuner.core.runs.full_size import FullSizeEstimate

__all__ = ["TrialEstimate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialEstimate:
    """What a trial's layout would reach at full size, by all that the trials of its sweep have told so far.

    Attributes:
        full_size: Step time and memory with their intervals; what of them was measured.
        tokens_per_s: Of the whole job, at the expected step time.
        mfu: The same, over the reference peak of as many ranks as the job has.
        num_trial_ranks: Ranks that the trial ran on.
        num_ranks: Ranks of the job.
        is_simulated: Nothing ran: the trial was simulated.
        footprint: What the whole job takes beside time; None in records older than this field.
    """

    full_size: FullSizeEstimate
    tokens_per_s: float
    mfu: float
    num_trial_ranks: int
    num_ranks: int
    is_simulated: bool = False
    footprint: Footprint | None = None

    def __post_init__(self) -> None:
        check.positive(self, "tokens_per_s", "mfu", "num_trial_ranks", "num_ranks")

    @property
    def step_time_s(self) -> float:
        """Expected seconds of a step at full size."""
        return self.full_size.step_time_s

    @property
    def step_time_error_s(self) -> float:
        """Half the 95 % interval of the step time beside those of its sweep's other trials: what an order rests on."""
        return self.full_size.order_error_s

    @property
    def said(self) -> str:
        """Where it comes from, as every place says it that shows it."""
        trial = "simulated trial" if self.is_simulated else "trial"
        return f"estimated from a {trial} on {self.num_trial_ranks} of {self.num_ranks} ranks"
