from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from tests.trials.collective import Noted
from trials.replication.ddp_hook import BucketExchange, exchange_hook
from trials.replication.demo import DemoReplicator
from trials.replication.replicator import FullReplicator


def trained(exchange: BucketExchange, num_steps: int) -> None:
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(8, 8))
    model.register_comm_hook(exchange, exchange_hook)
    for _ in range(num_steps):
        model(torch.randn(4, 8)).square().mean().backward()
        model.zero_grad()


def test_a_hook_keeps_its_residuals_over_a_checkpoint(alone: dist.ProcessGroup) -> None:
    build = partial(DemoReplicator, group=alone, chunk=8, top_k=1)
    first, second = BucketExchange(build, alone), BucketExchange(build, alone)
    trained(first, 3)
    (saved,) = first.state_dict().values()
    second.load_state_dict(first.state_dict())
    (still,) = second.state_dict().values()
    assert all(torch.equal(one, other) for one, other in zip(saved["residuals"], still["residuals"], strict=True))
    trained(second, 2)  # the first is exchanged in full, the second goes on from the residuals
    (later,) = second.state_dict().values()
    assert later["num_steps"] == saved["num_steps"] + 1


class NotedReplicator(FullReplicator):
    """What it sends notes whether anybody waits for it."""

    def __init__(self, tensors: Sequence[Tensor], group: dist.ProcessGroup) -> None:
        super().__init__(tensors, group)
        self.sent: list[Noted] = []

    def start(self, gradients: Sequence[Tensor]) -> Any:
        super().start(gradients)
        self.sent.append(Noted(gradients[0]))
        return self.sent[-1]


def test_what_a_hook_sends_is_there_and_over_when_the_backward_pass_ends(alone: dist.ProcessGroup) -> None:
    built: list[NotedReplicator] = []

    def build(tensors: Sequence[Tensor]) -> NotedReplicator:
        built.append(NotedReplicator(tensors, alone))
        return built[-1]

    trained(BucketExchange(build, alone), 3)
    (replicator,) = built
    assert [sent.was_awaited for sent in replicator.sent] == [True, True]  # the first step is exchanged in full
