"""The run whose lines are read: 8 ranks, 128 sequences of 4,096 tokens per step."""

from __future__ import annotations

from autotuner.core.trial_spec import TrialSpec
from autotuner.core.workload import Workload
from tests.builders import cpu_layout, tiny_model


def spec() -> TrialSpec:
    return TrialSpec(
        trial_id="t",
        model=tiny_model(),
        workload=Workload(seq_len=4096, global_batch_size=128),
        layout=cpu_layout(data_parallel_shard_degree=4, tensor_parallel_degree=2),
        device="cuda",
    )
