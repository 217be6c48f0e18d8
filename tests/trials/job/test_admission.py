from __future__ import annotations

from typing import Any

import pytest

from autotuner.core.blocks import LatentAttention
from autotuner.core.choices import (
    AttentionKernel,
    CollectiveAlgorithm,
    CollectiveHierarchy,
    CollectiveProtocol,
    PipelineSchedule,
    Precision,
    RankPlacement,
    Recompute,
    ShardLevel,
)
from autotuner.core.errors import InvalidInput
from autotuner.core.trial_spec import TrialSpec
from autotuner.core.workload import Workload
from tests.builders import cpu_layout, tiny_model
from tests.trials.specs import ddp, hsdp, trial_spec, zero
from trials.job.admission import admit
from trials.runtime.rank import RankInfo

LATENT = LatentAttention(query_rank=8, key_value_rank=8, rope_head_dim=8, value_head_dim=16)

ZERO_BUBBLE: dict[str, Any] = {"pipeline_parallel_degree": 2, "pipeline_schedule": PipelineSchedule.ZERO_BUBBLE}

REFUSED: tuple[tuple[str, TrialSpec], ...] = (
    ("pipeline_schedule", trial_spec(cpu_layout(pipeline_schedule=PipelineSchedule.ZERO_BUBBLE))),
    ("recompute", trial_spec(cpu_layout(recompute=Recompute.SELECTIVE, **ZERO_BUBBLE))),
    ("compiled", trial_spec(cpu_layout(compiled=True, **ZERO_BUBBLE))),
    ("offload_activations", trial_spec(cpu_layout(offload_activations=True))),
    ("collective_algorithm", trial_spec(ddp(2, collective_algorithm=CollectiveAlgorithm.NVLS))),
    ("collective_algorithm", trial_spec(zero(2, collective_algorithm=CollectiveAlgorithm.TREE))),
    ("collective_hierarchy", trial_spec(ddp(4, collective_hierarchy=CollectiveHierarchy.TWO_LEVEL))),
    ("rank_placement", trial_spec(ddp(4, rank_placement=RankPlacement.CYCLIC))),
    ("collective_protocol", trial_spec(ddp(2, collective_protocol=CollectiveProtocol.SIMPLE))),
    ("collective_channels", trial_spec(ddp(2, collective_channels=4))),
    ("precision", trial_spec(cpu_layout(precision=Precision.FP8))),
    ("attention_kernel", trial_spec(cpu_layout(attention_kernel=AttentionKernel.EFFICIENT))),
    ("attention_kernel", trial_spec(cpu_layout(attention_kernel=AttentionKernel.FLEX))),
    ("attention_kernel", trial_spec(cpu_layout(attention_kernel=AttentionKernel.FLASH_3), device="cuda")),
    ("tensor_parallel_degree", trial_spec(cpu_layout(tensor_parallel_degree=3))),
    ("micro_batch_size", trial_spec(cpu_layout(micro_batch_size=3))),
    ("shard_level", trial_spec(zero(2, shard_level=ShardLevel.GRADIENTS, pipeline_parallel_degree=2))),
    ("reshard_after_forward", trial_spec(zero(2, reshard_after_forward=True))),
    ("model.latent_attention", trial_spec(model=tiny_model(latent_attention=LATENT))),
    ("attention_kernel", trial_spec(cpu_layout(attention_kernel=AttentionKernel.EFFICIENT), device="cuda")),
    (
        "workload.optimizer_state_precision",
        trial_spec(workload=Workload(seq_len=32, global_batch_size=8, optimizer_state_precision="bf16")),
    ),
    ("workload.seq_len", trial_spec(model=tiny_model(num_learned_positions=31))),
)


def rank_info(world_size: int, local_world_size: int | None = None) -> RankInfo:
    return RankInfo(world_size=world_size, local_world_size=local_world_size or world_size)


@pytest.mark.parametrize(("field", "spec"), REFUSED, ids=lambda value: value if isinstance(value, str) else "")
def test_a_spec_that_cannot_run_is_refused_by_the_field_to_change(field: str, spec: TrialSpec) -> None:
    with pytest.raises(InvalidInput) as refusal:
        admit(spec, rank_info(spec.layout.world_size))
    assert refusal.value.field.endswith(field)


@pytest.mark.parametrize(
    ("layout", "where"),
    [
        (cpu_layout(), rank_info(1)),
        (cpu_layout(precision=Precision.FP8_EMULATED, compiled=True, fused_norm=False), rank_info(1)),
        (cpu_layout(tensor_parallel_degree=2, pipeline_parallel_degree=2), rank_info(4)),
        (hsdp(2, 2, tensor_parallel_degree=2), rank_info(8, local_world_size=4)),
    ],
)
def test_a_legal_layout_on_its_number_of_ranks_is_admitted(layout: Any, where: RankInfo) -> None:
    admit(trial_spec(layout), where)


def test_a_gpu_is_given_what_only_gpus_can() -> None:
    layout = cpu_layout(
        precision=Precision.FP8, attention_kernel=AttentionKernel.FLEX, compiled=True, offload_activations=True
    )
    admit(trial_spec(layout, device="cuda"), rank_info(1))


def test_a_wrong_number_of_ranks_is_refused_with_both_numbers() -> None:
    with pytest.raises(InvalidInput, match="multiply to 2 ranks, the cluster has 4"):
        admit(trial_spec(cpu_layout(tensor_parallel_degree=2)), rank_info(4))


def test_a_tensor_group_across_hosts_is_refused() -> None:
    with pytest.raises(InvalidInput, match="2 tensor ranks do not divide the 1 accelerators of a node"):
        admit(trial_spec(cpu_layout(tensor_parallel_degree=2)), rank_info(2, local_world_size=1))
