"""What today's trial job cannot run yet; a sweep keeps these rules too, a prediction does not."""

from __future__ import annotations

from autotuner.domain.choice import AttentionKernel, PipelineSchedule, Precision, Recompute, ShardLevel
from autotuner.domain.rule import Rule, any_of

__all__ = ["TRIAL_RULES"]

TRIAL_RULES: tuple[Rule, ...] = (
    Rule(
        "trial-runs-schedule",
        "pipeline_schedule",
        lambda x, j: any_of(x.pipeline_schedule, (PipelineSchedule.GPIPE, PipelineSchedule.ONE_F_ONE_B)) == 0,
        lambda x, j: f"the trial job does not run schedule {x.pipeline_schedule} yet",
        lambda x, j: PipelineSchedule.ONE_F_ONE_B.label,
    ),
    Rule(
        "trial-runs-shard-level",
        "shard_level",
        lambda x, j: any_of(x.shard_level, (ShardLevel.NONE, ShardLevel.PARAMETERS)) == 0,
        lambda x, j: f"the trial job does not shard {x.shard_level} yet",
        lambda x, j: ShardLevel.PARAMETERS.label,
    ),
    Rule(
        "trial-keeps-pipeline-parameters",
        "reshard_after_forward",
        lambda x, j: (x.reshard_after_forward != 0) & (x.pipeline_parallel_degree > 1),
        lambda x, j: "resharding would gather the parameters again for every micro-batch of the pipeline",
        lambda x, j: False,
    ),
    Rule(
        "trial-runs-recompute",
        "recompute",
        lambda x, j: x.recompute == Recompute.SELECTIVE,
        lambda x, j: "the trial job does not recompute selectively yet",
        lambda x, j: Recompute.FULL.label,
    ),
    Rule(
        "trial-runs-attention-kernel",
        "attention_kernel",
        lambda x, j: x.attention_kernel > AttentionKernel.FLASH,
        lambda x, j: f"the trial job calls scaled_dot_product_attention, which has no kernel {x.attention_kernel}",
        lambda x, j: AttentionKernel.FLASH.label,
    ),
    Rule(
        "trial-fuses-norms",
        "fused_norm",
        lambda x, j: x.fused_norm == 0,
        lambda x, j: "the trial job runs every norm as one operation",
        lambda x, j: True,
    ),
    Rule(
        "trial-runs-torch",
        "precision",
        lambda x, j: (x.world_size > 0) & (j.stack.name != "torch"),
        lambda x, j: f"the trial job runs PyTorch itself, not {j.stack.name}; predict for that, sweep for torch",
    ),
    Rule(
        "trial-runs-precision",
        "precision",
        lambda x, j: x.precision == Precision.FP8,
        lambda x, j: "the trial job does not run fp8 yet",
        lambda x, j: Precision.BF16.label,
    ),
    Rule(
        "trial-splits-no-context",
        "context_parallel_degree",
        lambda x, j: x.context_parallel_degree > 1,
        lambda x, j: "the trial job does not split the context yet",
        lambda x, j: 1,
    ),
    Rule(
        "trial-model-is-dense",
        "expert_parallel_degree",
        lambda x, j: (j.model.experts is not None) | (x.expert_parallel_degree > 1),
        lambda x, j: "the trial job trains dense models only, so far",
        lambda x, j: None if j.model.experts else 1,
    ),
    Rule(
        "trial-attends-without-latents",
        "attention_kernel",
        lambda x, j: (x.world_size > 0) & (j.model.latent_attention is not None),
        lambda x, j: "the trial job has no multi-head latent attention yet",
    ),
    Rule(
        "trial-ties-within-a-stage",
        "pipeline_parallel_degree",
        lambda x, j: (x.pipeline_parallel_degree > 1) & j.model.tied_embeddings,
        lambda x, j: "the tied embedding would lie on the first and the last stage, and no schedule sums its gradients",
        lambda x, j: 1,
    ),
    Rule(
        "trial-ties-one-replica-of-tensor-ranks",
        "data_parallel_replicate_degree",
        lambda x, j: (
            (x.tensor_parallel_degree > 1)
            & (x.data_parallel_replicate_degree > 1)
            & (x.data_parallel_shard_degree == 1)
            & j.model.tied_embeddings
        ),
        lambda x, j: "DDP over tensor ranks loses track of a tied embedding; shard the replicas instead",
        lambda x, j: 1,
    ),
    Rule(
        "trial-efficient-attention-has-equal-heads",
        "attention_kernel",
        lambda x, j: (x.attention_kernel == AttentionKernel.EFFICIENT) & (j.model.num_heads != j.model.num_kv_heads),
        lambda x, j: (
            f"torch's memory-efficient kernel shares no kv heads, and {j.model.num_heads} heads share "
            f"{j.model.num_kv_heads}"
        ),
        lambda x, j: AttentionKernel.FLASH.label,
    ),
    Rule(
        "trial-rotates-pairs",
        "attention_kernel",
        lambda x, j: (x.world_size > 0) & (j.model.num_learned_positions == 0) & (j.model.head_dim % 2 != 0),
        lambda x, j: f"rotary positions turn pairs, and a head of {j.model.head_dim} has an odd one",
    ),
    Rule(
        "trial-keeps-fp32-moments",
        "precision",
        lambda x, j: (x.world_size > 0) & (j.workload.optimizer_state_precision != "fp32"),
        lambda x, j: (
            "the trial job keeps AdamW's moments in fp32; set the workload's optimizer_state_precision to fp32"
        ),
    ),
)
