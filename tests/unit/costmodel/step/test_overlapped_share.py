from __future__ import annotations

from typing import Any

import pytest

from autotuner.core.choices import GradientClip, GradientSync, ShardLevel
from autotuner.costmodel.step.overlapped_share import overlapped_share
from tests.builders import cpu_layout, tiny_job

SMALL: dict[str, Any] = {"data_parallel_replicate_degree": 2, "gradient_bucket_bytes": 2**14}


def test_of_small_buckets_all_but_the_last_start_early_clipped_or_not() -> None:
    shares = [overlapped_share(cpu_layout(**SMALL, gradient_clip=clip), tiny_job()) for clip in GradientClip]
    assert shares[GradientClip.POST] == shares[GradientClip.BUCKET]
    assert shares[GradientClip.POST] == pytest.approx(1.0, abs=0.1)  # 1 - 1/29: seven matrices a layer, and the tables
    assert shares[GradientClip.PRE] == 0.0


def test_one_bucket_and_lossy_exchanges_wait_for_the_last_gradient() -> None:
    one_bucket = cpu_layout(data_parallel_replicate_degree=2)
    lossy = cpu_layout(**SMALL, gradient_sync=GradientSync.DEMO)
    assert [overlapped_share(layout, tiny_job()) for layout in (one_bucket, lossy)] == [0.0, 0.0]


def test_where_one_rank_sees_all_tokens_nothing_is_reduced() -> None:
    assert overlapped_share(cpu_layout(), tiny_job()) is None


def test_parameter_shards_reduce_each_layer_as_it_is_done() -> None:
    sharded = cpu_layout(data_parallel_shard_degree=2, shard_level=ShardLevel.PARAMETERS)
    assert overlapped_share(sharded, tiny_job()) == pytest.approx(0.8)  # 4 layers of 4, and the tables behind them
