"""Memory of weights, gradients and optimizer states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import cast

import numpy as np

from autotuner.core.choices import GradientSync, ShardLevel
from autotuner.core.columns import Booleans, Floats, Integers, LayoutColumns, is_one_of
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.model import TransformerSpec
from autotuner.core.stages import ONE_STAGE_SCHEDULES, follows_signs, payload_bytes
from autotuner.costmodel.shared.low_precision import parameter_bytes
from autotuner.costmodel.shared.micro_batch import width_split
from autotuner.costmodel.shared.stages import PartKind, RankLoad, num_micro_batches

_WORKING_BYTES: Mapping[GradientSync, float] = {
    GradientSync.FULL: 0.0,
    # components, sent components and their part of the momentum; or sums and numbers of senders
    GradientSync.DEMO: 4 + 4 + 4,
    GradientSync.RANDOM: 4.0,  # sent elements among zeros, or received elements
    GradientSync.STRIDING: 4.0,
    GradientSync.DILOCO: 4 + 4 + 4,  # changes of parameters: computed, packed, divided
}
"""Bytes of fp32 matrices that an exchange needs at once, per element of a rank
(``autotuner.training.lossy_exchange``)."""


def state_bytes(x: LayoutColumns, job: Job) -> Floats:
    """Return the bytes per weight of optimizer states and of lossy gradient exchanges, without the fp32 master weight.

    AdamW has two moments. A lossy exchange has an fp32 momentum, in addition to the moments or in their place. DiLoCo
    has an anchor: the weights after the last exchange, from which it computes the change.
    """
    moments_bytes = np.full(len(x), 2 * (4.0 if job.workload.optimizer_state_precision == "fp32" else 2.0))
    if not x.gradient_sync.any():
        return moments_bytes
    one = cast("Layout", x)
    return np.where(follows_signs(one), 0.0, moments_bytes) + np.where(x.gradient_sync == GradientSync.FULL, 0.0, 4.0)


def exchanging_bytes(x: LayoutColumns, owned: Floats) -> Floats:
    """Return the temporary bytes of a lossy gradient exchange on a rank; 0 if replicas sum their whole gradients.

    They hold matrices of the exchange, and the data that the rank gathered from other replicas.

    Args:
        x: The layouts.
        owned: Elements that a rank owns, of shape (layouts,).
    """
    sync = x.gradient_sync
    working = np.array([_WORKING_BYTES[one] for one in GradientSync])[sync]
    gathered = np.where(sync == GradientSync.DEMO, x.data_parallel_replicate_degree, 0)
    payload = cast("Floats", payload_bytes(cast("Layout", x), cast("float", owned), 4.0))
    found: Floats = working * owned + gathered * payload
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharding:
    """The way in which data-parallel ranks divide weights, gradients and optimizer states, one row per layout.

    The fields hold for every pipeline rank of a layout.
    """

    dense_ranks: Floats
    """Number of ranks that share one copy of the optimizer states of the dense weights."""
    expert_ranks: Floats
    """Number of ranks that share one copy of the optimizer states of the experts."""
    shards_parameters: Booleans
    """True if weights are sharded and gathered for use."""
    parameter_bytes: Floats
    """Bytes of one weight on a rank that holds it whole."""
    gradient_bytes: Floats
    """Bytes of one gradient when it is reduced."""
    summed_bytes: Floats
    """Bytes of one gradient when it is summed over micro-batches."""
    whole_gradients: Booleans
    """True if a rank sums the gradients of all its weights, and not only of those that it owns."""
    keeps_buckets: Booleans
    """True if gradients are kept during the optimizer's step."""
    has_gradient_memory: Booleans
    """True if gradients have memory before the first backward pass."""
    gradient_copies: Floats
    """Number of copies of a rank's gradients. There are two if DistributedDataParallel has buckets for them and sums
    those of earlier micro-batches outside of these (``no_sync``, torch 2.13)."""

    @classmethod
    def of(cls, x: LayoutColumns, job: Job) -> Sharding:
        """Return how the data-parallel ranks of each layout divide weights, gradients and optimizer states."""
        dense_ranks, expert_ranks = _shard_ranks(x, job)
        several = num_micro_batches(x, job) > 1
        sums_whole, in_buckets = _sums_whole(x) & several, _in_buckets(x, job)
        return cls(
            dense_ranks=dense_ranks,
            expert_ranks=expert_ranks,
            shards_parameters=x.shard_level == ShardLevel.PARAMETERS,
            parameter_bytes=parameter_bytes(x, job),
            gradient_bytes=gradient_bytes(x, job),
            summed_bytes=summed_bytes(x, job),
            whole_gradients=(x.shard_level <= ShardLevel.OPTIMIZER) | sums_whole,
            keeps_buckets=_keeps_buckets(x),
            has_gradient_memory=in_buckets | job.stack.allocates_gradients,
            gradient_copies=np.where(in_buckets & several, 2.0, 1.0),
        )


def owned_elements(x: LayoutColumns, job: Job, held: Weights) -> Floats:
    """Return the number of weights that a rank's optimizer updates: its shard, or all its weights without sharding.

    Args:
        x: Layouts, one per row.
        job: The job.
        held: Weights of the rank before they are split over data-parallel ranks.
    """
    dense_ranks, expert_ranks = _shard_ranks(x, job)
    owned: Floats = held.dense / dense_ranks + held.expert / expert_ranks
    return owned


def _sums_whole(x: LayoutColumns) -> Booleans:
    """Return the layouts that sum unsharded gradients until the last micro-batch although parameters are sharded.

    A pipeline does so, whether it reshards or not (``backward_maybe_with_nosync`` of
    torch/distributed/pipelining/stage.py, torch 2.13).
    """
    sums: Booleans = (x.shard_level == ShardLevel.PARAMETERS) & (x.pipeline_parallel_degree > 1)
    return sums


def gradient_bytes(x: LayoutColumns, job: Job) -> Floats:
    """Return the bytes of one gradient element while data-parallel ranks reduce it."""
    return np.where(x.fp32_gradient_reduce | job.stack.sums_gradients_in_fp32, 4.0, x.element_bytes)


def summed_bytes(x: LayoutColumns, job: Job) -> Floats:
    """Return the bytes of one gradient element while a rank sums it over its micro-batches.

    The product's own trainer widens gradients to fp32 only when it copies them for an fp32 reduction. The exception is
    FSDP in a pipeline: it sums whole gradients in the format of the reduction (``unsharded_accumulated_grad`` of
    torch/distributed/fsdp, torch 2.13).
    """
    on_the_way = job.stack.fills_buckets & (not job.stack.sums_gradients_in_fp32) & ~_sums_whole(x)
    return np.where(on_the_way, x.element_bytes, gradient_bytes(x, job))


def _shard_ranks(x: LayoutColumns, job: Job) -> tuple[Floats, Floats]:
    """Return the number of ranks that share one copy of the dense weights, and of the experts."""
    sharded = x.shard_level != ShardLevel.NONE
    dense = np.where(sharded, x.data_parallel_shard_degree * x.context_parallel_degree, 1.0)
    if job.model.experts is None:
        return dense, dense
    expert = np.maximum(1.0, np.where(sharded, dense * x.tensor_parallel_degree / expert_split(x, job), 1.0))
    if job.stack.shards_whole_experts:
        # for the rank with most experts
        whole = job.model.experts.num_experts / np.ceil(job.model.experts.num_experts / expert)
        takes_whole = (x.expert_parallel_degree == 1) & (x.shard_level >= ShardLevel.GRADIENTS)
        expert = np.where(takes_whole, whole, expert)
    return dense, expert


def _in_buckets(x: LayoutColumns, job: Job) -> Booleans:
    """Return the layouts whose gradients DistributedDataParallel reduces, with one stage per pipeline rank."""
    replicas = (x.shard_level == ShardLevel.NONE) & (x.data_parallel_degree * x.context_parallel_degree > 1)
    one_stage = (x.pipeline_parallel_degree == 1) | is_one_of(x.pipeline_schedule, ONE_STAGE_SCHEDULES)
    in_buckets: Booleans = replicas & one_stage & job.stack.fills_buckets
    return in_buckets


def _keeps_buckets(x: LayoutColumns) -> Booleans:
    """Return the layouts whose gradients are kept during the optimizer's step, as views of DDP's buckets.

    Other gradients are freed one by one when they are converted to fp32 (``gradient_as_bucket_view`` of
    DistributedDataParallel).
    """
    keeps: Booleans = (x.shard_level <= ShardLevel.OPTIMIZER) & (x.data_parallel_degree * x.context_parallel_degree > 1)
    return keeps


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """The numbers of weights on a rank, by kind of weight, before data-parallel ranks split them."""

    dense: Floats
    """Number of weights on the rank that are split over tensor ranks and stages only."""
    expert: Floats
    """Number of weights of routed experts on the rank, which are split over expert ranks, over tensor ranks, or over
    both."""
    layer: Floats
    """Number of weights of the largest layer, including experts, which FSDP gathers at once."""
    tables: Floats
    """Number of weights of the vocabulary tables and of everything else that is gathered with the two ends of the
    model."""


def weights(x: LayoutColumns, job: Job, load: RankLoad) -> Weights:
    """Return the numbers of weights on a pipeline rank, by kind of weight, before data-parallel ranks split them.

    Args:
        x: Layouts, one per row.
        job: The job.
        load: Layers and other parts of the model on the rank.
    """
    model, tensor = job.model, x.tensor_parallel_degree
    elements = _layer_elements(model)
    tables = load.has_input * model.num_input_parameters
    shares_table = load.has_input & load.has_output & model.tied_embeddings
    tables = tables + (load.has_output & ~shares_table) * model.embedding_parameters
    tables = tables + load.has_output * model.num_output_bias_parameters
    dense = reduce(add, (load.counts[kind] * each for kind, each in elements.items())) + tables
    expert_layer = _expert_layer_elements(model) / expert_split(x, job)
    largest_layer = max(elements.values()) / tensor
    return Weights(
        dense=dense / tensor,
        expert=load.counts[PartKind.SPARSE] * expert_layer,
        layer=largest_layer + expert_layer,
        tables=tables / tensor,
    )


def expert_split(x: LayoutColumns, job: Job) -> Integers:
    """Return the number of parts into which expert ranks and tensor ranks together split the experts of a layer."""
    return x.expert_parallel_degree * width_split(x, job)


def _layer_elements(model: TransformerSpec) -> Mapping[PartKind, float]:
    """Return the number of weights of a layer of each kind, including norms and biases, without routed experts."""
    num_sparse = model.num_sparse_layers
    num_dense = model.num_layers - num_sparse
    without_experts = model.num_layer_parameters - model.num_expert_parameters
    if num_sparse == 0 or model.experts is None:
        return {PartKind.DENSE: without_experts / num_dense}
    shared = model.shared_expert_matrix_parameters + model.router_matrix_parameters
    rest = (without_experts - num_dense * model.mlp_matrix_parameters - num_sparse * shared) / model.num_layers
    return {PartKind.DENSE: rest + model.mlp_matrix_parameters, PartKind.SPARSE: rest + shared}


def _expert_layer_elements(model: TransformerSpec) -> float:
    return model.num_expert_parameters / model.num_sparse_layers if model.num_sparse_layers else 0.0
