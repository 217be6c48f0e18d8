"""A pipeline of four stages and twelve micro-batches, 20 ms a pass, whose link between the last two is slow."""

from __future__ import annotations

from collections.abc import Iterator

from autotuner.core.choices import PipelineSchedule
from autotuner.core.link import LinkHealth
from autotuner.core.timeline import Block, BlockKind, RankSeconds, RankTimeline, StepTimeline
from autotuner.schedules.planner import named_schedule
from autotuner.schedules.schedule import Action, Schedule
from autotuner.schedules.simulate import BESIDE_COMPUTE, BLOCKING, PassTimes, Timeline, simulate
from autotuner.search.explain.link_timelines import LinkTimelines, SlowHop, held_up, messages_over
from autotuner.search.explain.timeline import PredictedTimeline

NUM_STAGES, NUM_MICRO_BATCHES = 4, 12
_PASS_S = 0.02


def slow_hop(delay_s: float) -> SlowHop:
    """Between the last two stages."""
    link = LinkHealth(ends=(2, 3), delay_s=delay_s)
    return SlowHop(ranks=(2, 3), links=(link,), delay_s=delay_s)


def slow_links(
    delay_s: float = 0.06,
    *,
    blocks_sends: bool = False,
    schedule: PipelineSchedule = PipelineSchedule.ZERO_BUBBLE,
    measured: StepTimeline | None = None,
) -> LinkTimelines:
    """The step with healthy links and with that delay on the last, as a simulator alone says."""
    healthy, slow = stepped(0.0, schedule=schedule), stepped(delay_s, blocks_sends=blocks_sends, schedule=schedule)
    hop = slow_hop(delay_s)
    return LinkTimelines(
        links=hop.links,
        hops=(hop,),
        healthy=PredictedTimeline(timeline=healthy, predicted_s=healthy.step_s, apart=0.0),
        slow=PredictedTimeline(timeline=slow, predicted_s=slow.step_s, apart=0.0),
        messages=messages_over((hop,), slow, blocks_sends=blocks_sends),
        added_s=slow.step_s - healthy.step_s,
        held_up=held_up(healthy, slow) if blocks_sends else None,
        measured=measured,
    )


def stepped(
    delay_s: float, *, blocks_sends: bool = False, schedule: PipelineSchedule = PipelineSchedule.ZERO_BUBBLE
) -> StepTimeline:
    """The step with that delay on the last link."""
    times = PassTimes(
        forward_s=(_PASS_S,) * NUM_STAGES,
        input_s=(_PASS_S,) * NUM_STAGES,
        weight_s=(_PASS_S,) * NUM_STAGES,
        send_s=(0.0, 0.0, delay_s),
    )
    planned = named_schedule(schedule, NUM_STAGES, 1, NUM_MICRO_BATCHES)
    ran = simulate(planned, times, BLOCKING if blocks_sends else BESIDE_COMPUTE)
    lanes = tuple(_lane(rank, planned, times, ran) for rank in range(NUM_STAGES))
    return StepTimeline(step_s=ran.makespan_s, num_micro_batches=NUM_MICRO_BATCHES, num_ranks=NUM_STAGES, ranks=lanes)


def _lane(rank: int, planned: Schedule, times: PassTimes, ran: Timeline) -> RankTimeline:
    spans = zip(planned.ranks[rank], ran.start_s[rank], ran.end_s[rank], strict=True)
    blocks = [block for span in spans for block in _blocks(*span, times)]
    sent_s = sum(block.end_s - block.start_s for block in blocks if block.kind is BlockKind.SEND)
    passes_s = NUM_MICRO_BATCHES * _PASS_S
    seconds = RankSeconds(
        forward_s=passes_s,
        backward_s=passes_s,
        weight_s=passes_s,
        send_s=sent_s,
        idle_s=ran.makespan_s - 3 * passes_s - sent_s,
    )
    return RankTimeline(
        rank=rank,
        pipeline_rank=rank,
        actions=tuple(block.word for block in blocks),
        start_s=tuple(block.start_s for block in blocks),
        end_s=tuple(block.end_s for block in blocks),
        seconds=seconds,
    )


def _blocks(action: Action, start_s: float, end_s: float, times: PassTimes) -> Iterator[Block]:
    passed_s = start_s + times.action_s(action)
    yield Block(start_s, passed_s, BlockKind(action.kind.value), action.stage, action.micro_batch)
    if end_s > passed_s:
        yield Block(passed_s, end_s, BlockKind.SEND)
