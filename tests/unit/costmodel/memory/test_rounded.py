"""What a layer saves where inputs of products are kept rounded."""

from __future__ import annotations

import pytest

from autotuner.core.choices import Fp8Recipe, Precision
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.costmodel.memory.activations import LayerBytes
from autotuner.costmodel.memory.peak import memory
from tests.builders import big_job, llama_70b
from tests.unit.costmodel.works import columns, first, sparse_job, with_stack

BF16, FP8 = (
    Layout(tensor_parallel_degree=8, precision=precision, fp8_recipe=recipe)
    for precision, recipe in ((Precision.BF16, Fp8Recipe.TENSORWISE), (Precision.FP8, Fp8Recipe.DELAYED))
)


def engine(job: Job | None = None, **fields: bool) -> Job:
    return with_stack(job, fp8_implementation="transformer_engine", **fields)


def saved(layout: Layout, job: Job, *, sparse: bool = False) -> float:
    return first(LayerBytes.of(columns(layout), job, sparse=sparse).not_recomputed)


def test_transformer_engine_keeps_a_byte_less_of_each_input_and_one_more_of_the_attention_s_output() -> None:
    job, model = engine(), llama_70b()
    fewer = 2 * model.hidden_size + (model.ffn_size - model.attention_output_size) / 8
    assert saved(BF16, job) - saved(FP8, job) == pytest.approx(fewer * job.workload.seq_len, rel=1e-9)


def test_torchao_keeps_what_bf16_keeps() -> None:
    assert saved(FP8, big_job()) == saved(BF16, big_job())


def test_experts_keep_the_copies_of_their_tokens_rounded() -> None:
    job = engine(sparse_job())
    assert saved(FP8, job, sparse=True) < saved(BF16, job, sparse=True)


def test_rounded_copies_of_weights_lie_beside_them_unless_they_are_gathered_so() -> None:
    beside, alone = (memory(columns(FP8), engine(gathers_fp8_parameters=gathers)) for gathers in (False, True))
    plain = memory(columns(BF16), engine())
    assert first(beside.parameters_bytes) > 1.9 * first(plain.parameters_bytes)  # embeddings have no copies
    assert first(alone.parameters_bytes) == pytest.approx(first(plain.parameters_bytes), rel=1e-9)  # two of one byte
