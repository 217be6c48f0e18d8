"""What ranks of small pipelines are asked to do; each leaves what it saw."""

from __future__ import annotations

from autotuner.pipeline_schedules.actions import one_f_one_b, zb_h2, zbv
from autotuner.pipeline_schedules.zero_bubble import zb_interleaved
from tests.trials.pipelines.rank import MICRO_BATCHES, SmallPipeline, joined, say
from trials.pipelines.conditions import LinkCondition, LinkConditions
from trials.process.task import TaskContext

__all__ = ["delays", "replans", "turns_round", "wraps"]


def replans(context: TaskContext) -> int:
    """A step of one schedule, then a step of another."""
    ranks = context.rank_info.world_size
    small = SmallPipeline(one_f_one_b(ranks, MICRO_BATCHES), joined(context))
    first = small.step()
    small.pipeline.replan(zb_h2(ranks, MICRO_BATCHES))
    return say(context, [first, small.step()])


def turns_round(context: TaskContext) -> int:
    """A step of a V, whose stages meet on the last rank."""
    small = SmallPipeline(zbv(context.rank_info.world_size, MICRO_BATCHES), joined(context))
    return say(context, [small.step(), small.step()])


def wraps(context: TaskContext) -> int:
    """A step in which the last rank sends to the first."""
    small = SmallPipeline(zb_interleaved(context.rank_info.world_size, 2, MICRO_BATCHES), joined(context))
    return say(context, [small.step(), small.step()])


def delays(context: TaskContext) -> int:
    """How long messages took on the way, without and with a slow link between ranks 0 and 1."""
    small = SmallPipeline(one_f_one_b(context.rank_info.world_size, MICRO_BATCHES), joined(context))
    found = []
    for delay_s in (0.0, 0.05):
        small.pipeline.conditions = LinkConditions(of_pairs={(0, 1): LinkCondition(delay_s=delay_s)})
        small.step()
        timings = small.pipeline.timings
        found.append({peer: timings.shortest_transfer_s(peer) for peer in (0, 1, 2)})
    return say(context, found)
