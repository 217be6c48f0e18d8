"""FLOP of a trial's step, counted from the shapes; checked against torch's FlopCounterMode in tests/trials."""

from __future__ import annotations

from autotuner.core.jobs.model import TransformerSpec
from autotuner.core.jobs.stages import stage_layers
from autotuner.core.layouts.choice import AttentionKernel, Recompute
from autotuner.core.layouts.layout import Layout
from autotuner.core.runs.trial_spec import TrialSpec

__all__ = ["model_flop", "recomputed_flop"]


def model_flop(spec: TrialSpec) -> int:
    """What the mathematics needs, forward and backward."""
    return spec.model.model_flop_per_step(spec.workload)


def recomputed_flop(spec: TrialSpec) -> int:
    """What ranks compute a second time, in the layers that recompute (arXiv 2205.05198, section 5).

    Full: the layer forward once more, without its last product, whose result nobody saved: torch stops the second
    forward pass when everything that was saved is there again (``set_checkpoint_early_stop``). Selective:
    the products of matrices and the fused attention cores are kept (``recompute``), so with the math kernel it is the
    scores and what they weigh, and else nothing that FLOP count.
    """
    per_token = sum(
        _recomputed_flop_per_token(spec, layer)
        for stage in range(spec.layout.num_stages)
        for layer in stage_layers(spec.layout, spec.model.num_layers, stage)[:: spec.layout.recompute_every]
    )
    return per_token * spec.workload.tokens_per_step


def _recomputed_flop_per_token(spec: TrialSpec, layer: int) -> int:
    model, layout = spec.model, spec.layout
    core = model.attention_flop_per_token(spec.workload.keys_per_token) // model.num_layers
    match layout.recompute:
        case Recompute.NONE:
            return 0
        case Recompute.SELECTIVE:
            return core if _composes_attention(layout) else 0
        case Recompute.FULL:
            return core + 2 * (model.attention_matrix_parameters + _feed_forward_elements_again(model, layer))


def _composes_attention(layout: Layout) -> bool:
    return layout.attention_kernel == AttentionKernel.MATH


def _feed_forward_elements_again(model: TransformerSpec, layer: int) -> int:
    """Elements of the feed-forward matrices that a token meets in a second forward pass.

    A dense block ends with a product; a mixture of experts goes on to weigh and sum what its experts say.
    """
    if model.experts is None or not model.experts.is_sparse(layer):
        return model.mlp_matrix_parameters - model.hidden_size * model.ffn_size
    routed = model.experts.experts_per_token * model.expert_matrix_parameters
    return routed + model.shared_expert_matrix_parameters + model.router_matrix_parameters
