"""Layout: one complete choice of how a model is trained. What makes one legal is in ``legality``."""

from __future__ import annotations

from dataclasses import dataclass, fields

from autotuner.domain import check
from autotuner.domain.choice import (
    AttentionKernel,
    ContextExchange,
    Fp8Recipe,
    OptimizerKernel,
    PipelineSchedule,
    Precision,
    Recompute,
    ShardLevel,
)

__all__ = ["DEFAULT_BUCKET_BYTES", "LAYOUT_FIELDS", "Layout"]

DEFAULT_BUCKET_BYTES = 25 * 2**20
"""DistributedDataParallel's ``bucket_cap_mb`` (PyTorch's documentation, 2.13)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One complete choice of degrees, schedule, sharding, recomputation, kernels and precision.

    Ranks are numbered with the tensor axis innermost, then context, data shard, data replicate, and pipeline
    outermost, so tensor groups stay inside a node. A choice that means nothing beside the others (a schedule with
    one pipeline rank, a bucket size without replicas) stays at its default, so that equal runs are equal values.

    Attributes:
        first_stage_less_layers: Layers that the first stage has fewer than an even split gives it, for the embedding.
        last_stage_less_layers: The same for the last stage, which multiplies by the vocabulary.
        loss_parallel: Each tensor rank keeps its part of the logits; else all are gathered before the loss.
        async_tensor_parallel: Tensor collectives are cut up and run under the matrix products next to them.
        recompute_every: One layer in so many recomputes, the first of them and every n-th after it.
        gradient_bucket_bytes: Gradients that replicas reduce together.
        fp32_gradient_reduce: Replicas and shards sum gradients in fp32, whatever the precision.
        compiled: Every layer is compiled (``torch.compile``).
        offload_activations: What the backward pass needs waits in the host's memory.
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
    first_stage_less_layers: int = 0
    last_stage_less_layers: int = 0
    loss_parallel: bool = True
    async_tensor_parallel: bool = False
    context_exchange: ContextExchange = ContextExchange.RING
    recompute_every: int = 1
    gradient_bucket_bytes: int = DEFAULT_BUCKET_BYTES
    fp32_gradient_reduce: bool = False
    fp8_recipe: Fp8Recipe = Fp8Recipe.TENSORWISE
    compiled: bool = False
    optimizer_kernel: OptimizerKernel = OptimizerKernel.FUSED
    offload_activations: bool = False

    def __post_init__(self) -> None:
        check.positive(self, *(f.name for f in fields(self) if f.type == "int" and "_less_" not in f.name))
        check.non_negative(self, "first_stage_less_layers", "last_stage_less_layers")

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

    @property
    def is_emulated(self) -> bool:
        """Whether it runs a number format that its hardware lacks: its speed says nothing, so it has no rank."""
        return self.precision == Precision.FP8_EMULATED

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
        words += [word for word, is_said in self._choices() if is_said]
        return " ".join(words)

    def _choices(self) -> tuple[tuple[str, bool], ...]:
        """Words of the other fields, and whether the layout's name needs them."""
        less_first, less_last = self.first_stage_less_layers, self.last_stage_less_layers
        return (
            (self.pipeline_schedule.label, self.pipeline_parallel_degree > 1),
            (f"lessfirst{less_first}", less_first > 0),
            (f"lesslast{less_last}", less_last > 0),
            (f"mb{self.micro_batch_size}", True),
            ("sp", self.sequence_parallel),
            ("async-tp", self.async_tensor_parallel),
            ("gathered-logits", not self.loss_parallel),
            (f"cp-{self.context_exchange.label}", self.context_exchange != ContextExchange.RING),
            ("reshard", self.reshard_after_forward),
            (f"bucket{self.gradient_bucket_bytes}", self.gradient_bucket_bytes != DEFAULT_BUCKET_BYTES),
            ("fp32-reduce", self.fp32_gradient_reduce),
            (f"recompute-{self.recompute.label}", self.recompute != Recompute.NONE),
            (f"every{self.recompute_every}", self.recompute_every > 1),
            ("offload", self.offload_activations),
            ("unfused-norm", not self.fused_norm),
            ("compiled", self.compiled),
            (self.optimizer_kernel.label, self.optimizer_kernel != OptimizerKernel.FUSED),
            (self.attention_kernel.label, True),
            (self.precision.label, True),
            (self.fp8_recipe.label, self.fp8_recipe != Fp8Recipe.TENSORWISE),
        )


LAYOUT_FIELDS: tuple[str, ...] = tuple(f.name for f in fields(Layout))
