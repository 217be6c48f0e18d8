"""What a core does beside the work itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotuner.core.accelerator import CoreTimes, PassTimes, ShardTimes, SplitTimes
from autotuner.core.choices import Recompute
from autotuner.core.columns import LayoutColumns
from autotuner.core.layout import Layout
from autotuner.costmodel.kernels.core_times import ends_host_s, layer_host_s, recompute_host_s, shard_host_s
from autotuner.costmodel.predict import predict_one
from tests.builders import cpu_layout, tiny_job


def both(forward_s: float, backward_s: float) -> PassTimes:
    return PassTimes(forward_s=forward_s, backward_s=backward_s)


CORE = CoreTimes(
    layer=both(1.0, 2.0),
    ends=both(3.0, 4.0),
    selective=both(0.5, 0.25),
    full=both(0.125, 0.0625),
    sharded=ShardTimes(num_ranks=4, gather_s=30.0, reduce_s=60.0),
    split=(
        SplitTimes(num_ranks=2, sequence_parallel=False, layer=both(10.0, 20.0), ends=both(30.0, 40.0)),
        SplitTimes(num_ranks=4, sequence_parallel=False, layer=both(20.0, 30.0), ends=both(50.0, 60.0)),
        SplitTimes(num_ranks=2, sequence_parallel=True, layer=both(100.0, 200.0), ends=both(0.0, 0.0)),
    ),
    pointwise_bytes_per_s=1e9,
)


def columns(layout: Layout) -> LayoutColumns:
    return LayoutColumns.from_layouts([layout])


@pytest.mark.parametrize(
    ("layout", "seconds"),
    [
        (Layout(), (1.0, 2.0)),
        (Layout(tensor_parallel_degree=2), (11.0, 22.0)),
        (Layout(tensor_parallel_degree=2, sequence_parallel=True), (101.0, 202.0)),
        (Layout(tensor_parallel_degree=3), (16.0, 27.0)),  # half way between 2 and 4
        (Layout(tensor_parallel_degree=8), (21.0, 32.0)),  # as 4, the most that were measured
    ],
    ids=str,
)
def test_tensor_ranks_add_what_was_measured_of_as_many(layout: Layout, seconds: tuple[float, float]) -> None:
    forward_s, backward_s = layer_host_s(columns(layout), CORE)
    assert (forward_s[0], backward_s[0]) == pytest.approx(seconds)


def test_the_ends_of_the_model_are_split_too() -> None:
    forward_s, backward_s = ends_host_s(columns(Layout(tensor_parallel_degree=2)), CORE)
    assert (forward_s[0], backward_s[0]) == (33.0, 44.0)


def test_selective_recomputation_calls_every_operation_again_and_full_counts_it_with_the_pass() -> None:
    def recomputed(recompute: Recompute) -> tuple[float, float]:
        forward_s, backward_s = recompute_host_s(columns(Layout(recompute=recompute)), CORE)
        return float(forward_s[0]), float(backward_s[0])

    assert recomputed(Recompute.NONE) == (0.0, 0.0)
    assert recomputed(Recompute.SELECTIVE) == (0.5, 0.25 + 1.0)
    assert recomputed(Recompute.FULL) == (0.125, 0.0625)


def test_selective_recomputation_repeats_the_dispatch_of_tensor_ranks_and_not_their_waiting() -> None:
    split = SplitTimes(
        num_ranks=2, sequence_parallel=False, layer=both(10.0, 20.0), ends=both(0.0, 0.0), dispatch_s=7.0
    )
    layout = Layout(tensor_parallel_degree=2, recompute=Recompute.SELECTIVE)
    _, backward_s = recompute_host_s(columns(layout), replace(CORE, split=(split,)))
    assert backward_s[0] == 0.25 + 1.0 + 7.0


def test_sharding_adds_to_every_gather_and_reduction_by_the_steps_of_a_ring() -> None:
    gather_s, reduce_s = shard_host_s(np.array([1, 2, 4]), CORE)
    assert gather_s.tolist() == [0.0, 10.0, 30.0]
    assert reduce_s.tolist() == [0.0, 20.0, 60.0]


def test_a_core_that_was_measured_takes_its_seconds_for_every_layer_and_micro_batch() -> None:
    job = tiny_job()
    core = replace(job.cluster.accelerator, core=CORE)
    measured = replace(job, cluster=replace(job.cluster, accelerator=core))
    layout = cpu_layout()
    num_micro_batches = job.workload.num_micro_batches(layout)
    host_s = num_micro_batches * (job.model.num_layers * (1.0 + 2.0) + 3.0 + 4.0)
    assert predict_one(layout, measured).step_time.host_s == pytest.approx(host_s)
