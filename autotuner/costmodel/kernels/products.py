"""The matrices of a layer as each rank multiplies them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from autotuner.core.blocks import LatentAttention, MixtureOfExperts
from autotuner.core.columns import Booleans, Floats, LayoutColumns
from autotuner.core.job import Job
from autotuner.costmodel.micro_batch import hidden_split, tokens_per_pass
from autotuner.costmodel.routing import local_experts, own_tokens, rows_per_expert, width_split


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """``tokens`` rows through ``count`` matrices of inputs x outputs, each a number or a column.

    Attributes:
        launches: Kernels that do as much, one after the other; a share where not every layer has the matrix.
    """

    tokens: Floats
    inputs: Floats | float
    outputs: Floats | float
    count: Floats | float = 1.0
    launches: Floats | float = 1.0

    def rows(self, rows: Booleans) -> Floats:
        """The five sizes of some rows: shape (sizes, rows)."""
        sizes = np.empty((5, len(rows)))
        for number, size in enumerate((self.tokens, self.inputs, self.outputs, self.count, self.launches)):
            sizes[number] = size
        return sizes[:, rows]


def layer_products(x: LayoutColumns, job: Job, *, sparse: bool) -> Iterator[Product]:
    """The matrices of a layer, but for its router; a gate and its input are one product, twice as wide."""
    yield from _attention_products(x, job)
    experts = job.model.experts
    if sparse and experts:
        yield from _expert_products(x, job, experts)
    else:
        yield from _block(tokens_per_pass(x, job), job, job.model.ffn_size / x.tensor_parallel_degree)


def router_product(x: LayoutColumns, job: Job, experts: MixtureOfExperts) -> Product:
    """The matrix that scores every expert for every token; frameworks multiply it in 16 or 32 bits, never in fewer."""
    return Product(tokens=own_tokens(x, job), inputs=job.model.hidden_size, outputs=experts.num_experts)


def _attention_products(x: LayoutColumns, job: Job) -> Iterator[Product]:
    """Into the attention core and out of it; of layers with linear attention and without, each its share."""
    model, tensor, tokens = job.model, x.tensor_parallel_degree, tokens_per_pass(x, job)
    attending = 1.0 - model.linear_share
    if model.latent_attention:
        yield from _latent_products(x, job, model.latent_attention)
    else:
        projected = model.query_size + model.key_value_size + model.output_gate_size
        yield Product(tokens=tokens, inputs=model.hidden_size, outputs=projected / tensor, launches=attending)
    output = model.attention_output_size / tensor
    yield Product(tokens=tokens, inputs=output, outputs=model.hidden_size, launches=attending)
    if model.linear_attention:
        linear, share = model.linear_attention, model.linear_share
        yield Product(tokens=tokens, inputs=model.hidden_size, outputs=linear.projected_size / tensor, launches=share)
        yield Product(tokens=tokens, inputs=linear.output_size / tensor, outputs=model.hidden_size, launches=share)
        if linear.gate_rank:
            gates = 2 * linear.output_size / tensor
            yield Product(tokens=tokens, inputs=linear.gate_rank, outputs=gates, launches=share)


def _latent_products(x: LayoutColumns, job: Job, latent: LatentAttention) -> Iterator[Product]:
    """Down to the latents, which every tensor rank computes of the hidden states that it has, and up to the heads.

    Megatron-LM, core/transformer/multi_latent_attention.py (core 0.13, 2025-07): ``linear_q_down_proj`` and
    ``linear_kv_down_proj`` are duplicated, the projections up are split by heads.
    """
    model, tensor, tokens = job.model, x.tensor_parallel_degree, tokens_per_pass(x, job)
    hidden, held, attending = model.hidden_size, tokens / hidden_split(x), 1.0 - model.linear_share
    if latent.query_rank:
        yield Product(tokens=held, inputs=hidden, outputs=latent.query_rank, launches=attending)
    if latent.query_rank and latent.indexer_heads:  # every rank chooses keys for all heads
        yield Product(tokens=held, inputs=latent.query_rank, outputs=latent.indexer_size, launches=attending)
        yield Product(tokens=held, inputs=hidden, outputs=latent.indexer_key_size, launches=attending)
    queries_from = latent.query_rank or hidden
    yield Product(tokens=tokens, inputs=queries_from, outputs=model.query_size / tensor, launches=attending)
    down = latent.key_value_rank + latent.rope_head_dim
    yield Product(tokens=held, inputs=hidden, outputs=down, launches=attending)
    per_head = model.head_dim + latent.value_head_dim
    up = model.num_heads * per_head / tensor
    yield Product(tokens=tokens, inputs=latent.key_value_rank, outputs=up, launches=attending)


def _expert_products(x: LayoutColumns, job: Job, experts: MixtureOfExperts) -> Iterator[Product]:
    """Experts side by side in one kernel, or one after the other; and the shared ones, which see every token."""
    local, width = local_experts(x, experts), experts.expert_ffn_size / width_split(x, job)
    count, launches = (local, 1.0) if job.stack.groups_experts else (1.0, local)
    yield from _block(rows_per_expert(x, job, experts), job, width, count=count, launches=launches)
    if experts.shared_ffn_size:
        shared = experts.shared_ffn_size / x.tensor_parallel_degree
        yield from _block(tokens_per_pass(x, job), job, shared)


def _block(
    tokens: Floats, job: Job, width: Floats | float, count: Floats | float = 1.0, launches: Floats | float = 1.0
) -> Iterator[Product]:
    """Into a feed-forward block and out of it."""
    hidden, wide = job.model.hidden_size, 2 if job.model.gated_mlp else 1
    yield Product(tokens=tokens, inputs=hidden, outputs=wide * width, count=count, launches=launches)
    yield Product(tokens=tokens, inputs=width, outputs=hidden, count=count, launches=launches)
