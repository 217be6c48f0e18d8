"""The event simulator in columns: one schedule, many layouts' times, every action for all of them at once.

What ``pipeline_schedules.simulate`` does for one layout. Actions of different ranks that wait for no other of them are
one wave, and computed together. A step of many micro-batches is not simulated whole: once its
ranks keep step, each further round takes as long as the one before.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from autotuner.core.choices import PipelineSchedule
from autotuner.core.columns import Floats, Integers
from autotuner.costmodel.links.hops import Hops
from autotuner.costmodel.links.stage_passes import StagePasses
from autotuner.pipeline_schedules.actions import Kind
from autotuner.pipeline_schedules.flow import flow_of
from autotuner.pipeline_schedules.named import named_schedule

_MOST_STEPS = 1_600
"""Of a schedule that is run whole."""

_FEW_RANKS = 16
"""Of deeper pipelines one round is simulated beyond the first, else two beyond two; off by 4 % at most."""


def simulated_numbers(p: int, v: int, num_micro_batches: int) -> tuple[int, ...]:
    """For how many micro-batches a schedule is simulated: all; or two numbers, of which the rest follows."""
    if 3 * p * v * num_micro_batches <= _MOST_STEPS or num_micro_batches <= 5 * p:
        return (num_micro_batches,)
    rounds = 2 if p <= _FEW_RANKS else 1
    few = rounds * p + num_micro_batches % p
    return few, few + rounds * p


def simulated_s(
    name: PipelineSchedule, p: int, v: int, num_micro_batches: int, passes: StagePasses, hops: Hops
) -> tuple[Floats, Floats]:
    """Seconds of a step of so many micro-batches as are simulated, and what each further one adds.

    All layouts have the same schedule, ranks and delegates.
    """
    numbers = simulated_numbers(p, v, num_micro_batches)
    delegates = int(hops.num_delegates.max(initial=0))
    ends = [_run(_waves(name, p, v, number, delegates), passes, hops) for number in numbers]
    if len(numbers) == 1:
        return ends[0], np.zeros_like(ends[0])
    return ends[1], np.maximum(ends[1] - ends[0], 0.0) / (numbers[1] - numbers[0])


class _Wave(NamedTuple):
    """Actions that do not wait for each other: numbers of rows, of arrays that end with a row of zeros.

    Attributes:
        actions: Themselves.
        ranks: Where they run.
        passes: Of stages, kind after kind.
        needed: Actions of other stages whose results they wait for.
        from_hops: Over which these come, where they come from other ranks.
        to_hops: Over which their own results go.
        queued: Actions whose results the same delegate carries before.
    """

    actions: Integers
    ranks: Integers
    passes: Integers
    needed: Integers
    from_hops: Integers
    to_hops: Integers
    queued: Integers


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waves:
    num_actions: int
    num_ranks: int
    waves: tuple[_Wave, ...]


@lru_cache(maxsize=512)
def _waves(name: PipelineSchedule, p: int, v: int, num_micro_batches: int, num_delegates: int) -> _Waves:
    """The actions of a schedule, in waves."""
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
    """When the last rank has ended its last action."""
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
    """One row per hop, and one of zeros behind them."""
    return np.concatenate([seconds.T, np.zeros((1, len(seconds)))])
