"""Observation: one step as one rank of a pipeline saw it, told to all ranks in a few numbers."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from autotuner.schedules.actions import Kind

_KEPT_PASSES = 32
"""Of which the time of a pass is the median (the ring buffer of PipeMorph, arXiv 2504.19232)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What a rank measured in a step.

    Attributes:
        stage: Its place in the pipeline.
        lane: Which of the ranks of that place: messages go between those of one lane.
        forward_s: Median of its last 32 forward passes, of this step and those before; as the next two.
        input_s: Of backward passes for inputs, or of whole ones.
        weight_s: Of backward passes for weights; 0 where there are none.
        micro_batch_s: Medians of this step alone, summed: all passes of one micro-batch.
        from_previous_s: Shortest time from send to receive of what the rank before sent; None where none was seen.
        from_next_s: Of what the rank behind sent.
        lost_previous: Whether nothing passes between it and the rank before any more, but through delegates.
        lost_next: Of the rank behind.
    """

    stage: int
    lane: int = 0
    forward_s: float
    input_s: float = 0.0
    weight_s: float = 0.0
    micro_batch_s: float
    from_previous_s: float | None = None
    from_next_s: float | None = None
    lost_previous: bool = False
    lost_next: bool = False

    def numbers(self) -> list[float]:
        """As it is told: as many numbers by every rank."""
        ways_s = [math.nan if one is None else one for one in (self.from_previous_s, self.from_next_s)]
        passes_s = (self.forward_s, self.input_s, self.weight_s, self.micro_batch_s)
        places_and_losses = map(float, (self.stage, self.lane, self.lost_previous, self.lost_next))
        return [*places_and_losses, *passes_s, *ways_s]

    @classmethod
    def of_numbers(cls, told: Sequence[float]) -> Observation:
        """The observation that was told so."""
        stage, lane, lost_previous, lost_next, forward_s, input_s, weight_s, micro_batch_s, previous_s, next_s = told
        return cls(
            stage=int(stage),
            lane=int(lane),
            forward_s=forward_s,
            input_s=input_s,
            weight_s=weight_s,
            micro_batch_s=micro_batch_s,
            from_previous_s=None if math.isnan(previous_s) else previous_s,
            from_next_s=None if math.isnan(next_s) else next_s,
            lost_previous=bool(lost_previous),
            lost_next=bool(lost_next),
        )


class RecentPasses:
    """The last 32 durations of each kind of pass on this rank, whichever steps they are of."""

    def __init__(self) -> None:
        self._durations: dict[Kind, deque[float]] = {}

    def add(self, durations_s: Mapping[Kind, Sequence[float]]) -> None:
        """The passes of one more step."""
        for kind, values in durations_s.items():
            self._durations.setdefault(kind, deque(maxlen=_KEPT_PASSES)).extend(values)

    def median_s(self, *kinds: Kind) -> float:
        """Of the first of these kinds that ran; 0 where none did."""
        return next((median(kept) for kind in kinds if (kept := self._durations.get(kind))), 0.0)
