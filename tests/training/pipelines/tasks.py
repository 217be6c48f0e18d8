"""What ranks of small pipelines are asked to do; each leaves what it saw."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from autotuner.schedules.named import one_f_one_b, zb_h2, zb_interleaved, zbv
from autotuner.training.pipelines.channels import Neighbourhood, Rendezvous
from autotuner.training.pipelines.delegated import DelegatedTransport, DelegateFailed
from autotuner.training.pipelines.delegates import Delegates
from autotuner.training.pipelines.transport import LinkCondition, LinkConditions
from tests.patience import PATIENCE_S
from tests.training.pipelines.rank import MICRO_BATCHES, SmallPipeline, inline, joined, say, switched
from trials.process.task import TaskContext

SLOW_LINK_S = 0.3
"""The quickest of a step's messages over any other link takes less, even where four processes want each core."""


def replans(context: TaskContext) -> int:
    """A step of one schedule, then a step of another."""
    ranks = context.rank_info.world_size
    small = inline(one_f_one_b(ranks, MICRO_BATCHES), context)
    first = small.step()
    small.pipeline.replan(zb_h2(ranks, MICRO_BATCHES))
    return say(context, [first, small.step()])


def turns_round(context: TaskContext) -> int:
    """A step of a V, whose stages meet on the last rank."""
    small = inline(zbv(context.rank_info.world_size, MICRO_BATCHES), context)
    return say(context, [small.step(), small.step()])


def wraps(context: TaskContext) -> int:
    """A step in which the last rank sends to the first."""
    small = inline(zb_interleaved(context.rank_info.world_size, 2, MICRO_BATCHES), context)
    return say(context, [small.step(), small.step()])


def delegates(context: TaskContext) -> int:
    """Two steps by two delegates each, over links of which one is slow; how long messages took."""
    ranks = context.rank_info.world_size
    schedule = zb_h2(ranks, MICRO_BATCHES)
    rendezvous = Rendezvous.beside(context.store(), {})
    around = Neighbourhood.of(schedule, context.rank_info.rank)
    delegates = Delegates.start(rendezvous, around, 2, timeout_s=PATIENCE_S)
    joined(context)
    small = SmallPipeline(schedule, DelegatedTransport(around.rank, delegates, MICRO_BATCHES))
    small.pipeline.conditions = LinkConditions(of_pairs={(0, 1): LinkCondition(delay_s=SLOW_LINK_S)})
    steps = [small.step(), small.step()]
    small.pipeline.close()
    timings = small.pipeline.timings
    gone = [not Path(f"/proc/{pid}").exists() for pid in delegates.pids]
    slowest = {peer: timings.shortest_transfer_s(peer) for peer in around.peers}
    (context.folder / f"{around.rank}.more").write_text(json.dumps({"gone": gone, "transfers": slowest}))
    return say(context, steps)


def breaks(context: TaskContext) -> int:
    """Steps before, in and after which a link breaks for real while passes run, and is bridged by delegates."""
    small, channels = switched(context)
    steps = [small.step()]
    seen = [sorted(small.pipeline.transport.dead_peers)]
    if context.rank_info.rank == 1:
        small.after_passes(9, channels[2].break_off)
    for _ in range(2):
        steps.append(small.step())
        seen.append(sorted(small.pipeline.transport.dead_peers))
    (context.folder / f"{context.rank_info.rank}.more").write_text(json.dumps(seen))
    return say(context, steps)


def dies(context: TaskContext) -> int:
    """Steps before, while and after a link is dead by its condition."""
    small, _ = switched(context)
    steps, seen = [], []
    for is_dead in (False, True, True, False):
        small.pipeline.conditions = LinkConditions(of_pairs={(1, 2): LinkCondition(is_dead=is_dead)})
        steps.append(small.step())
        seen.append(sorted(small.pipeline.transport.dead_peers))
    (context.folder / f"{context.rank_info.rank}.more").write_text(json.dumps(seen))
    return say(context, steps)


def switches(context: TaskContext) -> int:
    """Steps that are sent inline, by delegates, and inline again."""
    small, _ = switched(context)
    steps = []
    for delegated in (False, True, False):
        small.pipeline.switch(delegated=delegated)
        steps.append(small.step())
    return say(context, steps)


def delays(context: TaskContext) -> int:
    """How long messages took on the way, without and with a slow link between ranks 0 and 1."""
    small = inline(one_f_one_b(context.rank_info.world_size, MICRO_BATCHES), context)
    found = []
    for delay_s in (0.0, SLOW_LINK_S):
        small.pipeline.conditions = LinkConditions(of_pairs={(0, 1): LinkCondition(delay_s=delay_s)})
        small.step()
        timings = small.pipeline.timings
        found.append({peer: timings.shortest_transfer_s(peer) for peer in (0, 1, 2)})
    return say(context, found)


def fails(context: TaskContext) -> int:
    """A step in which rank 1 raises; where delegates are, for the test."""
    small, _ = switched(context)
    _tell_delegates(context, small)
    small.step()
    if context.rank_info.rank == 1:
        small.after_passes(3, _raise)
    small.pipeline.switch(delegated=True)
    small.step()
    return 0


def is_killed(context: TaskContext) -> int:
    """Rank 1 is killed in the middle of a step."""
    small, _ = switched(context)
    _tell_delegates(context, small)
    if context.rank_info.rank == 1:
        small.after_passes(3, lambda: os.kill(os.getpid(), signal.SIGKILL))
    small.pipeline.switch(delegated=True)
    small.step()
    return 0


def loses_a_delegate(context: TaskContext) -> int:
    """What a rank says whose delegate is gone."""
    small, _ = switched(context)
    small.pipeline.switch(delegated=True)
    small.step()
    if context.rank_info.rank == 1:
        os.kill(small.delegates.all[0].pid, signal.SIGKILL)
    try:
        small.step()
    except DelegateFailed as error:
        return say(context, str(error))
    return say(context, "")


def _tell_delegates(context: TaskContext, small: SmallPipeline) -> None:
    (context.folder / f"{context.rank_info.rank}.delegates").write_text(json.dumps(small.delegates.pids))


def _raise() -> None:
    raise ValueError("this stage is broken")
