"""The recommended exchange depends on the network: the same space on two clusters."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.choices import AttentionKernel, GradientSync, Precision
from autotuner.core.cluster import Cluster
from autotuner.core.job import Job
from autotuner.core.link import Link
from autotuner.core.space import SearchSpace
from autotuner.core.workload import Workload
from autotuner.search.ranking import best_predicted
from tests.builders import cpu_cluster, tiny_model

SPACE = SearchSpace(
    gradient_sync=(GradientSync.FULL, GradientSync.DEMO, GradientSync.RANDOM),
    precision=(Precision.FP32,),
    attention_kernel=(AttentionKernel.MATH,),
)
"""DiLoCo, which exchanges once in 16 steps, is faster than a full exchange on any network: its loss decides."""


def two_nodes(bits_per_s: float) -> Cluster:
    """Two nodes of two cores, whose ports these share."""
    port = Link(name="ethernet", bandwidth_bytes_per_s=bits_per_s / 8 / 2, latency_s=5e-5)
    return replace(cpu_cluster(2), num_nodes=2, inter_node_link=port)


def recommended(bits_per_s: float) -> GradientSync:
    """What the best predicted layout of the paper's small decoder exchanges, with 0.8 million weights."""
    model = replace(tiny_model(), num_layers=4, hidden_size=128, ffn_size=512, num_heads=4, num_kv_heads=4, head_dim=32)
    job = Job(model=model, cluster=two_nodes(bits_per_s), workload=Workload(seq_len=64, global_batch_size=32))
    return best_predicted(job, SPACE, limit=1).rows[0].layout.gradient_sync


@pytest.mark.parametrize(("bits_per_s", "lossy"), [(10e9, False), (10e6, True)], ids=["10 Gbit/s", "10 Mbit/s"])
def test_a_fast_network_is_told_to_sum_all_gradients_and_a_slow_one_to_send_less(
    bits_per_s: float, lossy: bool
) -> None:
    assert (recommended(bits_per_s) != GradientSync.FULL) == lossy
