"""LinkTimelines: a step on nominal links compared with the same step on degraded links, message by message."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from autotuner.core.choices import P2PTransport
from autotuner.core.cluster import Cluster
from autotuner.core.fault_trace import FaultTrace, Stretch
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.link import LinkHealth, latest
from autotuner.core.placement import stage_links
from autotuner.core.sweep import SweepRequest
from autotuner.core.timeline import Block, BlockKind, RankTimeline, StepTimeline
from autotuner.core.trial import Trial
from autotuner.costmodel.predict import predict_one
from autotuner.search.explain.timeline import PredictedTimeline, predicted_timeline, what_ran

_MOST_UNFOLDED = 1_500
"""Largest number of passes of a step that is shown whole, so that two steps can be drawn on one axis without gaps."""

_LEAST_WAIT = 1e-3
"""Smallest share of a step that counts as a wait."""

_LEAST_HELD_UP = 0.001
"""Smallest share of a step for which a rank counts as held up by its own sends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowHop:
    """Two neighbouring pipeline ranks that send to each other over degraded links."""

    ranks: tuple[int, int]
    """The two pipeline ranks of the hop; the first one sends activations of forward passes to the second."""
    links: tuple[LinkHealth, ...]
    """Degraded links between the two ranks, the slowest first."""
    delay_s: float
    """One-way delay of the slowest of these links."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message between neighbouring pipeline ranks over degraded links: the activations or gradients of one pass."""

    action: str
    """Pass whose result the message carries, as torch writes it: ``2F3``."""
    from_rank: int
    """Pipeline rank that sends the message."""
    to_rank: int
    """Pipeline rank that receives the message."""
    sent_s: float
    """Time at which the pass ended, in seconds from the beginning of the step."""
    received_s: float
    """Time at which the message arrived. If the receiver waited for it: the beginning of the receiver's next pass."""
    is_late: bool
    """True if the receiving rank had nothing else to do until the message arrived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldUp:
    """A pipeline rank that degraded links slow down, because it cannot compute while it sends."""

    pipeline_rank: int
    added_s: float
    """Additional seconds per step in which the rank waits for its own sends, compared with nominal links."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTimelines:
    """The timelines of one step with nominal links and with degraded links. Both have the same time axis."""

    links: tuple[LinkHealth, ...] = ()
    """Degraded links; empty if no link is known to be slow, and ``slow`` is then None."""
    stretch: Stretch | None = None
    """Steps of the sweep's fault trace in which the links are degraded; None for the cluster's link health."""
    hops: tuple[SlowHop, ...] = ()
    """Slow hops between pipeline ranks; empty if only other groups cross the links."""
    healthy: PredictedTimeline
    """Predicted step with every link in its nominal state."""
    slow: PredictedTimeline | None = None
    """Predicted step with the degraded ``links``."""
    messages: tuple[Message, ...] = ()
    """Messages over the slow hops in ``slow``, by the time at which they are sent."""
    added_s: float = 0.0
    """Predicted time that the degraded links add to the step."""
    held_up: HeldUp | None = None
    """Rank that waits longest for its own sends; None if no rank waits."""
    measured: StepTimeline | None = None
    """Step that a trial recorded; None without one."""

    @property
    def is_measured_slow(self) -> bool:
        """Return True if the trial recorded its step while the links were degraded.

        If the degraded links come from a fault trace (a record of injected link faults), the result is False, because
        trials record a step with nominal links.
        """
        return self.slow is not None and self.stretch is None


def trial_link_timelines(trial: Trial, request: SweepRequest) -> LinkTimelines:
    """Return two timelines of the step of a trial's layout: with nominal links, and with degraded links.

    The trial must have been read from the store together with its timeline.

    Raises:
        InvalidInput: The layout breaks a rule that was added after the trial.
    """
    found = link_timelines(*what_ran(trial, request), request.fault_trace)
    return replace(found, measured=trial.ran_measurement.timeline if trial.ran_measurement else None)


def link_timelines(layout: Layout, job: Job, trace: FaultTrace | None = None) -> LinkTimelines:
    """Return two predicted timelines of a step of a legal layout: with nominal links, and with degraded links.

    The degraded links are those in the cluster's link health. If there is a fault trace (a record of injected link
    faults), the links that are degraded in its worst period are added.

    Args:
        layout: The layout.
        job: The job.
        trace: Fault trace: the faults that are injected into the links, period by period. None: there are none.
    """
    healthy = _predicted(layout, _under(job, ()))
    stretch = None if trace is None else _worst(layout, job, trace)
    today = job.cluster.link_health if stretch is None else (*job.cluster.link_health, *stretch.links)
    # if a link has several states, the last one counts
    links = tuple(link for link in latest(today) if not link.is_healthy)
    if not links:
        return LinkTimelines(healthy=healthy)
    there = _under(job, links)
    slow = _predicted(layout, there)
    hops = tuple(_hops(layout, there.cluster))
    blocks_sends = layout.p2p_transport == P2PTransport.INLINE or job.stack.blocks_sends
    return LinkTimelines(
        links=links,
        stretch=stretch,
        hops=hops,
        healthy=healthy,
        slow=slow,
        messages=messages_over(hops, slow.timeline, blocks_sends=blocks_sends),
        added_s=slow.timeline.step_s - healthy.timeline.step_s,
        held_up=held_up(healthy.timeline, slow.timeline) if blocks_sends and hops else None,
    )


def _predicted(layout: Layout, job: Job) -> PredictedTimeline:
    return predicted_timeline(layout, job, most_unfolded=_MOST_UNFOLDED)


def _under(job: Job, links: tuple[LinkHealth, ...]) -> Job:
    return replace(job, cluster=replace(job.cluster, link_health=links))


def _worst(layout: Layout, job: Job, trace: FaultTrace) -> Stretch | None:
    """Return the stretch of the trace in which a step is predicted to take longest; None if no link has a fault."""
    befallen = [stretch for stretch in trace.stretches() if stretch.links]
    return max(befallen, key=lambda one: predict_one(layout, _under(job, one.links)).step_time.total_s, default=None)


# ---------------------------------------------------------------- where the slow links lie
def _hops(layout: Layout, cluster: Cluster) -> Iterator[SlowHop]:
    """Yield the hops between neighbouring pipeline ranks with a degraded link, in the order of the pipeline."""
    num_ranks = layout.pipeline_parallel_degree
    wraps = layout.virtual_stages_per_rank > 1 and num_ranks > 2
    for rank in range(num_ranks if wraps else num_ranks - 1):
        crossed = {cluster.health_between(*ends) for ends in stage_links(layout, cluster, rank)}
        ailing = (health for health in crossed if health is not None and not health.is_healthy)
        if slow := sorted(ailing, key=lambda health: health.severity, reverse=True):
            yield SlowHop(
                ranks=(rank, (rank + 1) % num_ranks),
                links=tuple(slow),
                delay_s=max(health.delay_s for health in slow),
            )


# ---------------------------------------------------------------- what passes them
@dataclass(frozen=True, slots=True)
class _Lane:
    """The passes of a pipeline rank, and the time at which the rank was free for each of them."""

    rank: int
    passes: Mapping[tuple[int, bool, int], Block]
    free_s: Mapping[tuple[int, bool, int], float]

    @classmethod
    def of(cls, lane: RankTimeline, num_stages: int, blocks_sends: bool) -> _Lane:
        passes, free_s, before_s = {}, {}, 0.0
        for block, behind in pairwise((*lane.blocks, None)):
            assert block is not None  # only the last pair has nothing after it
            if not block.kind.is_pass:
                continue
            passes[_what(block)], free_s[_what(block)] = block, before_s
            holds = blocks_sends and behind is not None and behind.kind is BlockKind.SEND
            before_s = behind.end_s if behind is not None and holds and _sends(block, num_stages) else block.end_s
        return cls(lane.pipeline_rank, passes, free_s)


def _what(block: Block) -> tuple[int, bool, int]:
    """Return the stage, True for a forward pass, and the micro-batch of a block.

    Gradients of weights have no stage, because no rank waits for them.
    """
    if block.kind is BlockKind.WEIGHT:
        return -1, False, block.micro_batch or 0
    return block.stage or 0, block.kind is BlockKind.FORWARD, block.micro_batch or 0


def _sends(block: Block, num_stages: int) -> bool:
    """Return True if another stage needs the result of the pass."""
    if block.kind is BlockKind.FORWARD:
        return (block.stage or 0) < num_stages - 1
    return block.kind is not BlockKind.WEIGHT and (block.stage or 0) > 0


def messages_over(hops: Sequence[SlowHop], timeline: StepTimeline, *, blocks_sends: bool) -> tuple[Message, ...]:
    """Return the messages that cross degraded links in a step, in the order in which they are sent.

    A folded timeline leaves out parts that repeat. Messages in these parts are missing from the result.

    Args:
        hops: Pairs of pipeline ranks with degraded links between them.
        timeline: The step.
        blocks_sends: True if a rank cannot compute while its message is being sent.
    """
    num_stages = 1 + max((b.stage or 0 for lane in timeline.ranks for b in lane.blocks), default=0)
    lanes = {lane.pipeline_rank: _Lane.of(lane, num_stages, blocks_sends) for lane in timeline.ranks}
    found = []
    for hop in hops:
        first, second = (lanes.get(rank) for rank in hop.ranks)
        if first is not None and second is not None:
            found += [*_between(first, second, hop, timeline.step_s), *_between(second, first, hop, timeline.step_s)]
    return tuple(sorted(set(found), key=lambda one: (one.sent_s, one.from_rank)))


def _between(one: _Lane, other: _Lane, hop: SlowHop, step_s: float) -> Iterator[Message]:
    """Yield the messages that one rank sends to the other."""
    for (stage, is_forward, micro_batch), block in one.passes.items():
        behind = (stage + (1 if is_forward else -1), is_forward, micro_batch)
        if stage < 0 or behind[0] < 0 or behind not in other.passes:
            continue
        starts_s = other.passes[behind].start_s
        waited_s = starts_s - max(other.free_s[behind], block.end_s)
        is_late = waited_s > _LEAST_WAIT * step_s
        yield Message(
            action=block.word,
            from_rank=one.rank,
            to_rank=other.rank,
            sent_s=block.end_s,
            received_s=starts_s if is_late else min(starts_s, block.end_s + hop.delay_s),
            is_late=is_late,
        )


# ---------------------------------------------------------------- whom sends hold up
def held_up(healthy: StepTimeline, slow: StepTimeline) -> HeldUp | None:
    """Return the pipeline rank that loses the most time while it sends over degraded links.

    The result is None if no rank loses more than 0.1 % of the step.

    Args:
        healthy: The step with nominal links.
        slow: The step with degraded links.
    """
    before = {lane.pipeline_rank: lane.seconds.send_s for lane in healthy.ranks}
    added_s, rank = max(
        (lane.seconds.send_s - before.get(lane.pipeline_rank, 0.0), lane.pipeline_rank) for lane in slow.ranks
    )
    return HeldUp(pipeline_rank=rank, added_s=added_s) if added_s > _LEAST_HELD_UP * slow.step_s else None
