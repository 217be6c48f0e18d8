"""What the ranks of a pipeline agree on before they plan: times of stages and links, each as its ranks saw them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from autotuner.schedules.actions import Kind
from autotuner.schedules.simulate import PassTimes
from trials.pipelines.pipeline import PlannedPipeline

_NOTICED = 0.5
"""Share of a forward pass from which a transfer's time is a delay to plan with; less is what every link takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTimes:
    """What one rank tells the others of its stage.

    Attributes:
        rank: Of the pipeline.
        forward_s: Median of the step, as the next two; a whole backward counts as its two halves.
        from_previous_s: One-way delay of the link to the stage before, as far as it is one to plan with.
        from_next_s: Of the link to the stage behind.
        most_in_flight: Micro-batches that the rank has memory for.
    """

    rank: int
    forward_s: float
    input_s: float
    weight_s: float
    from_previous_s: float = 0.0
    from_next_s: float = 0.0
    most_in_flight: int

    @classmethod
    def of(cls, pipeline: PlannedPipeline, *, most_in_flight: int) -> StageTimes:
        """Of the step that a pipeline of one stage per rank ran last."""
        timings, rank = pipeline.timings, pipeline.rank
        whole_s = timings.median_s(Kind.BACKWARD)
        forward_s = timings.median_s(Kind.FORWARD) or 0.0

        def delay_s(peer: int) -> float:
            known_s, seen_s = pipeline.conditions.between(rank, peer).delay_s, timings.shortest_transfer_s(peer) or 0.0
            return max(known_s, seen_s if seen_s > _NOTICED * forward_s else 0.0)

        return cls(
            rank=rank,
            forward_s=forward_s,
            input_s=timings.median_s(Kind.INPUT) or (whole_s or 0.0) / 2,
            weight_s=timings.median_s(Kind.WEIGHT) or (whole_s or 0.0) / 2,
            from_previous_s=delay_s(rank - 1),
            from_next_s=delay_s(rank + 1),
            most_in_flight=most_in_flight,
        )


def agreed_times(told: Sequence[StageTimes]) -> tuple[PassTimes, tuple[int, ...]]:
    """Times of stages and links, and what each stage has memory for, from what all ranks of all pipelines told.

    A stage's time is the mean of its ranks', a link's the longest that any rank saw, in either direction.
    """
    num_stages = 1 + max(one.rank for one in told)
    stages = [[one for one in told if one.rank == stage] for stage in range(num_stages)]
    times = PassTimes(
        forward_s=tuple(fmean(one.forward_s for one in stage) for stage in stages),
        input_s=tuple(fmean(one.input_s for one in stage) for stage in stages),
        weight_s=tuple(fmean(one.weight_s for one in stage) for stage in stages),
        send_s=tuple(
            max(*(one.from_next_s for one in before), *(one.from_previous_s for one in behind))
            for before, behind in pairwise(stages)
        ),
    )
    return times, tuple(min(one.most_in_flight for one in stage) for stage in stages)
