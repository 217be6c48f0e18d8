"""Trials small enough to run by the dozen."""

from __future__ import annotations

from typing import Any

from autotuner.domain.choice import ShardLevel
from autotuner.domain.layout import Layout
from autotuner.domain.trial import TrialSettings, TrialSpec
from autotuner.domain.workload import Workload
from tests.builders import cpu_layout, tiny_model

__all__ = ["fsdp", "hsdp", "trial_spec", "zero"]

WORKLOAD = Workload(seq_len=32, global_batch_size=8)


def trial_spec(layout: Layout | None = None, **changes: Any) -> TrialSpec:
    """Five steps, the first of them warm-up, with a peak given so that none is measured."""
    values: dict[str, Any] = {
        "trial_id": "trial",
        "model": tiny_model(),
        "workload": WORKLOAD,
        "layout": cpu_layout(micro_batch_size=8) if layout is None else layout,
        "device": "cpu",
        "settings": TrialSettings(
            warmup_steps=1,
            max_warmup_steps=1,
            measured_steps=4,
            max_measured_steps=4,
            profiled_steps=0,
            timeout_s=60.0,
        ),
        "peak_flop_per_s": 1e11,
        "seed": 3,
    }
    return TrialSpec(**{**values, **changes})


def fsdp(degree: int, **changes: Any) -> Layout:
    return cpu_layout(data_parallel_shard_degree=degree, shard_level=ShardLevel.PARAMETERS, **changes)


def hsdp(replicate: int, shard: int, **changes: Any) -> Layout:
    return fsdp(shard, data_parallel_replicate_degree=replicate, **changes)


def zero(degree: int, **changes: Any) -> Layout:
    """Shards of the optimizer, unless told of what else."""
    return cpu_layout(**{"data_parallel_shard_degree": degree, "shard_level": ShardLevel.OPTIMIZER, **changes})
