"""Layout: one complete choice of how a model is trained. What makes one legal is in ``legality``."""

from __future__ import annotations

from dataclasses import dataclass, fields

from autotuner.domain import check
from autotuner.domain.choice import AttentionKernel, PipelineSchedule, Precision, Recompute, ShardLevel

__all__ = ["LAYOUT_FIELDS", "Layout"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One complete choice of degrees, schedule, sharding, recomputation, kernels and precision.

    Ranks are numbered with the tensor axis innermost, then context, data shard, data replicate, and pipeline
    outermost, so tensor groups stay inside a node. A layout with one pipeline rank runs no schedule; its
    ``pipeline_schedule`` stays at the default so that equal runs are equal values.
    """

    data_parallel_replicate_degree: int = 1
    data_parallel_shard_degree: int = 1
    tensor_parallel_degree: int = 1
    context_parallel_degree: int = 1
    expert_parallel_degree: int = 1
    pipeline_parallel_degree: int = 1
    virtual_stages_per_rank: int = 1
    micro_batch_size: int = 1
    pipeline_schedule: PipelineSchedule = PipelineSchedule.ONE_F_ONE_B
    sequence_parallel: bool = False
    shard_level: ShardLevel = ShardLevel.NONE
    reshard_after_forward: bool = False
    recompute: Recompute = Recompute.NONE
    attention_kernel: AttentionKernel = AttentionKernel.FLASH
    precision: Precision = Precision.BF16
    fused_norm: bool = True

    def __post_init__(self) -> None:
        check.positive(self, *(f.name for f in fields(self) if f.type == "int"))

    @property
    def data_parallel_degree(self) -> int:
        """Replicas of the model, sharded or not: how many ways the batch is split."""
        return self.data_parallel_replicate_degree * self.data_parallel_shard_degree

    @property
    def world_size(self) -> int:
        """Ranks; the expert degree is no factor, it divides the shard, context and tensor ranks."""
        return (
            self.data_parallel_degree
            * self.context_parallel_degree
            * self.tensor_parallel_degree
            * self.pipeline_parallel_degree
        )

    @property
    def num_stages(self) -> int:
        """Pipeline stages, in PyTorch's sense."""
        return self.pipeline_parallel_degree * self.virtual_stages_per_rank

    def __str__(self) -> str:
        """The degrees that differ from 1 and the choices that differ from plain: ``tp2 pp4 1f1b mb1 full``."""
        degrees = (
            ("dp", self.data_parallel_replicate_degree),
            ("fsdp" if self.shard_level == ShardLevel.PARAMETERS else "zero", self.data_parallel_shard_degree),
            ("tp", self.tensor_parallel_degree),
            ("cp", self.context_parallel_degree),
            ("ep", self.expert_parallel_degree),
            ("pp", self.pipeline_parallel_degree),
            ("v", self.virtual_stages_per_rank),
        )
        words = [f"{name}{degree}" for name, degree in degrees if degree > 1]
        if self.pipeline_parallel_degree > 1:
            words.append(self.pipeline_schedule.label)
        words.append(f"mb{self.micro_batch_size}")
        if self.sequence_parallel:
            words.append("sp")
        if self.reshard_after_forward:
            words.append("reshard")
        if self.recompute != Recompute.NONE:
            words.append(f"recompute-{self.recompute.label}")
        if not self.fused_norm:
            words.append("unfused-norm")
        return " ".join([*words, self.attention_kernel.label, self.precision.label])


LAYOUT_FIELDS: tuple[str, ...] = tuple(f.name for f in fields(Layout))
