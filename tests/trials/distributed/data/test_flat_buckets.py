from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from trials.clipping import Overlap
from trials.distributed.optimizer_shards import BucketShard, Reduction, buckets

ALONE = Reduction(shards=None, replicas=None, num_losses=2, dtype=torch.float32, overlap=Overlap())


class Tied(nn.Module):
    """Two layers that share a matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.second = nn.Linear(3, 3)
        self.second.weight = self.first.weight


def flat(module: nn.Module) -> BucketShard:
    return BucketShard(module, list(module.parameters()), ALONE, num_replicas=2)


@given(st.lists(st.integers(1, 9), min_size=1), st.integers(1, 40))
def test_buckets_hold_all_parameters_in_order_and_none_goes_on_once_it_is_full(
    sizes: list[int], bucket_floats: int
) -> None:
    parameters = [nn.Parameter(torch.zeros(size)) for size in sizes]
    found = list(buckets(parameters, 4 * bucket_floats))
    assert [id(parameter) for bucket in found for parameter in bucket] == [id(parameter) for parameter in parameters]
    assert all(sum(parameter.numel() for parameter in bucket[:-1]) < bucket_floats for bucket in found)
    assert all(sum(parameter.numel() for parameter in bucket) >= bucket_floats for bucket in found[:-1])


def test_parameters_keep_their_values_and_become_views_of_one_tensor() -> None:
    module = Tied()
    before = [parameter.detach().clone() for parameter in module.parameters()]
    slice_ = flat(module)
    after = list(module.parameters())
    assert all(torch.equal(old, new) for old, new in zip(before, after, strict=True))
    assert len({parameter.untyped_storage().data_ptr() for parameter in after}) == 1
    assert slice_.values().numel() == sum(parameter.numel() for parameter in after)


def test_a_tied_parameter_stays_tied() -> None:
    module = Tied()
    flat(module)
    assert module.first.weight is module.second.weight


def test_a_gradient_is_averaged_over_the_losses_and_taken_from_the_parameters() -> None:
    module = Tied()
    slice_ = flat(module)
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    slice_.start_reduction()
    slice_.start_reduction()  # a schedule says it, and the optimizer again
    assert torch.equal(slice_.take_gradient(), torch.full((15,), 0.5))
    assert all(parameter.grad is None for parameter in module.parameters())


def test_new_values_are_the_parameters() -> None:
    module = Tied()
    flat(module).write(torch.arange(15.0))
    assert module.first.weight.flatten().tolist() == list(range(9))


def test_the_reduction_starts_with_the_last_gradient_of_the_last_backward_pass() -> None:
    module = nn.Linear(3, 3)
    slice_ = flat(module)
    module(torch.ones(3)).sum().backward()
    assert module.weight.grad is not None
    slice_.expect_backward_passes(1)
    module(torch.ones(3)).sum().backward()
    assert {parameter.grad for parameter in module.parameters()} == {None}
    assert torch.equal(slice_.take_gradient(), torch.ones(12))  # of two passes, over two losses
