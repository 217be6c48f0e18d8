"""A rank of a small pipeline: one linear layer per stage, of which anybody can compute what it should yield."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from autotuner.schedules.schedule import Kind, Schedule
from autotuner.schedules.standard_schedules import one_f_one_b, zb_h2, zb_interleaved, zbv
from autotuner.training.pipelines.channels import Channel, Neighbourhood, PairChannel, Rendezvous, pair_channels
from autotuner.training.pipelines.delegated import DelegatedTransport, DelegateFailed
from autotuner.training.pipelines.delegates import Delegates
from autotuner.training.pipelines.inline import InlineTransport
from autotuner.training.pipelines.pipeline import ResilientPipeline, TimedStage
from autotuner.training.pipelines.switched import SwitchedTransport
from autotuner.training.pipelines.transport import LinkCondition, LinkConditions, Transport
from autotuner.trials.process.task import TaskContext
from tests.patience import PATIENCE_S
from tests.trials.joined import joined as join_group

MICRO_BATCHES = 8
_ROWS, _WIDTH = 2, 16
_CPU = torch.device("cpu")


def joined(context: TaskContext) -> Rendezvous:
    """Join the other ranks; where processes beside them meet."""
    store = context.store()
    join_group(context, store=store)
    return Rendezvous.beside(store, {})


def say(context: TaskContext, facts: Any) -> int:
    """Leave something for the test."""
    (context.folder / f"{context.rank_info.rank}.json").write_text(json.dumps(facts))
    return 0


def heard(folder: Path, num_ranks: int) -> list[Any]:
    """What the ranks left, by rank."""
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(num_ranks)]


class SmallPipeline:
    """The rank's stages under a schedule."""

    def __init__(self, schedule: Schedule, transport: Transport) -> None:
        rank = dist.get_rank()
        self.modules = {stage: _layer(stage) for stage, holder in schedule.rank_of.items() if holder == rank}
        self.num_stages = schedule.num_stages
        self._stages = [
            TimedStage(
                module,
                index,
                self.num_stages,
                _CPU,
                input_args=torch.empty(_ROWS, _WIDTH, device="meta", requires_grad=index > 0),
                output_args=torch.empty(_ROWS, _WIDTH, device="meta", requires_grad=True),
            )
            for index, module in sorted(self.modules.items())
        ]
        self.pipeline = ResilientPipeline(self._stages, schedule, transport=transport, loss_fn=_loss, scale_grads=False)

    delegates: Delegates

    def after_passes(self, number: int, act: Callable[[], None]) -> None:
        """Act once, behind so many passes of this rank from now on."""
        numbers = count(1)

        @contextmanager
        def watch_pass(kind: Kind, stage: int, micro_batch: int) -> Iterator[None]:
            del kind, stage, micro_batch
            yield
            if next(numbers) == number:
                act()

        for stage in self._stages:
            stage.watch_pass = watch_pass

    def step(self) -> tuple[float, dict[int, float]]:
        """Train on the batch; the loss where this rank computes it, and its gradients' norms by stage."""
        inputs, targets = _batch()
        losses: list[Tensor] = []
        for module in self.modules.values():
            module.zero_grad()
        self.pipeline.step(
            *((inputs,) if 0 in self.modules else ()),
            target=targets if self.num_stages - 1 in self.modules else None,
            losses=losses,
            return_outputs=False,
        )
        return float(sum(losses)), {stage: _norm(module) for stage, module in self.modules.items()}


def inline(schedule: Schedule, context: TaskContext) -> SmallPipeline:
    """A pipeline whose ranks send by themselves, over groups of each two of them."""
    rendezvous, rank = joined(context), context.rank_info.rank
    channels = pair_channels(rendezvous, Neighbourhood.of(schedule, rank), _CPU, timeout_s=PATIENCE_S)
    return SmallPipeline(schedule, InlineTransport(rank, channels, MICRO_BATCHES))


def switched(context: TaskContext) -> tuple[SmallPipeline, dict[int, Channel]]:
    """A pipeline whose delegates stand by, and the channels that its rank sends over."""
    schedule = zb_h2(context.rank_info.world_size, MICRO_BATCHES)
    around = Neighbourhood.of(schedule, context.rank_info.rank)
    rendezvous = Rendezvous.beside(context.store(), {})
    delegates = Delegates.start(rendezvous, around, 1, timeout_s=PATIENCE_S)
    joined(context)
    channels = pair_channels(rendezvous, around, _CPU, timeout_s=PATIENCE_S)
    transport = SwitchedTransport(
        InlineTransport(around.rank, channels, MICRO_BATCHES),
        DelegatedTransport(around.rank, delegates, MICRO_BATCHES),
        schedule.num_stages,
        reconnect=lambda peer, attempt: PairChannel(
            rendezvous, around, peer, device=_CPU, timeout_s=PATIENCE_S, attempt=attempt
        ),
    )
    small = SmallPipeline(schedule, transport)
    small.delegates = delegates
    return small, channels


def expected_step(num_stages: int) -> tuple[float, dict[int, float]]:
    """What the ranks' steps should find together, computed by one process."""
    layers = [_layer(stage) for stage in range(num_stages)]
    inputs, targets = _batch()
    losses = [
        _loss(nn.Sequential(*layers)(one), other)
        for one, other in zip(inputs.chunk(MICRO_BATCHES), targets.chunk(MICRO_BATCHES), strict=True)
    ]
    total = torch.stack(losses).sum()
    total.backward()  # type: ignore[no-untyped-call]
    return total.item(), {stage: _norm(layer) for stage, layer in enumerate(layers)}


def _layer(stage: int) -> nn.Linear:
    torch.manual_seed(stage)
    return nn.Linear(_WIDTH, _WIDTH)


def _batch() -> tuple[Tensor, Tensor]:
    torch.manual_seed(100)
    return torch.randn(MICRO_BATCHES * _ROWS, _WIDTH), torch.randn(MICRO_BATCHES * _ROWS, _WIDTH)


def _loss(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).pow(2).mean()


def _norm(module: nn.Module) -> float:
    return float(torch.cat([p.grad.reshape(-1) for p in module.parameters() if p.grad is not None]).norm())


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
