"""The cost model's memory beside a dry run of the same layouts at full size."""

from __future__ import annotations

import pytest

from autotuner.costmodel.predict import predict_one
from autotuner.domain.jobs.job import Job
from autotuner.domain.jobs.workload import Workload
from autotuner.domain.layouts.choice import PipelineSchedule, Recompute, ShardLevel
from autotuner.domain.layouts.layout import Layout
from autotuner.domain.runs.dry_run import DryRunRequest, RankDryRun
from autotuner.domain.runs.prediction import Memory
from autotuner.domain.runs.trial import TrialSpec
from autotuner.launch.torch_jobs import dry_run
from tests.builders import h100_cluster, llama_70b

MODEL = llama_70b(name="llama-3-8b", num_layers=32, hidden_size=4096, num_heads=32, ffn_size=14336)

SHARDED = Layout(data_parallel_shard_degree=8, shard_level=ShardLevel.PARAMETERS)
SPLIT = Layout(
    data_parallel_shard_degree=2,
    shard_level=ShardLevel.PARAMETERS,
    tensor_parallel_degree=2,
    sequence_parallel=True,
    pipeline_parallel_degree=2,
    pipeline_schedule=PipelineSchedule.ONE_F_ONE_B,
)
RECOMPUTING = Layout(tensor_parallel_degree=8, sequence_parallel=True, recompute=Recompute.FULL)
LAYOUTS = (SHARDED, *(pytest.param(layout, marks=pytest.mark.oracle) for layout in (SPLIT, RECOMPUTING)))

TOLERANCE = 0.2
"""Activations and gradients alone: the formulas count what a layer keeps, not when which of it is freed."""


def both(layout: Layout) -> tuple[Memory, RankDryRun]:
    """The prediction and the dry run of the rank that it says is the fullest."""
    workload = Workload(seq_len=4096, global_batch_size=8 * layout.data_parallel_degree)
    job = Job(model=MODEL, cluster=h100_cluster(num_nodes=1), workload=workload)
    spec = TrialSpec(trial_id="memory", model=MODEL, workload=workload, layout=layout, device="cuda")
    memory = predict_one(layout, job).memory
    rank = memory.worst_stage * (layout.world_size // layout.pipeline_parallel_degree)
    return memory, dry_run(DryRunRequest(spec=spec, ranks=(rank,))).fullest


@pytest.mark.timeout(300)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_predicted_memory_is_what_the_fullest_rank_holds(layout: Layout) -> None:
    predicted, found = both(layout)
    held = found.held
    assert predicted.parameters_bytes == pytest.approx(held.parameters_bytes, rel=1e-3)  # shards padded to rows
    assert predicted.optimizer_bytes == pytest.approx(held.optimizer_bytes, rel=1e-3)
    rest = predicted.activations_bytes + predicted.logits_bytes + predicted.buffers_bytes + predicted.gradients_bytes
    found_rest = held.activations_bytes + held.gathered_bytes + held.gradients_bytes
    assert rest == pytest.approx(found_rest, rel=TOLERANCE)
