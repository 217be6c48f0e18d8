from __future__ import annotations

from itertools import chain
from random import Random
from statistics import fmean

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from autotuner.core.choices import BatchBalance
from autotuner.core.errors import InvalidInput
from trials.batches.sampler import BalancedBatchSampler, Dealing

LENGTHS = [Random(number).randint(1, 512) for number in range(1000)]
RANKS = 8


def samplers(balance: BatchBalance = BatchBalance.STRATIFIED_SNAKE) -> list[BalancedBatchSampler]:
    dealing = Dealing(num_ranks=RANKS, balance=balance, num_dealing_ranks=4)
    return [BalancedBatchSampler(LENGTHS, batch_size=16, dealing=dealing, rank=rank) for rank in range(RANKS)]


def imbalance(balance: BatchBalance) -> float:
    """Of the slowest rank over the mean, over all batches of an epoch."""
    tokens = [[sum(LENGTHS[one] for one in batch) for batch in sampler] for sampler in samplers(balance)]
    return fmean(max(of_batch) / fmean(of_batch) - 1 for of_batch in zip(*tokens, strict=True))


@pytest.mark.parametrize("balance", BatchBalance, ids=str)
def test_however_batches_are_dealt_the_ranks_read_the_same_global_batches(balance: BatchBalance) -> None:
    plain = zip(*samplers(BatchBalance.NONE), strict=True)
    for dealt, as_they_come in zip(zip(*samplers(balance), strict=True), plain, strict=True):
        assert sorted(chain(*dealt)) == sorted(chain(*as_they_come))
        assert {len(batch) for batch in dealt} == {16}


def test_dealt_batches_are_several_times_as_even_as_those_that_come() -> None:
    # 16 even draws scatter by a sixth of their mean; a snake over 4 ranks leaves a hundredth
    assert imbalance(BatchBalance.STRATIFIED_SNAKE) < 0.2 * imbalance(BatchBalance.NONE)


def test_an_epoch_reads_no_sequence_twice_and_another_one_in_another_order() -> None:
    first = samplers()
    batches = [list(sampler) for sampler in first]
    read = [one for of_rank in batches for batch in of_rank for one in batch]
    assert len(read) == len(set(read)) == len(first[0]) * RANKS * 16
    first[0].set_epoch(1)
    assert list(first[0]) != batches[0]


def test_a_loader_takes_it_for_its_batches() -> None:
    loader = DataLoader(TensorDataset(torch.arange(1000)), batch_sampler=samplers()[0])
    assert [len(batch) for (batch,) in loader] == [16] * 7


def test_a_data_set_without_a_global_batch_is_refused_with_the_largest_that_it_has() -> None:
    with pytest.raises(InvalidInput, match="batch_size") as refused:
        BalancedBatchSampler([3] * 10, batch_size=6, dealing=Dealing(num_ranks=2))
    assert refused.value.nearest == 5
