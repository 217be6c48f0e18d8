from __future__ import annotations

import math

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from autotuner.core.errors import InvalidInput
from trials.replication.demo import DemoReplicator
from trials.replication.replicator import exchanged

CHUNK, TOP_K, DECAY = 8, 3, 0.9


def cosines(chunk: Tensor) -> Tensor:
    """The transform by its definition."""
    number = len(chunk)
    sums = [
        sum(float(x) * math.cos(math.pi * (i + 0.5) * k / number) for i, x in enumerate(chunk)) for k in range(number)
    ]
    scales = [math.sqrt((1 if k == 0 else 2) / number) for k in range(number)]
    return torch.tensor([one * scale for one, scale in zip(sums, scales, strict=True)])


def elements(components: Tensor) -> Tensor:
    """The inverse by its definition."""
    number = len(components)
    first = float(components[0]) / math.sqrt(number)
    rest = [
        sum(float(components[k]) * math.cos(math.pi * (i + 0.5) * k / number) for k in range(1, number))
        for i in range(number)
    ]
    return torch.tensor([first + math.sqrt(2 / number) * one for one in rest])


def largest(components: Tensor) -> Tensor:
    kept = components.abs().topk(TOP_K).indices
    return torch.zeros_like(components).index_copy(0, kept, components[kept])


def test_a_single_replica_takes_its_own_fast_components_and_keeps_the_slow_ones(alone: dist.ProcessGroup) -> None:
    torch.manual_seed(0)
    replicator = DemoReplicator([torch.zeros(CHUNK)], alone, chunk=CHUNK, top_k=TOP_K, decay=DECAY)
    momentum = torch.zeros(CHUNK)
    for _ in range(4):
        gradient = torch.randn(CHUNK)
        momentum = DECAY * momentum + gradient
        sent = elements(largest(cosines(momentum)))
        momentum = momentum - sent
        (taken,) = exchanged(replicator, [gradient])
        # sums of eight products of fp32, rounded in another order
        torch.testing.assert_close(taken, sent, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(replicator.state_dict()["residuals"][0], momentum, rtol=1e-4, atol=1e-5)
    assert replicator.payload_bytes == 0


def test_what_a_rank_holds_beside_a_tensor_changes_nothing_of_it(alone: dist.ProcessGroup) -> None:
    torch.manual_seed(0)
    shared, others = torch.randn(21), torch.randn(40)
    found = []
    for beside in ([], [others]):
        replicator = DemoReplicator([*beside, shared], alone, chunk=CHUNK, top_k=TOP_K)
        found.append(exchanged(replicator, [*beside, shared])[-1])
    # the same products in a matrix of other height may be summed in another order
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("chunk", "top_k", "decay", "field", "nearest"),
    [
        (8, 9, 0.9, "top_k", 8),
        (8, 0, 0.9, "top_k", 1),
        (0, 1, 0.9, "width", 1),
        (2**16, 1, 0.9, "chunk", 2**15),
        (8, 2, 1.1, "decay", 1.0),
    ],
)
def test_what_no_exchange_can_be_is_refused_with_the_nearest_that_can(
    chunk: int, top_k: int, decay: float, field: str, nearest: float, alone: dist.ProcessGroup
) -> None:
    with pytest.raises(InvalidInput) as refused:
        DemoReplicator([torch.zeros(4)], alone, chunk=chunk, top_k=top_k, decay=decay)
    assert (refused.value.field, refused.value.nearest) == (field, nearest)


def test_residuals_of_other_tensors_are_refused(alone: dist.ProcessGroup) -> None:
    replicator = DemoReplicator([torch.zeros(4)], alone)
    with pytest.raises(InvalidInput, match="shapes"):
        replicator.load_state_dict({"residuals": [torch.zeros(5)], "num_steps": 1})


def test_residuals_go_on_in_chunks_of_another_size(alone: dist.ProcessGroup) -> None:
    short, long = (DemoReplicator([torch.zeros(20)], alone, chunk=chunk, top_k=1) for chunk in (4, 16))
    exchanged(short, [torch.arange(20.0)])
    long.load_state_dict(short.state_dict())
    assert torch.equal(long.state_dict()["residuals"][0], short.state_dict()["residuals"][0])
