from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.choices import ContextExchange, Recompute, ShardLevel
from autotuner.core.layout import Layout
from autotuner.costmodel.predict import predict_one
from autotuner.costmodel.step.exchanges import exchanges
from tests.builders import big_job

LAYOUT = Layout(
    tensor_parallel_degree=4,
    pipeline_parallel_degree=4,
    context_parallel_degree=2,
    data_parallel_shard_degree=2,
    shard_level=ShardLevel.OPTIMIZER,
    sequence_parallel=True,
)
JOB = big_job()
TOKENS = JOB.workload.seq_len // 2
HIDDEN_BYTES = 2 * TOKENS * JOB.model.hidden_size
MICRO_BATCHES = 512


def test_tensor_ranks_pass_three_quarters_of_the_hidden_states_four_times_in_every_pass_of_a_layer() -> None:
    layers = JOB.model.num_layers // 4
    passed = 3 / 4 * HIDDEN_BYTES * 4 * 2  # two sums a pass, each scattered and gathered; forward and backward
    found = exchanges(LAYOUT, JOB, 1).tensor.sent_bytes
    assert found == pytest.approx(layers * MICRO_BATCHES * passed, rel=1e-9)  # computation stands beside the bytes


def test_recomputation_repeats_what_the_forward_pass_exchanges() -> None:
    again = exchanges(replace(LAYOUT, recompute=Recompute.FULL), JOB, 1).tensor.sent_bytes
    once = exchanges(LAYOUT, JOB, 1).tensor.sent_bytes
    assert again > 1.2 * once


def test_a_pipeline_rank_sends_states_on_and_gradients_back() -> None:
    sent = [exchanges(LAYOUT, JOB, rank).pipeline.sent_bytes for rank in range(4)]
    one_way = MICRO_BATCHES * HIDDEN_BYTES / 4
    assert sent == [one_way, 2 * one_way, 2 * one_way, one_way]


def test_a_ring_of_context_ranks_sends_its_keys_and_values_and_gets_their_gradients() -> None:
    gathered = replace(LAYOUT, context_exchange=ContextExchange.ALL_GATHER)
    assert exchanges(LAYOUT, JOB, 1).context.sent_bytes > 0
    assert exchanges(gathered, JOB, 1).context.sent_bytes > 0


def test_groups_of_one_exchange_nothing() -> None:
    alone = replace(LAYOUT, tensor_parallel_degree=1, context_parallel_degree=1, data_parallel_shard_degree=16)
    found = exchanges(alone, JOB, 0)
    assert found.tensor.sent_bytes == found.context.sent_bytes == found.expert.sent_bytes == 0
    assert found.tensor.exposed_s == found.context.exposed_s == 0


def test_waiting_is_that_of_the_prediction_where_the_rank_is_the_slowest() -> None:
    layout = replace(LAYOUT, pipeline_parallel_degree=1, data_parallel_shard_degree=8)
    step, found = predict_one(layout, JOB).step_time, exchanges(layout, JOB, 0)
    assert found.tensor.exposed_s == step.tensor_communication_s
    assert found.data.exposed_s == step.data_communication_s
    assert found.pipeline.exposed_s == step.pipeline_communication_s == 0
