"""Additional time of pipelines on unequal links.

This is ``pipeline_schedules.simulate`` for many layouts at once. Actions of different ranks that do not wait for each
other are one wave, and are computed together. A step of many micro-batches is not simulated as a whole: after some
rounds, each further round takes as long as the one before.

The closed forms of ``pipeline.bubble`` hold on equal links. Slow links and delegates add the difference of two
simulations of the same schedule, in columns. Adaptive schedules have a closed form of their own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from autotuner.core.choices import PipelineSchedule
from autotuner.core.columns import Booleans, Floats, Integers, LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.costmodel.layer.model_work import ModelWork
from autotuner.costmodel.layer.work import Passes
from autotuner.costmodel.shared.stages import num_micro_batches
from autotuner.costmodel.shared.table import beside, taken
from autotuner.costmodel.step.planned import Planned
from autotuner.costmodel.step.sends import Hops, StagePasses, rank_of_stages
from autotuner.schedules.planner import named_schedule
from autotuner.schedules.schedule import Kind, flow_of

_MOST_STEPS = 1_600
"""Largest number of actions of a schedule that is simulated as a whole."""

_FEW_RANKS = 16
"""Largest number of pipeline ranks for which two further rounds are simulated after the first two. For deeper pipelines
one further round is simulated after the first, with an error of 4 % at most."""


def simulated_numbers(p: int, v: int, num_micro_batches: int) -> tuple[int, ...]:
    """Return the numbers of micro-batches to simulate: the full number, or two smaller ones to extrapolate from.

    After a few rounds, each further round takes as long as the round before. Therefore the difference of two short
    simulations gives the time of each further micro-batch.

    Args:
        p: Pipeline ranks.
        v: Stages per rank.
        num_micro_batches: Micro-batches of a real step.
    """
    if 3 * p * v * num_micro_batches <= _MOST_STEPS or num_micro_batches <= 5 * p:
        return (num_micro_batches,)
    rounds = 2 if p <= _FEW_RANKS else 1
    few = rounds * p + num_micro_batches % p
    return few, few + rounds * p


def simulated_s(
    name: PipelineSchedule, p: int, v: int, num_micro_batches: int, passes: StagePasses, hops: Hops
) -> tuple[Floats, Floats]:
    """Return the seconds of a simulated step, and the seconds that each further micro-batch adds.

    The simulated step may have fewer micro-batches than a real one: it has the largest number in ``simulated_numbers``.
    If this is the number in a real step, the second result is 0. All layouts have the same schedule and the same
    numbers of ranks and delegates (processes that send).

    Args:
        name: Pipeline schedule.
        p: Pipeline ranks.
        v: Stages per rank.
        num_micro_batches: Micro-batches of a real step.
        passes: Seconds of the passes in each stage.
        hops: Times of the sends between ranks.
    """
    numbers = simulated_numbers(p, v, num_micro_batches)
    delegates = int(hops.num_delegates.max(initial=0))
    ends = [_run(_waves(name, p, v, number, delegates), passes, hops) for number in numbers]
    if len(numbers) == 1:
        return ends[0], np.zeros_like(ends[0])
    return ends[1], np.maximum(ends[1] - ends[0], 0.0) / (numbers[1] - numbers[0])


class _Wave(NamedTuple):
    """Actions that do not wait for each other, as row numbers of arrays that end with a row of zeros."""

    actions: Integers
    """Numbers of the actions in the wave."""
    ranks: Integers
    """Ranks on which the actions run."""
    passes: Integers
    """Passes of stages that the actions run, kind after kind."""
    needed: Integers
    """Actions of other stages whose results the actions wait for."""
    from_hops: Integers
    """Hops over which these results arrive, if they come from other ranks."""
    to_hops: Integers
    """Hops over which the actions' own results are sent."""
    queued: Integers
    """Earlier actions whose results the same delegate sends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waves:
    num_actions: int
    num_ranks: int
    waves: tuple[_Wave, ...]


@lru_cache(maxsize=512)
def _waves(name: PipelineSchedule, p: int, v: int, num_micro_batches: int, num_delegates: int) -> _Waves:
    """Return the actions of a schedule, in waves."""
    schedule = named_schedule(name, p, v, num_micro_batches)
    ranks = [schedule.rank_of[stage] for stage in range(schedule.num_stages)]
    hops = [min(pair) if abs(pair[0] - pair[1]) == 1 else p - 1 for pair in pairwise(ranks)]
    flow = flow_of(schedule)
    last_on, depth = [0] * p, [0] * len(flow.actions)
    carried: list[list[int]] = [[] for _ in range(2 * len(hops))]
    waves: dict[int, list[tuple[int, ...]]] = defaultdict(list)
    for number, rank, needs, receives, channel in flow.steps:
        stage, kind, _ = flow.actions[number]
        depth[number] = last_on[rank] = 1 + max(last_on[rank], depth[needs] if needs >= 0 else 0)
        from_hop = hops[stage - (kind is Kind.FORWARD)] if receives else -1
        to_hop, queued = (hops[channel // 2], -1) if channel >= 0 else (-1, -1)
        if channel >= 0 and num_delegates:
            before = carried[channel]
            queued = before[-num_delegates] if len(before) >= num_delegates else -1
            before.append(number)
        row = _KINDS.index(kind) * len(ranks) + stage
        waves[depth[number]].append((number, rank, row, needs, from_hop, to_hop, queued))
    columns = (_Wave(*np.array(waves[one], dtype=np.int64).T) for one in sorted(waves))
    return _Waves(num_actions=len(flow.actions), num_ranks=p, waves=tuple(columns))


_KINDS = (Kind.FORWARD, Kind.INPUT, Kind.WEIGHT, Kind.BACKWARD)


def _run(waves: _Waves, passes: StagePasses, hops: Hops) -> Floats:
    """Return the time when the last rank has finished its last action."""
    backward_s = passes.input_s + passes.weight_s
    seconds = np.concatenate([passes.forward_s, passes.input_s, passes.weight_s, backward_s], axis=1).T.copy()
    blocks_s, flies_s, receives_s = (_by_row(one) for one in (hops.blocks_s, hops.flies_s, hops.receives_s))
    blocks, copies, queues = bool(blocks_s.any()), bool(receives_s.any()), hops.num_delegates > 0
    waits = bool(queues.any())
    size = len(passes.forward_s)
    arrived_s = np.zeros((waves.num_actions + 1, size))
    free_s = np.zeros((waves.num_ranks, size))
    for wave in waves.waves:
        now_s = np.maximum(free_s[wave.ranks], arrived_s[wave.needed])
        if copies:
            now_s += receives_s[wave.from_hops]
        now_s += seconds[wave.passes]
        if blocks:
            now_s += blocks_s[wave.to_hops]
        free_s[wave.ranks] = now_s
        if waits:
            now_s = np.where(queues, np.maximum(now_s, arrived_s[wave.queued]), now_s)
        arrived_s[wave.actions] = now_s + flies_s[wave.to_hops]
    last_s: Floats = free_s.max(axis=0)
    return last_s


def _by_row(seconds: Floats) -> Floats:
    """Return one row per hop, and a row of zeros after them."""
    return np.concatenate([seconds.T, np.zeros((1, len(seconds)))])


_AT_ONCE = 1 << 15
"""Number of stages whose passes are simulated together, so that their data fits into a core's cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTimes:
    """The seconds that unequal links add to a step. With the adaptive schedule: the seconds of the whole step.

    The adaptive schedule is a pipeline schedule that is planned around slow links. Each layout is one row.
    """

    added_s: Floats
    """Seconds that unequal links add to a step, for layouts without a plan."""
    planned_s: Floats
    """Seconds of a planned step; 0 in layouts without a plan."""
    unhindered_s: Floats
    """Seconds of the same planned step on equal links."""
    in_flight: Floats
    """Number of micro-batches that the first rank of a planned pipeline keeps; 0 in layouts without a plan."""


def link_times(x: LayoutColumns, job: Job, passes: ModelWork[Passes]) -> LinkTimes | None:
    """Return the seconds that unequal links add to steps, and the seconds of steps with the adaptive pipeline schedule.

    Args:
        x: Layouts, one per row.
        job: Job, whose cluster states which links are degraded.
        passes: Seconds of one micro-batch's passes in each part of the model.

    Returns:
        None if no layout is affected by unequal links or has the adaptive schedule.
    """
    has_stages = x.pipeline_parallel_degree > 1
    planned = has_stages & (x.pipeline_schedule == PipelineSchedule.ADAPTIVE)
    concerned = has_stages if job.cluster.link_health else has_stages & (planned | (x.p2p_transport > 0))
    rows = np.flatnonzero(concerned)
    if not len(rows):
        return None
    nothing = np.zeros(len(x))
    times = LinkTimes(added_s=nothing, planned_s=nothing.copy(), unhindered_s=nothing.copy(), in_flight=nothing.copy())
    some = x.take(rows)
    hops, healthy = Hops.of(some, job), Hops.healthy(some, job)
    table = _Table(x=x, job=job, passes=passes, rows=rows, hops=hops, healthy=healthy)
    for group in _groups(x, rows, np.flatnonzero(planned[rows]), x.pipeline_parallel_degree):
        table.plan(group, times)
    for group in _groups(x, rows, np.flatnonzero(~planned[rows] & table.differs()), *_simulation_columns(x, job)):
        times.added_s[rows[group]] = table.added_s(group)
    return times


def _simulation_columns(x: LayoutColumns, job: Job) -> Sequence[npt.NDArray[np.integer]]:
    """Return the columns that determine a simulation: schedule, ranks, stages, delegates and micro-batches."""
    delegates = x.num_delegates * (x.p2p_transport > 0)
    simulated = _simulated(x, num_micro_batches(x, job))
    return x.pipeline_schedule, x.pipeline_parallel_degree, x.virtual_stages_per_rank, delegates, simulated


def _simulated(x: LayoutColumns, m: Integers) -> Integers:
    """Return the largest number of micro-batches that are simulated for each layout."""
    cases, which = np.unique(
        np.stack([x.pipeline_parallel_degree, x.virtual_stages_per_rank, m], axis=1), axis=0, return_inverse=True
    )
    return np.array([simulated_numbers(*map(int, case))[-1] for case in cases])[which.reshape(-1)]


def _groups(x: LayoutColumns, rows: Integers, index: Integers, *columns: npt.NDArray[np.integer]) -> Iterator[Integers]:
    """Yield groups of layouts with equal columns, as indices into ``rows``. Each group can be simulated at once."""
    if not len(index):
        return
    values = np.stack([column[rows[index]].astype(np.int64) for column in columns], axis=1)
    _, which = np.unique(values, axis=0, return_inverse=True)
    order = np.argsort(which.reshape(-1), kind="stable")
    borders = np.flatnonzero(np.diff(which.reshape(-1)[order])) + 1
    for group in np.split(index[order], borders):
        size = max(1, _AT_ONCE // int(x.num_stages[rows[group[0]]]))
        yield from (group[start : start + size] for start in range(0, len(group), size))


def _simulated_once(
    name: PipelineSchedule, p: int, v: int, m: int, passes: StagePasses, hops: Hops
) -> tuple[Floats, Floats]:
    """Return the result of ``simulated_s`` for each row, computed once for equal rows."""
    columns = (passes.forward_s, passes.input_s, passes.weight_s, hops.blocks_s, hops.flies_s, hops.receives_s)
    table = np.ascontiguousarray(np.concatenate([*columns, hops.num_delegates[:, None]], axis=1))
    rows = table.view(np.dtype((np.void, table.dtype.itemsize * table.shape[1]))).reshape(-1)
    _, first, which = np.unique(rows, return_index=True, return_inverse=True)
    step_s, each_s = simulated_s(name, p, v, m, taken(passes, first), hops.take(first, p))
    return step_s[which], each_s[which]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """Layouts with several pipeline stages, and their hops."""

    x: LayoutColumns
    job: Job
    passes: ModelWork[Passes]
    rows: Integers
    hops: Hops
    healthy: Hops

    def differs(self) -> Booleans:
        """Return the layouts whose hops differ from those on equal links."""
        pairs = zip(*((h.blocks_s, h.flies_s, h.receives_s) for h in (self.hops, self.healthy)), strict=True)
        unlike = np.logical_or.reduce([(one != other).any(axis=1) for one, other in pairs])
        changed: Booleans = unlike | (self.hops.num_delegates > 0)
        return changed

    def added_s(self, group: Integers) -> Floats:
        """Return the seconds that unequal hops add to a step, for layouts that are simulated together."""
        rows = self.rows[group]
        name, p, v, m = self._run_of(int(rows[0]))
        passes, hops, healthy = self._stages(group, p, v, name)
        both_s, further_s = _simulated_once(name, p, v, m, beside(passes, passes), beside(hops, healthy))
        further = num_micro_batches(self.x.take(rows), self.job) - simulated_numbers(p, v, m)[-1]
        half = len(rows)
        return (both_s[:half] - both_s[half:]) + further * (further_s[:half] - further_s[half:])

    def plan(self, group: Integers, times: LinkTimes) -> None:
        """Write the times of planned layouts in ``group``, which all have the same number of ranks."""
        rows = self.rows[group]
        _, p, v, _ = self._run_of(int(rows[0]))
        passes, hops, healthy = self._stages(group, p, v, PipelineSchedule.ADAPTIVE)
        some = self.x.take(rows)
        m, slack = num_micro_batches(some, self.job), some.extra_slack
        plan = Planned.of(passes, hops, slack, m)
        carried_s = hops.flies_s[:, : p - 1] / np.maximum(hops.num_delegates, 1)[:, None]
        times.planned_s[rows] = plan.step_s(m, carried_s * (hops.num_delegates > 0)[:, None])
        free = np.zeros_like(carried_s)
        times.unhindered_s[rows] = Planned.of(passes, healthy, np.zeros_like(slack), m).step_s(m, free)
        times.in_flight[rows] = plan.warm_up[:, 0]

    def _run_of(self, row: int) -> tuple[PipelineSchedule, int, int, int]:
        x = self.x
        p, v = int(x.pipeline_parallel_degree[row]), int(x.virtual_stages_per_rank[row])
        m = int(num_micro_batches(x.take(np.array([row])), self.job)[0])
        name = next(one for one in PipelineSchedule if one == x.pipeline_schedule[row])
        return name, p, v, m

    def _stages(self, group: Integers, p: int, v: int, name: PipelineSchedule) -> tuple[StagePasses, Hops, Hops]:
        layout = Layout(pipeline_parallel_degree=p, virtual_stages_per_rank=v, pipeline_schedule=name)
        passes = StagePasses.of(self.x, self.job, self.passes, self.rows[group], rank_of_stages(layout))
        return passes, self.hops.take(group, p), self.healthy.take(group, p)
