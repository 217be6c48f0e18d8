"""Time of recomputation, and the FLOP of a layer.

*Model* FLOP is the work that the mathematics needs, with full (not causal-halved) attention, after PaLM (arXiv
2204.02311, appendix B). *Hardware* FLOP adds the work that is computed a second time. ``compute`` has the work that
kernels really execute.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import NamedTuple

import numpy as np

from autotuner.core.choices import Recompute
from autotuner.core.columns import Booleans, Floats, LayoutColumns
from autotuner.core.job import Job
from autotuner.core.model import TransformerSpec
from autotuner.core.recompute import LayerPart, recomputed
from autotuner.costmodel.layer.memory_bound import pointwise_shares
from autotuner.costmodel.memory.activations import has_scores
from autotuner.costmodel.shared.low_precision import is_narrow
from autotuner.costmodel.shared.stages import PartKind, model_layers_not_recomputed


def model_flop_per_step(job: Job) -> float:
    """Return the FLOP of a step's forward and backward passes over the whole batch, without recomputation."""
    return float(job.model.model_flop_per_step(job.workload))


def recomputed_flop_per_step(x: LayoutColumns, job: Job) -> Floats:
    """Return the FLOP per step that the backward passes of all ranks compute a second time.

    Full recomputation repeats the forward pass of each layer that recomputes. Selective recomputation repeats the
    products and attention cores that the stack's policy names.
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
    """Return the numbers of dense and of sparse layers that recompute.

    They count only where the layout recomputes.
    """
    num_sparse = job.model.num_sparse_layers
    num_dense = job.model.num_layers - num_sparse
    left_out = model_layers_not_recomputed(x, job)
    dense, sparse = num_dense - left_out[PartKind.DENSE], num_sparse - left_out[PartKind.SPARSE]
    return dense.astype(np.float64), sparse.astype(np.float64)


_P = LayerPart


class ForwardTimes(NamedTuple):
    """The seconds of a layer's forward pass on one rank, without collectives, one row per layout."""

    products_s: Floats
    """Matrix products."""
    attention_s: Floats
    """The attention core."""
    pointwise_s: Floats
    """All other operations of the layer, such as norms."""
    host_s: Floats
    """Time for which the device waits for the host."""

    @property
    def total_s(self) -> Floats:
        """The seconds of the whole forward pass."""
        return self.products_s + self.attention_s + self.pointwise_s + self.host_s


def recompute_s(x: LayoutColumns, job: Job, forward: ForwardTimes, *, sparse: bool) -> Floats:
    """Return the seconds that a layer's backward pass spends on recomputation.

    The repeated share of the matrix products' time is computed from their FLOP. The repeated share of other operations
    is computed from the bytes that they move.

    Args:
        x: Layouts.
        job: The job.
        forward: Seconds of the layer's forward pass.
        sparse: True for a layer with experts.
    """
    full, selective = x.recompute == Recompute.FULL, x.recompute == Recompute.SELECTIVE
    if not selective.any():
        return np.where(full, forward.total_s, 0.0)
    repeats = recomputed(job.stack.selective_recompute).repeats
    again = product_share(x, job, sparse=sparse) * forward.products_s + forward.attention_s * repeats_core(x, job)
    shares = pointwise_shares(x, job, sparse=sparse)
    share = reduce(np.add, (shares[part] for part in shares if part in repeats), np.zeros(len(x)))
    return np.where(full, forward.total_s, np.where(selective, again + forward.pointwise_s * share, 0.0))


def repeats_core(x: LayoutColumns, job: Job) -> Booleans:
    """Return a mask over the layouts: True where recomputation runs the attention core (scores and values) again."""
    repeats = recomputed(job.stack.selective_recompute).repeats
    selective = (_P.CORE in repeats) | ((_P.SCORES in repeats) & has_scores(x))
    again: Booleans = (x.recompute == Recompute.FULL) | ((x.recompute == Recompute.SELECTIVE) & selective)
    return again


def repeats_routing(x: LayoutColumns, job: Job) -> Booleans:
    """Return a mask over the layouts: True where recomputation sends tokens to their experts again."""
    again = _P.EXPERT_DOWN in recomputed(job.stack.selective_recompute).repeats
    repeated: Booleans = (x.recompute == Recompute.FULL) | ((x.recompute == Recompute.SELECTIVE) & again)
    return repeated


def collectives_again(x: LayoutColumns, job: Job) -> Floats:
    """Return the share of collectives among tensor ranks in a forward pass that the backward pass repeats, 0..1.

    Attention and the feed-forward block each reduce their result. With sequence parallelism they also gather their
    input. A gather and a reduction then each take as long as half of an all-reduce.
    """
    repeats = recomputed(job.stack.selective_recompute).repeats
    gathers = (_P.ATTENTION_GATHER in repeats) + (_P.MLP_GATHER in repeats)
    reduces = (_P.ATTENTION_REDUCE in repeats) + (_P.MLP_REDUCE in repeats)
    share = np.where(x.sequence_parallel, (gathers + reduces) / 4, reduces / 2)
    selective = np.where(x.recompute == Recompute.SELECTIVE, share, 0.0)
    return np.where(x.recompute == Recompute.FULL, 1.0, selective)


def product_share(x: LayoutColumns, job: Job, *, sparse: bool) -> Floats:
    """Return the share of a layer's matrix products, by FLOP, that selective recomputation repeats, from 0 to 1.

    Args:
        x: Layouts, one per row.
        job: The job.
        sparse: True for a layer with experts.
    """
    parts = _product_parts(job.model, sparse=sparse)
    repeats = recomputed(job.stack.selective_recompute).repeats
    named = sum(size for part, size in parts.items() if part in repeats) / sum(parts.values())
    return np.where(is_narrow(x) & x.compiled & job.stack.repeats_fp8_products, 1.0, named)


def _product_parts(model: TransformerSpec, *, sparse: bool) -> Mapping[LayerPart, float]:
    """Return the number of matrix elements that a token is multiplied with in each part of a layer.

    Linear attention counts as attention.
    """
    return _attention_parts(model) | (_expert_parts(model) if sparse and model.experts else _mlp_parts(model))


def _attention_parts(model: TransformerSpec) -> dict[LayerPart, float]:
    hidden, latent = model.hidden_size, model.latent_attention
    output = {_P.ATTENTION_OUTPUT: float(model.attention_output_size * hidden)}
    if latent is None:
        key = value = hidden * model.key_value_size / 2
        query = float(hidden * (model.query_size + model.output_gate_size))
        return output | {_P.QUERY: query, _P.KEY: key, _P.VALUE: value}
    up = (latent.query_rank or 0) * model.query_size  # uncompressed queries are projected in one step
    up += latent.key_value_rank * model.num_heads * (model.head_dim + latent.value_head_dim)
    down = model.attention_matrix_parameters - output[_P.ATTENTION_OUTPUT] - up
    return output | {_P.QUERY: down, _P.LATENT_UP: float(up)}


def _mlp_parts(model: TransformerSpec) -> dict[LayerPart, float]:
    each = float(model.hidden_size * model.ffn_size)
    return {_P.MLP_UP: each, _P.MLP_DOWN: each} | ({_P.MLP_GATE: each} if model.gated_mlp else {})


def _expert_parts(model: TransformerSpec) -> dict[LayerPart, float]:
    experts = model.experts
    assert experts is not None
    each = float(experts.experts_per_token * model.hidden_size * experts.expert_ffn_size)
    gate = {_P.EXPERT_GATE: each} if model.gated_mlp else {}
    shared = float(model.shared_expert_matrix_parameters)
    routing = {_P.ROUTING: float(model.router_matrix_parameters), _P.SHARED_EXPERTS: shared}
    return routing | gate | {_P.EXPERT_UP: each, _P.EXPERT_DOWN: each}
