"""How much predicted memory to trust: a limit that real out-of-memory failures pull down and real successes hold up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["FitMargin"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FitMargin:
    """The largest predicted peak that is still worth a trial.

    Attributes:
        limit_bytes: Predicted peak above which a layout is not proposed.
        lowest_oom_bytes: Smallest predicted peak that ran out of memory so far.
        highest_fit_bytes: Largest predicted peak that ran.
    """

    limit_bytes: float
    lowest_oom_bytes: float = float("inf")
    highest_fit_bytes: float = 0.0

    @property
    def allowed_bytes(self) -> float:
        """Below every failure seen, but never below a success: where both contradict, the success is the fact."""
        below_failures = self.lowest_oom_bytes * (1.0 - _STEP_BELOW_OOM)
        return max(min(self.limit_bytes, below_failures), self.highest_fit_bytes)

    def learn(self, predicted_bytes: float, *, out_of_memory: bool) -> FitMargin:
        """The margin after one more trial."""
        return FitMargin(
            limit_bytes=self.limit_bytes,
            lowest_oom_bytes=min(self.lowest_oom_bytes, predicted_bytes if out_of_memory else float("inf")),
            highest_fit_bytes=max(self.highest_fit_bytes, 0.0 if out_of_memory else predicted_bytes),
        )

    @classmethod
    def after(cls, limit_bytes: float, trials: Iterable[tuple[float, bool]]) -> FitMargin:
        """The margin after trials given as (predicted bytes, ran out of memory)."""
        margin = cls(limit_bytes=limit_bytes)
        for predicted_bytes, out_of_memory in trials:
            margin = margin.learn(predicted_bytes, out_of_memory=out_of_memory)
        return margin


_STEP_BELOW_OOM = 0.02
"""A layout within 2 % of one that ran out is taken to run out too: the predictor's terms are not finer than that."""
