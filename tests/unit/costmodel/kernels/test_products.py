"""Which matrices the ranks of a layer multiply."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.catalog.models import load_model
from autotuner.core.blocks import LinearAttention, MixtureOfExperts
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.model import TransformerSpec
from autotuner.costmodel.kernels.products import Product, layer_products, router_product
from tests.builders import big_job, llama_70b
from tests.unit.costmodel.test_routing import apart
from tests.unit.costmodel.works import columns, with_stack

EXPERTS = MixtureOfExperts(
    num_experts=16, experts_per_token=2, expert_ffn_size=1024, num_shared_experts=1, shared_expert_ffn_size=2048
)
TENSOR = Layout(tensor_parallel_degree=4, sequence_parallel=True)


def flop(products: list[Product]) -> float:
    return sum(float((2 * p.tokens * p.inputs * p.outputs * p.count * p.launches)[0]) for p in products)


def products(
    model: TransformerSpec, layout: Layout, *, sparse: bool, splits: bool = False
) -> tuple[list[Product], Job]:
    job = with_stack(replace(big_job(), model=model), expert_imbalance=1.0, splits_experts=splits)
    x = columns(layout)
    found = list(layer_products(x, job, sparse=sparse))
    if sparse and model.experts:
        found.append(router_product(x, job, model.experts))
    return found, job


@pytest.mark.parametrize("name", ["llama-3-70b", "deepseek-v3", "deepseek-v2-lite"])
def test_a_dense_layer_multiplies_every_matrix_element_once_per_token(name: str) -> None:
    model = load_model(name)
    found, job = products(model, Layout(), sparse=False)
    elements = model.attention_matrix_parameters + model.mlp_matrix_parameters
    assert flop(found) == 2 * elements * job.workload.seq_len


LINEAR = LinearAttention(num_key_heads=16, num_value_heads=32, key_head_dim=128, value_head_dim=128)


@pytest.mark.parametrize("gate_rank", [0, 128])
def test_layers_that_attend_linearly_multiply_their_own_matrices(gate_rank: int) -> None:
    linear = replace(LINEAR, gate_rank=gate_rank)
    model = llama_70b(attention_output_gate=True, linear_attention=linear, num_linear_layers=60)
    found, job = products(model, TENSOR, sparse=False)
    elements = model.mean_attention_matrix_parameters + model.mlp_matrix_parameters
    assert model.linear_attention_matrix_parameters < model.attention_matrix_parameters
    assert 4 * flop(found) == 2 * elements * job.workload.seq_len


@pytest.mark.parametrize("splits", [False, True])
@pytest.mark.parametrize(
    "layout", [Layout(), TENSOR, apart(4), apart(2, tensor_parallel_degree=2, sequence_parallel=True)]
)
def test_all_ranks_multiply_what_the_chosen_experts_of_every_token_have(layout: Layout, splits: bool) -> None:
    model = llama_70b(experts=EXPERTS)
    found, job = products(model, layout, sparse=True, splits=splits)
    elements = model.num_active_layer_matrix_parameters / model.num_layers
    ranks, sequences = layout.data_parallel_degree * layout.tensor_parallel_degree, layout.data_parallel_degree
    assert ranks * flop(found) == 2 * elements * sequences * job.workload.seq_len


def test_every_tensor_rank_makes_the_latents_of_the_hidden_states_that_it_has() -> None:
    model = load_model("deepseek-v3")
    whole, _ = products(model, replace(TENSOR, sequence_parallel=False), sparse=False)
    split, _ = products(model, TENSOR, sparse=False)
    queries, keys = model.hidden_size * 1536, model.hidden_size * (512 + 64)
    assert flop(whole) - flop(split) == pytest.approx(2 * 8192 * (queries + keys) * (1 - 1 / 4))


def test_experts_multiply_side_by_side_or_one_after_the_other() -> None:
    model = llama_70b(experts=EXPERTS)
    jobs = [with_stack(replace(big_job(), model=model), groups_experts=flag) for flag in (True, False)]
    side_by_side, in_turn = (list(layer_products(columns(Layout()), job, sparse=True))[2] for job in jobs)
    assert (side_by_side.count, side_by_side.launches) == (16, 1.0)
    assert (in_turn.count, in_turn.launches) == (1.0, 16)
