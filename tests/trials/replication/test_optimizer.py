from __future__ import annotations

from functools import partial

import torch
import torch.distributed as dist
from torch import nn

from trials.replication.elements import ElementReplicator
from trials.replication.full import FullReplicator
from trials.replication.optimizer import ReplicatedOptimizer

RATE = 0.5


def test_a_parameter_without_a_gradient_stays_where_it_is(alone: dist.ProcessGroup) -> None:
    used, unused = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    base = torch.optim.SGD([used, unused], lr=RATE)
    optimizer = ReplicatedOptimizer(base, partial(FullReplicator, group=alone))
    used.grad = torch.tensor([1.0, -1.0])
    optimizer.step()
    assert used.tolist() == [0.5, 1.5]
    assert unused.tolist() == [1.0, 1.0]


def test_signs_move_every_parameter_as_far(alone: dist.ProcessGroup) -> None:
    held = nn.Parameter(torch.zeros(3))
    optimizer = ReplicatedOptimizer(
        torch.optim.SGD([held], lr=RATE), partial(FullReplicator, group=alone), is_signed=True
    )
    held.grad = torch.tensor([100.0, -1e-6, 0.0])
    optimizer.step()
    assert held.tolist() == [-RATE, RATE, 0.0]


def test_a_closure_leaves_the_gradients_and_its_loss_is_returned(alone: dist.ProcessGroup) -> None:
    held = nn.Parameter(torch.tensor([2.0]))
    optimizer = ReplicatedOptimizer(torch.optim.SGD([held], lr=RATE), partial(FullReplicator, group=alone))

    def closure() -> float:
        optimizer.zero_grad()
        loss = held.square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.item()

    assert optimizer.step(closure) == 4.0
    assert held.tolist() == [0.0]


def test_what_is_kept_back_is_part_of_the_saved_state(alone: dist.ProcessGroup) -> None:
    held = nn.Parameter(torch.zeros(8))
    build = partial(ElementReplicator, group=alone, sparsity=4)
    optimizer = ReplicatedOptimizer(torch.optim.SGD([held], lr=RATE), build)
    held.grad = torch.ones(8)
    optimizer.step()
    assert sum(one.count_nonzero() for one in optimizer.state_dict()["replicator"]["residuals"]) == 6
