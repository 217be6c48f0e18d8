"""FLOP of a step; a multiply-add counts as two.

*Model* FLOP is what the mathematics needs, with full (not causal-halved) attention, after PaLM (arXiv 2204.02311,
appendix B). *Hardware* FLOP adds what is computed a second time. What kernels really execute is in ``compute``.
"""

from __future__ import annotations

from autotuner.costmodel.columns import Floats, LayoutColumns
from autotuner.domain.choice import Recompute
from autotuner.domain.legality import Job

__all__ = ["model_flop_per_step", "recomputed_flop_per_step"]


def model_flop_per_step(job: Job) -> float:
    """Forward and backward of the whole batch on the whole job."""
    return float(job.workload.tokens_per_step * job.model.model_flop_per_token(job.workload.seq_len))


def recomputed_flop_per_step(x: LayoutColumns, job: Job) -> Floats:
    """Forward FLOP of the whole job that the layout computes again: attention cores, or all layers."""
    model, seq_len = job.model, job.workload.seq_len
    attention = float(model.attention_flop_per_token(seq_len))
    layers = 2.0 * model.num_active_layer_matrix_parameters + attention
    again = attention * (x.recompute == Recompute.SELECTIVE) + layers * (x.recompute == Recompute.FULL)
    total: Floats = job.workload.tokens_per_step * again
    return total
