"""Batches of sequences of different lengths: how they are dealt, padded and packed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.core.batches import dealing_ranks, drawn, shares_of_ranks, strata
from autotuner.core.choices import BatchBalance, ShardLevel
from autotuner.core.errors import InvalidInput
from autotuner.core.layout import Layout
from autotuner.core.workload import LengthDistribution, Workload
from autotuner.costmodel.shared.batch_shape import BatchShape, batch_shape

# ---------------------------------------------------------------- samsung
SEQ_LEN = 512
_QUOTAS = (6, 3, 2, 5)
_AT_LONGEST = 0.6
"""Share of the last quarter that is cut to 512 tokens, others being even: assumed, as no histogram is published."""


def wikipedia() -> LengthDistribution:
    """How long the sequences of BERT's pre-training are."""
    quarter = SEQ_LEN // len(_QUOTAS)
    weights = [quota / quarter for quota in _QUOTAS for _ in range(quarter)]
    last = slice(-quarter, None)
    weights[last] = [weight * (1 - _AT_LONGEST) for weight in weights[last]]
    weights[-1] += _QUOTAS[-1] * _AT_LONGEST
    return LengthDistribution(lengths=tuple(range(1, SEQ_LEN + 1)), weights=tuple(weights))


# ---------------------------------------------------------------- Lengths are drawn by seed and step
HALVES = LengthDistribution(lengths=(16, 64), weights=(1.0, 3.0))


def test_a_seed_and_a_step_draw_the_same_lengths_in_every_process() -> None:
    assert drawn(HALVES, num_sequences=8, seed=1, step=2) == (16, 64, 64, 64, 64, 64, 64, 64)
    assert drawn(HALVES, num_sequences=8, seed=1, step=3) != drawn(HALVES, num_sequences=8, seed=1, step=2)


def test_lengths_occur_as_often_as_their_weights_say() -> None:
    lengths = drawn(HALVES, num_sequences=10_000, seed=0, step=0)
    assert set(lengths) == {16, 64}
    # four standard deviations of a share of 10,000 draws
    assert lengths.count(64) / len(lengths) == pytest.approx(0.75, abs=4 * (0.75 * 0.25 / 10_000) ** 0.5)


# ---------------------------------------------------------------- groups
@pytest.mark.parametrize(
    ("choices", "num_dealing_ranks"),
    [
        ({"data_parallel_replicate_degree": 32}, 8),
        ({"data_parallel_replicate_degree": 32, "num_dealing_ranks": 16}, 16),
        ({"data_parallel_replicate_degree": 2, "data_parallel_shard_degree": 8, "tensor_parallel_degree": 2}, 4),
        ({"data_parallel_replicate_degree": 6}, 6),  # a node holds them all
        ({"data_parallel_replicate_degree": 12}, 4),  # groups of 8 would not divide them
        ({"data_parallel_replicate_degree": 4, "tensor_parallel_degree": 16}, 1),
    ],
)
def test_a_node_s_ranks_deal_among_each_other(choices: dict[str, Any], num_dealing_ranks: int) -> None:
    layout = Layout(batch_balance=BatchBalance.SNAKE, **choices)
    assert dealing_ranks(layout, devices_per_node=8) == num_dealing_ranks


# ---------------------------------------------------------------- shape
WORKLOAD = Workload(seq_len=SEQ_LEN, global_batch_size=64, lengths=wikipedia())
EQUAL = replace(WORKLOAD, lengths=LengthDistribution.of([96]))
REPLICAS: dict[str, Any] = {"data_parallel_replicate_degree": 8}


def shape(workload: Workload = WORKLOAD, **choices: Any) -> BatchShape:
    return batch_shape(Layout(**{**REPLICAS, **choices}), workload, devices_per_node=8)


def test_sequences_that_are_alike_are_neither_padded_nor_waited_for() -> None:
    assert shape(EQUAL, micro_batch_size=4) == BatchShape(tokens=96, keys=96, imbalance=0, padding_waste=0)
    assert shape(replace(EQUAL, lengths=None)) == BatchShape(tokens=512, keys=512, imbalance=0, padding_waste=0)


def test_a_row_is_as_long_as_ranks_that_split_it_ask_for() -> None:
    assert shape(EQUAL, tensor_parallel_degree=5).tokens == 100
    assert shape(EQUAL, context_parallel_degree=5).tokens == 100  # two parts for each context rank
    packed = shape(EQUAL, tensor_parallel_degree=5, sequence_packing=True, micro_batch_size=4)
    assert packed.tokens == 385 / 4  # one row of four sequences is filled up once


def test_balance_cuts_what_the_slowest_rank_has() -> None:
    by_balance = {balance: shape(batch_balance=balance) for balance in BatchBalance}
    assert by_balance[BatchBalance.NONE].imbalance > 0.2
    assert by_balance[BatchBalance.STRATIFIED_SNAKE].imbalance < 0.05
    assert len({one.padding_waste for one in by_balance.values()}) == 1  # rows of one sequence have no padding


def test_rows_of_like_sequences_waste_less_and_packed_ones_nothing() -> None:
    by_chance, sorted_ = shape(micro_batch_size=4), shape(micro_batch_size=4, batch_balance=BatchBalance.GLOBAL_SORT)
    assert by_chance.padding_waste > 0.5
    assert sorted_.padding_waste < by_chance.padding_waste / 2
    packed = shape(micro_batch_size=4, sequence_packing=True)
    assert packed.padding_waste == 0
    assert packed == shape(sequence_packing=True)  # tokens and squares do not see rows


def test_ranks_that_gather_parameters_wait_in_every_micro_batch() -> None:
    shards: dict[str, Any] = {"data_parallel_replicate_degree": 1, "data_parallel_shard_degree": 8}
    at_the_end = shape(**shards, shard_level=ShardLevel.OPTIMIZER)
    each_time = shape(**shards, shard_level=ShardLevel.PARAMETERS)
    assert each_time.imbalance > at_the_end.imbalance
    assert each_time.padding_waste == at_the_end.padding_waste


def test_stages_pad_every_sequence_to_the_longest_allowed() -> None:
    found = shape(pipeline_parallel_degree=2)
    assert (found.tokens, found.keys, found.imbalance) == (SEQ_LEN, SEQ_LEN, 0)
    # 512 tokens beside 252.4 on average: the paper's 100 % of waste
    assert found.padding_waste == pytest.approx(1.03, abs=0.005)


def test_attention_counts_the_squares_of_what_the_slowest_rank_has() -> None:
    lengths = LengthDistribution(lengths=(10, 30), weights=(1.0, 1.0))
    found = shape(Workload(seq_len=30, global_batch_size=4096, lengths=lengths), data_parallel_replicate_degree=1)
    # half of the sequences are long: (100 + 900) / (10 + 30) keys
    assert found.keys == 25


NUM_RANKS, PER_RANK, NUM_DEALING_RANKS = 1024, 16, 8
"""What Samsung trained on: 128 nodes of 8 accelerators, 16 sequences each."""


@st.composite
def deals(draw: st.DrawFn) -> tuple[list[int], int, int]:
    """Lengths, ranks, and ranks of a group."""
    group, groups, share = (draw(st.integers(1, 5)) for _ in range(3))
    size = group * groups * share
    return draw(st.lists(st.integers(1, 64), min_size=size, max_size=size)), group * groups, group


@given(deal=deals(), balance=st.sampled_from(BatchBalance))
def test_every_sequence_is_assigned_once_and_every_rank_has_as_many(
    deal: tuple[list[int], int, int], balance: BatchBalance
) -> None:
    lengths, num_ranks, group = deal
    shares = shares_of_ranks(lengths, num_ranks=num_ranks, balance=balance, num_dealing_ranks=group)
    assert sorted(position for share in shares for position in share) == list(range(len(lengths)))
    assert {len(share) for share in shares} == {len(lengths) // num_ranks}


@given(deal=deals())
def test_no_rank_has_more_of_a_stratum_than_another_where_ranks_divide_it(deal: tuple[list[int], int, int]) -> None:
    lengths, num_ranks, _ = deal
    of_all = [one for one in lengths for _ in range(num_ranks)]
    shares = shares_of_ranks(of_all, num_ranks=num_ranks, balance=BatchBalance.STRATIFIED, bounds=(16, 32, 48, 64))
    assert len({tuple(sorted(Counter((of_all[i] - 1) // 16 for i in share).items())) for share in shares}) == 1


@pytest.mark.parametrize("seed", range(3))
def test_strata_and_exchanges_balance_a_record_run_as_its_paper_says(seed: int) -> None:
    lengths = drawn(wikipedia(), num_sequences=NUM_RANKS * PER_RANK, seed=seed, step=0)
    imbalance = {balance: _imbalance(lengths, balance) for balance in BatchBalance}
    # the acceptance of the paper's summary: at most 5 %, and less than a tenth of what chance leaves
    assert imbalance[BatchBalance.STRATIFIED_SNAKE] <= min(0.05, imbalance[BatchBalance.NONE] / 10)
    assert imbalance[BatchBalance.GLOBAL_SORT] < imbalance[BatchBalance.STRATIFIED_SNAKE]
    assert imbalance[BatchBalance.STRATIFIED_SNAKE] < imbalance[BatchBalance.STRATIFIED] < imbalance[BatchBalance.NONE]


def _imbalance(lengths: tuple[int, ...], balance: BatchBalance) -> float:
    shares = shares_of_ranks(lengths, num_ranks=NUM_RANKS, balance=balance, num_dealing_ranks=NUM_DEALING_RANKS)
    tokens = [sum(lengths[i] for i in share) for share in shares]
    return max(tokens) * NUM_RANKS / sum(tokens) - 1


def test_sequences_stay_or_are_assigned_in_groups_that_take_turns_to_and_fro() -> None:
    assert shares_of_ranks([5, 1, 4, 2], num_ranks=2, balance=BatchBalance.NONE) == ((0, 1), (2, 3))
    lengths = [1, 2, 3, 4, 50, 60, 70, 80]
    assert shares_of_ranks(lengths, num_ranks=4, balance=BatchBalance.SNAKE, num_dealing_ranks=2) == (
        (3, 0),
        (2, 1),
        (7, 4),
        (6, 5),
    )
    assert shares_of_ranks(lengths, num_ranks=4, balance=BatchBalance.GLOBAL_SORT) == ((7, 0), (6, 1), (5, 2), (4, 3))
    assert strata(SEQ_LEN) == (128, 256, 384, 512)


def test_a_stratum_that_ranks_do_not_divide_lends_the_next_one_its_rest() -> None:
    lengths = [1, 1, 1, 8, 8, 8, 8, 8]
    shares = shares_of_ranks(lengths, num_ranks=2, balance=BatchBalance.STRATIFIED, bounds=(1, 8))
    assert shares == ((4, 6, 0, 2), (5, 7, 1, 3))  # three short ones and a long one count as short


def test_shares_that_are_not_whole_are_refused() -> None:
    with pytest.raises(InvalidInput, match="must divide the number of sequences in a batch, 3"):
        shares_of_ranks([1, 2, 3], num_ranks=2, balance=BatchBalance.NONE)
    with pytest.raises(InvalidInput, match="must divide the number of ranks, 3, because"):
        shares_of_ranks([1, 2, 3], num_ranks=3, balance=BatchBalance.SNAKE, num_dealing_ranks=2)
