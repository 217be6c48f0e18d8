from __future__ import annotations

from itertools import chain
from random import Random
from statistics import fmean

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention.flex_attention import create_block_mask
from torch.utils.data import DataLoader, TensorDataset

from autotuner.core.choices import BatchBalance
from autotuner.core.errors import InvalidInput
from autotuner.training.batches import (
    NO_LABEL,
    Assignment,
    BalancedBatchSampler,
    Documents,
    attend_by_document,
    document_mask,
    is_visible,
    pack,
    pad,
    positions_in,
)

# ---------------------------------------------------------------- documents
CPU = torch.device("cpu")
DOCUMENTS: tuple[Documents, ...] = ((130, 1, 60, 200), (128, 128), (7,), (300, 5), (1,) * 300, (256, 3, 125))


def attended(q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool = False, visible: Tensor | None = None) -> Tensor:
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    found = functional.scaled_dot_product_attention(q, k, v, attn_mask=visible, is_causal=is_causal)
    return found.transpose(1, 2)


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return attended(q, k, v, is_causal=True)


def belonging(documents: Documents) -> Tensor:
    return torch.repeat_interleave(torch.tensor(documents))


def test_positions_begin_anew_with_each_document() -> None:
    assert positions_in((3, 1, 2)).tolist() == [0, 1, 2, 0, 0, 1]


def test_attention_by_document_is_attention_with_a_mask_and_each_attends_as_if_it_were_alone() -> None:
    documents = (5, 1, 9)
    q, k, v = torch.randn(3, 1, sum(documents), 2, 8, generator=torch.Generator().manual_seed(0))
    found = attend_by_document(causal, q, k, v, documents)
    alone = [causal(*(x[:, 5:6] for x in (q, k, v))), causal(*(x[:, 6:] for x in (q, k, v)))]
    assert torch.equal(found[:, 5:], torch.cat(alone, dim=1))
    member, place = belonging(documents), torch.arange(sum(documents))
    visible = (member[:, None] == member) & (place[:, None] >= place)
    # weights of up to 9 tokens are summed in another order, each rounded by 6e-8
    torch.testing.assert_close(found, attended(q, k, v, visible=visible), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("documents", DOCUMENTS, ids=str)
def test_the_mask_of_blocks_is_the_one_that_torch_finds_by_looking(documents: Documents) -> None:
    member, seq_len = belonging(documents), sum(documents)

    def of_one_document(sequence: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return is_visible(sequence, head, query, key) & (member[query] == member[key])

    made = document_mask(documents, CPU)
    found = create_block_mask(of_one_document, None, None, seq_len, seq_len, device="cpu")
    assert torch.equal(made.to_dense(), found.to_dense())
    for blocks in ("kv_num_blocks", "full_kv_num_blocks", "q_num_blocks", "full_q_num_blocks"):
        assert torch.equal(getattr(made, blocks), getattr(found, blocks)), blocks
    assert made.seq_lengths == found.seq_lengths


# ---------------------------------------------------------------- micro batch
SEQUENCES = [torch.tensor([1, 2, 3, 4]), torch.tensor([5, 6]), torch.tensor([7, 8, 9])]


def test_padded_rows_are_as_long_as_the_longest_sequence_and_padding_has_no_label() -> None:
    found = pad(SEQUENCES)
    assert found.tokens_BS.tolist() == [[1, 2, 3], [5, 0, 0], [7, 8, 0]]
    assert found.labels_BS.tolist() == [[2, 3, 4], [6, NO_LABEL, NO_LABEL], [8, 9, NO_LABEL]]
    assert found.documents == ()
    assert found.num_tokens == 6


def test_a_packed_row_is_the_sequences_one_behind_the_other_and_what_fills_it_up_is_a_document_of_its_own() -> None:
    found = pack(SEQUENCES)
    assert found.tokens_BS.tolist() == [[1, 2, 3, 5, 7, 8]]
    assert found.labels_BS.tolist() == [[2, 3, 4, 6, 8, 9]]
    assert found.documents == (3, 1, 2)
    filled = pack(SEQUENCES, multiple=4)
    assert filled.tokens_BS.shape == (1, 8)
    assert filled.documents == (3, 1, 2, 2)
    assert filled.labels_BS[0, 6:].tolist() == [NO_LABEL, NO_LABEL]
    assert filled.num_tokens == 6


def test_a_row_that_is_too_short_and_a_sequence_without_a_token_that_follows_are_refused() -> None:
    with pytest.raises(InvalidInput, match="row_length"):
        pad(SEQUENCES, row_length=2)
    with pytest.raises(InvalidInput, match="sequences"):
        pack([torch.tensor([1])])


# ---------------------------------------------------------------- sampler
LENGTHS = [Random(number).randint(1, 512) for number in range(1000)]
RANKS = 8


def samplers(balance: BatchBalance = BatchBalance.STRATIFIED_SNAKE) -> list[BalancedBatchSampler]:
    assignment = Assignment(num_ranks=RANKS, balance=balance, num_dealing_ranks=4)
    return [BalancedBatchSampler(LENGTHS, batch_size=16, assignment=assignment, rank=rank) for rank in range(RANKS)]


def imbalance(balance: BatchBalance) -> float:
    """Of the slowest rank over the mean, over all batches of an epoch."""
    tokens = [[sum(LENGTHS[one] for one in batch) for batch in sampler] for sampler in samplers(balance)]
    return fmean(max(of_batch) / fmean(of_batch) - 1 for of_batch in zip(*tokens, strict=True))


@pytest.mark.parametrize("balance", BatchBalance, ids=str)
def test_ranks_read_the_same_global_batches_with_every_batch_balance(balance: BatchBalance) -> None:
    plain = zip(*samplers(BatchBalance.NONE), strict=True)
    for dealt, as_they_come in zip(zip(*samplers(balance), strict=True), plain, strict=True):
        assert sorted(chain(*dealt)) == sorted(chain(*as_they_come))
        assert {len(batch) for batch in dealt} == {16}


def test_balanced_batches_are_several_times_as_even_as_unbalanced_ones() -> None:
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
        BalancedBatchSampler([3] * 10, batch_size=6, assignment=Assignment(num_ranks=2))
    assert refused.value.nearest == 5
