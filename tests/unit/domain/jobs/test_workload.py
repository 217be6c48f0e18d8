"""What one optimizer step processes."""

from __future__ import annotations

import pytest

from autotuner.domain.jobs.workload import Workload
from autotuner.domain.layouts.layout import Layout
from autotuner.errors import InvalidInput


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
