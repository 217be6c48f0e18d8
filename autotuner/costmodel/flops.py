"""FLOP of a step and of its parts; a multiply-add counts as two.

*Model* FLOP is what the mathematics needs, with full (not causal-halved) attention, after PaLM (arXiv 2204.02311,
appendix B). *Hardware* FLOP adds what is computed a second time. What kernels really execute is in ``compute``.
"""

from __future__ import annotations

from autotuner.costmodel.columns import Floats, LayoutColumns
from autotuner.domain.choice import Recompute
from autotuner.domain.legality import Job
from autotuner.domain.model import TransformerSpec

__all__ = [
    "attention_flop_per_token",
    "layer_matrix_flop_per_token",
    "model_flop_per_step",
    "output_flop_per_token",
    "recomputed_flop_per_step",
]


def layer_matrix_flop_per_token(model: TransformerSpec, *, sparse: bool) -> int:
    """Forward FLOP of one layer's matrices for one token: 2 per element that multiplies it."""
    elements = model.attention_matrix_parameters
    if sparse and model.experts:
        active = model.experts.experts_per_token + model.experts.num_shared_experts
        elements += active * model.expert_matrix_parameters + model.router_matrix_parameters
    else:
        elements += model.mlp_matrix_parameters
    return 2 * elements


def attention_flop_per_token(model: TransformerSpec, seq_len: int) -> float:
    """Forward FLOP of one layer's score and value products for one token, full attention."""
    return model.attention_flop_per_token(seq_len) / model.num_layers


def output_flop_per_token(model: TransformerSpec) -> int:
    """Forward FLOP of the output projection for one token."""
    return 2 * model.embedding_parameters


def model_flop_per_step(job: Job) -> float:
    """Forward and backward of the whole batch on the whole job."""
    return float(job.workload.tokens_per_step * job.model.model_flop_per_token(job.workload.seq_len))


def recomputed_flop_per_step(x: LayoutColumns, job: Job) -> Floats:
    """Forward FLOP of the whole job that the layout computes again: attention cores, or all layers."""
    model, seq_len = job.model, job.workload.seq_len
    attention = model.attention_flop_per_token(seq_len)
    layers = 2 * model.num_active_layer_matrix_parameters + attention
    again = attention * (x.recompute == Recompute.SELECTIVE) + layers * (x.recompute == Recompute.FULL)
    total: Floats = job.workload.tokens_per_step * again.astype(float)
    return total
