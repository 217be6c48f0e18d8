"""Which models the trial job builds: one rule per shape that its decoder does not have."""

from __future__ import annotations

from autotuner.core.jobs.job import Job
from autotuner.core.rules.rule import Rule, job_rule

__all__ = ["TRIAL_MODEL_RULES"]


def _differs(name: str, field: str, built: object, message: str) -> Rule:
    """A shape that the trial job builds with one value only."""
    return job_rule(name, f"model.{field}", lambda j: bool(getattr(j.model, field) != built), lambda j: message)


def _experts_are_special(job: Job) -> bool:
    experts = job.model.experts
    special = experts and (experts.capacity_factor is not None or experts.expert_bias or experts.shared_expert_gate)
    return bool(special)


def _experts_message(job: Job) -> str:
    assert job.model.experts is not None
    if job.model.experts.expert_bias:
        return "experts of the trial job carry no biases"
    if job.model.experts.shared_expert_gate:
        return "nothing in the trial job weighs what shared experts answer"
    return "each expert of the trial job takes as many tokens as choose it, whatever its capacity"


TRIAL_MODEL_RULES: tuple[Rule, ...] = (
    job_rule("trial-experts-are-plain", "model.experts", _experts_are_special, _experts_message),
    job_rule(
        "trial-attends-without-latents",
        "model.latent_attention",
        lambda j: j.model.latent_attention is not None,
        lambda j: "the trial job has no multi-head latent attention yet",
    ),
    job_rule(
        "trial-attends-without-windows",
        "model.num_windowed_layers",
        lambda j: j.model.num_windowed_layers > 0 and j.model.attention_window < j.workload.seq_len,
        lambda j: "queries of the trial job see all keys before them",
    ),
    job_rule(
        "trial-rotates-pairs",
        "model.head_dim",
        lambda j: j.model.num_learned_positions == 0 and j.model.head_dim % 2 != 0,
        lambda j: f"rotary positions turn pairs, and a head of {j.model.head_dim} has an odd one",
    ),
    _differs(
        "trial-attends-in-every-layer", "num_linear_layers", 0, "every layer of the trial job attends, none linearly"
    ),
    _differs(
        "trial-norms-each-block-once",
        "num_norms_per_layer",
        2,
        "layers of the trial job have one norm before each of their two blocks, which follow each other",
    ),
    _differs(
        "trial-norms-heads-alike",
        "qk_norm_of_all_heads",
        False,
        "the trial job norms the queries and keys of each head by themselves",
    ),
    _differs(
        "trial-attends-to-tokens-alone",
        "attention_sinks",
        False,
        "scores of the trial job are those of tokens alone, without sinks",
    ),
    _differs(
        "trial-gates-no-attention",
        "attention_output_gate",
        False,
        "nothing in the trial job weighs what the heads of attention give",
    ),
    _differs("trial-embeds-without-norm", "embedding_norm", False, "the trial job does not normalise embedded tokens"),
    _differs(
        "trial-projects-without-bias", "output_bias", False, "the output projection of the trial job carries no bias"
    ),
)
