"""The schedule of a layout's name, as lists of actions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autotuner.core.choices import PipelineSchedule
from autotuner.schedules.actions import Schedule, gpipe, interleaved_1f1b, one_f_one_b, zbv
from autotuner.schedules.plan import plan
from autotuner.schedules.simulate import PassTimes
from autotuner.schedules.zero_bubble import dualpipev, zb_interleaved

_BUILDERS: dict[PipelineSchedule, Callable[[int, int, int], Schedule]] = {
    PipelineSchedule.GPIPE: lambda p, v, m: gpipe(p, m),
    PipelineSchedule.ONE_F_ONE_B: lambda p, v, m: one_f_one_b(p, m),
    PipelineSchedule.INTERLEAVED_1F1B: interleaved_1f1b,
    PipelineSchedule.ZERO_BUBBLE: lambda p, v, m: _in_rounds(zb_interleaved, p, v, m),
    PipelineSchedule.ZBV: lambda p, v, m: zbv(p, m),
    PipelineSchedule.DUALPIPEV: lambda p, v, m: dualpipev(p, m),
}


def _in_rounds(build: Callable[[int, int, int], Schedule], p: int, v: int, m: int) -> Schedule:
    """The order of whole rounds of the ranks, with the micro-batches beyond the last left out."""
    whole = build(p, v, m if v == 1 else -(-m // p) * p)
    ranks = (tuple(action for action in actions if action.micro_batch < m) for actions in whole.ranks)
    return whole if v == 1 or m % p == 0 else Schedule(ranks=tuple(ranks))


def named_schedule(
    name: PipelineSchedule,
    num_ranks: int,
    stages_per_rank: int,
    num_micro_batches: int,
    *,
    times: PassTimes | None = None,
    extra_slack: int = 0,
    most_in_flight: Sequence[int] | None = None,
) -> Schedule:
    """What the ranks of a layout with that schedule run.

    Args:
        name: Which.
        num_ranks: Of the pipeline.
        stages_per_rank: 1 for the adaptive schedule.
        num_micro_batches: Of a step.
        times: What the adaptive schedule is planned for; without them equal passes and links without delay.
        extra_slack: As ``plan`` takes it.
        most_in_flight: As ``plan`` takes it.

    Raises:
        InvalidInput: The schedule does not run with so many micro-batches.
    """
    if name == PipelineSchedule.ADAPTIVE:
        equal = PassTimes.equal(num_ranks, 1.0, 1.0, 1.0)
        return plan(times or equal, num_micro_batches, extra_slack=extra_slack, most_in_flight=most_in_flight).schedule
    return _BUILDERS[name](num_ranks, stages_per_rank, num_micro_batches)
