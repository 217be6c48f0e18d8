"""FLOP of a step; a multiply-add counts as two.

*Model* FLOP is what the mathematics needs, with full (not causal-halved) attention, after PaLM (arXiv 2204.02311,
appendix B). *Hardware* FLOP adds what is computed a second time. What kernels really execute is in ``compute``.
"""

from __future__ import annotations

import numpy as np

from autotuner.core.choices import Recompute
from autotuner.core.columns import Floats, LayoutColumns
from autotuner.core.job import Job
from autotuner.costmodel.layer.recompute import product_share, repeats_core
from autotuner.costmodel.pipeline.stage_layers import model_layers_not_recomputed


def model_flop_per_step(job: Job) -> float:
    """Forward and backward of the whole batch on the whole job."""
    return float(job.model.model_flop_per_step(job.workload))


def recomputed_flop_per_step(x: LayoutColumns, job: Job) -> Floats:
    """Forward FLOP of the whole job that the layout computes again, on the layers that recompute.

    All of theirs, or what the stack's selective recomputation repeats of products and attention cores.
    """
    model, keys = job.model, job.workload.keys_per_token
    dense, sparse = _recomputing_layers(x, job)
    attention = (dense + sparse) / model.num_layers * float(model.attention_flop_per_token(keys))
    dense_parameters = model.mean_attention_matrix_parameters + model.mlp_matrix_parameters
    num_dense = model.num_layers - model.num_sparse_layers
    all_sparse = model.num_active_layer_matrix_parameters - num_dense * dense_parameters
    layers = 2.0 * (dense * dense_parameters + sparse / max(1, model.num_sparse_layers) * all_sparse) + attention
    shares = [product_share(x, job, sparse=kind) for kind in (False, True)]
    products = dense * shares[0] * dense_parameters
    products = products + sparse * shares[1] * all_sparse / max(1, model.num_sparse_layers)
    selective = 2.0 * products + attention * repeats_core(x, job)
    again = np.where(x.recompute == Recompute.SELECTIVE, selective, layers * (x.recompute == Recompute.FULL))
    total: Floats = job.workload.tokens_per_step * again
    return total


def _recomputing_layers(x: LayoutColumns, job: Job) -> tuple[Floats, Floats]:
    """Dense and sparse layers of the model that recompute where the layout does."""
    num_sparse = job.model.num_sparse_layers
    num_dense = job.model.num_layers - num_sparse
    if not (x.recompute_every > 1).any():
        return np.full(len(x), float(num_dense)), np.full(len(x), float(num_sparse))
    not_recomputed = model_layers_not_recomputed(x, job)
    return (num_dense - not_recomputed.dense).astype(np.float64), (num_sparse - not_recomputed.sparse).astype(
        np.float64
    )
