"""Weights: how many elements of the model a pipeline rank holds, before data-parallel ranks share them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotuner.core.columns import Floats, Integers, LayoutColumns
from autotuner.core.job import Job
from autotuner.core.model import TransformerSpec
from autotuner.costmodel.pipeline.rank_load import RankLoad
from autotuner.costmodel.routing import width_split


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Elements of a rank's weights before data-parallel sharding.

    Attributes:
        dense: Split over tensor ranks and stages only.
        expert: Routed experts; split over expert ranks, over tensor ranks, or over both.
        layer: The largest layer, experts included: what FSDP gathers at once.
        tables: Vocabulary tables and what lies beside them, gathered with what begins and ends the model.
    """

    dense: Floats
    expert: Floats
    layer: Floats
    tables: Floats


def weights(x: LayoutColumns, job: Job, load: RankLoad) -> Weights:
    """What the rank holds of the model."""
    model, tensor = job.model, x.tensor_parallel_degree
    dense_layer, sparse_layer = _layer_elements(model)
    tables = load.has_input * model.num_input_parameters
    shares_table = load.has_input & load.has_output & model.tied_embeddings
    tables = tables + (load.has_output & ~shares_table) * model.embedding_parameters
    tables = tables + load.has_output * model.num_output_bias_parameters
    dense = load.num_dense_layers * dense_layer + load.num_sparse_layers * sparse_layer + tables
    expert_layer = _expert_layer_elements(model) / expert_split(x, job)
    largest_layer = np.maximum(dense_layer, (sparse_layer if model.experts else 0)) / tensor
    return Weights(
        dense=dense / tensor,
        expert=load.num_sparse_layers * expert_layer,
        layer=largest_layer + expert_layer,
        tables=tables / tensor,
    )


def expert_split(x: LayoutColumns, job: Job) -> Integers:
    """Ways in which a layer's experts are split: over expert ranks, and each of them over tensor ranks."""
    return x.expert_parallel_degree * width_split(x, job)


def _layer_elements(model: TransformerSpec) -> tuple[float, float]:
    """Elements of a dense layer, and of a sparse one without its routed experts; norms and biases included."""
    num_sparse = model.num_sparse_layers
    num_dense = model.num_layers - num_sparse
    without_experts = model.num_layer_parameters - model.num_expert_parameters
    if num_sparse == 0 or model.experts is None:
        return without_experts / num_dense, 0.0
    shared = model.shared_expert_matrix_parameters + model.router_matrix_parameters
    rest = (without_experts - num_dense * model.mlp_matrix_parameters - num_sparse * shared) / model.num_layers
    return rest + model.mlp_matrix_parameters, rest + shared


def _expert_layer_elements(model: TransformerSpec) -> float:
    return model.num_expert_parameters / model.num_sparse_layers if model.num_sparse_layers else 0.0
