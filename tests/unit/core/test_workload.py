"""Tests of ``autotuner.core.workload``."""

from __future__ import annotations

import pytest

from autotuner.core.errors import InvalidInput
from autotuner.core.layout import Layout
from autotuner.core.workload import LengthDistribution, Workload


def test_counted_sequences_become_a_histogram() -> None:
    assert LengthDistribution.of([64, 16, 64]) == LengthDistribution(lengths=(16, 64), weights=(1.0, 2.0))


def test_moments_are_means_of_powers() -> None:
    lengths = LengthDistribution.of([16, 64, 64])
    assert (lengths.mean, lengths.moment(2)) == ((16 + 64 + 64) / 3, (16**2 + 64**2 + 64**2) / 3)


def test_a_share_of_all_sequences_is_no_longer_than_its_length() -> None:
    lengths = LengthDistribution.of([16, 64, 64, 64])
    assert lengths.at_each([0.0, 0.24, 0.25, 0.99, 1.0]) == (16, 16, 64, 64, 64)
    assert lengths.at(0.24) == 16


@pytest.mark.parametrize(
    ("lengths", "weights"),
    [((), ()), ((0, 1), (1.0, 1.0)), ((2, 1), (1.0, 1.0)), ((1, 2), (1.0,)), ((1,), (0.0,)), ((1,), (float("inf"),))],
)
def test_what_is_no_distribution_is_refused(lengths: tuple[int, ...], weights: tuple[float, ...]) -> None:
    with pytest.raises(InvalidInput):
        LengthDistribution(lengths=lengths, weights=weights)


def test_tokens_per_step_count_the_whole_job() -> None:
    assert Workload(seq_len=4096, global_batch_size=512).tokens_per_step == 2_097_152


def test_micro_batches_are_per_replica_and_cover_accumulation() -> None:
    layout = Layout(data_parallel_replicate_degree=2, data_parallel_shard_degree=4, micro_batch_size=2)
    assert Workload(seq_len=128, global_batch_size=64).num_micro_batches(layout) == 4


def test_tensor_and_pipeline_ranks_share_micro_batches() -> None:
    layout = Layout(tensor_parallel_degree=4, pipeline_parallel_degree=2)
    assert Workload(seq_len=128, global_batch_size=64).num_micro_batches(layout) == 64


@pytest.mark.parametrize(
    ("field", "value"), [("seq_len", 0), ("global_batch_size", -1), ("optimizer_state_precision", "int8")]
)
def test_an_impossible_workload_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        Workload(**{"seq_len": 128, "global_batch_size": 8, field: value})  # type: ignore[arg-type]
    assert caught.value.field == field


LENGTHS = LengthDistribution(lengths=(16, 64), weights=(3.0, 1.0))


def test_tokens_of_sequences_that_differ_are_those_of_an_average_step() -> None:
    workload = Workload(seq_len=128, global_batch_size=8, lengths=LENGTHS)
    assert workload.tokens_per_step == 8 * (3 * 16 + 64) // 4
    assert workload.keys_per_token == round((3 * 16**2 + 64**2) / (3 * 16 + 64))
    assert workload.of_longest == Workload(seq_len=128, global_batch_size=8)


@pytest.mark.parametrize(("field", "value", "nearest"), [("seq_len", 63, 64), ("global_batch_size", 131_073, 131_072)])
def test_sequences_that_differ_must_fit_and_be_few_enough_to_be_dealt(field: str, value: int, nearest: int) -> None:
    with pytest.raises(InvalidInput) as caught:
        Workload(**{"seq_len": 64, "global_batch_size": 8, "lengths": LENGTHS, field: value})  # type: ignore[arg-type]
    assert (caught.value.field, caught.value.nearest) == (field, nearest)
