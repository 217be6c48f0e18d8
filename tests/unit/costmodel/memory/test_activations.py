from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotuner.core.choices import AttentionKernel, ContextExchange, Fp8Recipe, PipelineSchedule, Precision, Recompute
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.units import GIB
from autotuner.costmodel.memory.activations import LayerBytes
from autotuner.costmodel.memory.peak import memory
from tests.builders import big_job, h100_cluster, llama_70b
from tests.unit.costmodel.works import (
    GPIPE,
    KORTHIKANTI,
    TOKENS_TIMES_HIDDEN,
    activations,
    columns,
    demo,
    eight_gpus,
    first,
    gpt_22b,
    logits,
    on_stack,
    one_core,
    sparse_job,
    with_stack,
    without_working_memory,
)

BF16, FP8 = (
    Layout(tensor_parallel_degree=8, precision=precision, fp8_recipe=recipe)
    for precision, recipe in ((Precision.BF16, Fp8Recipe.TENSORWISE), (Precision.FP8, Fp8Recipe.DELAYED))
)


def engine(job: Job | None = None, **fields: bool) -> Job:
    return with_stack(job, fp8_implementation="transformer_engine", **fields)


def saved(layout: Layout, job: Job, *, sparse: bool = False) -> float:
    return first(LayerBytes.of(columns(layout), job, sparse=sparse).not_recomputed)


def test_rounded_inputs_and_weights_are_kept_as_each_library_keeps_them_and_scores_in_fp32() -> None:
    job, model = engine(), llama_70b()
    fewer = 2 * model.hidden_size + (model.ffn_size - model.attention_output_size) / 8
    assert saved(BF16, job) - saved(FP8, job) == pytest.approx(fewer * job.workload.seq_len, rel=1e-9)
    assert saved(FP8, big_job()) == saved(BF16, big_job())
    job = engine(sparse_job())
    assert saved(FP8, job, sparse=True) < saved(BF16, job, sparse=True)
    beside, alone = (memory(columns(FP8), engine(gathers_fp8_parameters=gathers)) for gathers in (False, True))
    plain = memory(columns(BF16), engine())
    assert first(beside.parameters_bytes) > 1.9 * first(plain.parameters_bytes)  # embeddings have no copies
    assert first(alone.parameters_bytes) == pytest.approx(first(plain.parameters_bytes), rel=1e-9)  # two of one byte
    layers = eight_gpus().model.num_layers
    wide, narrow = (without_working_memory(MATH, on_stack(eight_gpus(), math_in_fp32=f)) for f in (True, False))
    # queries from 2 bytes to 4, keys and values once for every one of the 8 query heads that share them, and the scores
    heads = 64 * 8192 * (2 + 2 * (4 - 2 / 8))
    assert wide - narrow == pytest.approx(layers * (2 * SCORES + heads), rel=1e-9)


MATH = Layout(attention_kernel=AttentionKernel.MATH)
SCORES = 64 * 64 * 64  # heads, and the square of the sequence


@pytest.mark.parametrize("exchange", [ContextExchange.RING, ContextExchange.ALL_GATHER])
def test_blocks_between_context_ranks_keep_no_scores(exchange: ContextExchange) -> None:
    layout = replace(MATH, context_parallel_degree=2, context_exchange=exchange)
    fused = replace(layout, attention_kernel=AttentionKernel.FLASH)
    assert without_working_memory(layout, eight_gpus()) == without_working_memory(fused, eight_gpus())


def test_the_backward_of_the_core_holds_two_gradients_of_the_scores_in_fp32() -> None:
    # long sequences, where the core's backward holds more than that of the feed-forward block
    job = eight_gpus()
    long = replace(job, workload=replace(job.workload, seq_len=8192))
    layout = replace(MATH, precision=Precision.FP32)
    passing = activations(layout, long) - without_working_memory(layout, long)
    scores = 4 * 64 * 8192**2
    assert passing == pytest.approx(2 * scores, rel=0.1)  # less the feed-forward block's parts, which are gone by then


VOCABULARY = 128 * 2048


@pytest.mark.parametrize(
    ("layout", "published_gib", "dropout_per_sbh"),
    [
        # masks of the two residual dropouts, one byte each; of the attention dropout, mask and output, three
        (KORTHIKANTI, 59.25, 2 + 3 * 64 * 2048 / 6144 / 8),
        (replace(KORTHIKANTI, sequence_parallel=True, recompute=Recompute.SELECTIVE), 9.5625, 2 / 8),
    ],
)
def test_activations_of_gpt_22b_are_those_of_korthikanti_less_their_dropout(
    layout: Layout, published_gib: float, dropout_per_sbh: float
) -> None:
    dropout_bytes = dropout_per_sbh * TOKENS_TIMES_HIDDEN * 48
    # 1 %: the log-sum-exp statistics, which the paper leaves out
    assert without_working_memory(layout, gpt_22b()) + dropout_bytes == pytest.approx(published_gib * GIB, rel=0.01)


@pytest.mark.parametrize(
    ("shapes", "hidden_states"),
    [
        ({"num_norms_per_layer": 4}, 2.0),  # the inputs of the norms behind both blocks
        ({"parallel_blocks": True}, -1.0),  # the hidden state between the blocks
        ({"parallel_blocks": True, "num_norms_per_layer": 1}, -2.0),  # and the input of the second
        ({"attention_output_gate": True}, 2.0 / 8),  # the gate and the result, split over tensor ranks as the heads are
    ],
)
def test_other_norms_and_gates_save_more_or_less(shapes: dict[str, Any], hidden_states: float) -> None:
    plain = gpt_22b()
    changed = replace(plain, model=replace(plain.model, **shapes))
    more = without_working_memory(KORTHIKANTI, changed) - without_working_memory(KORTHIKANTI, plain)
    assert more == pytest.approx(2 * hidden_states * TOKENS_TIMES_HIDDEN * 48, rel=1e-9)  # rounding only


def test_each_kind_of_recomputation_keeps_what_the_paper_counts_and_sequence_ranks_split_the_rest() -> None:
    # arXiv 2205.05198, section 5: 2 s b h per layer
    layout = replace(KORTHIKANTI, recompute=Recompute.FULL)
    assert without_working_memory(layout, gpt_22b()) == 2 * TOKENS_TIMES_HIDDEN * 48
    plain = Layout(tensor_parallel_degree=8)
    split = replace(plain, sequence_parallel=True)
    job = eight_gpus()
    assert without_working_memory(split, job) < without_working_memory(plain, job)
    math = activations(KORTHIKANTI, gpt_22b())
    flash = activations(replace(KORTHIKANTI, attention_kernel=AttentionKernel.FLASH), gpt_22b())
    scores = 2 * 4 * 64 * 2048 * 2048 / 8 * 48  # bytes, micro-batch, heads, square, tensor ranks, layers
    assert math - flash == pytest.approx(scores, rel=1e-9)  # rounding of sums a thousand times as large


@pytest.mark.parametrize("kernel", [AttentionKernel.MATH, AttentionKernel.FLASH])
def test_recomputing_more_keeps_less(kernel: AttentionKernel) -> None:
    none, selective, full = (
        activations(replace(KORTHIKANTI, attention_kernel=kernel, recompute=r), gpt_22b()) for r in Recompute
    )
    assert none >= selective > full


def test_a_schedule_keeps_micro_batches_and_their_logits_while_they_wait() -> None:
    job = replace(eight_gpus(batch=32), cluster=h100_cluster(num_nodes=1, accelerators_per_node=4))
    steady = Layout(pipeline_parallel_degree=4)
    all_first = replace(steady, pipeline_schedule=PipelineSchedule.GPIPE)
    assert without_working_memory(all_first, job) == 8 * without_working_memory(steady, job)
    # logits and log-softmax of all 16, and two gradients of one, all in fp32
    assert logits(GPIPE, demo(GPIPE, 16)) == VOCABULARY * (16 * (4 + 4) + 2 * 4)
    lone = replace(GPIPE, pipeline_parallel_degree=1)
    assert logits(lone, demo(lone, 16)) == VOCABULARY * 3 * 4


@pytest.mark.parametrize(("keeps_logits", "own_bytes"), [(False, 0), (True, 2)])
def test_logits_cost_three_times_fp32_and_their_own_bytes_where_they_stay(keeps_logits: bool, own_bytes: int) -> None:
    job, layout = one_core(Precision.BF16)
    assert logits(layout, on_stack(job, keeps_logits=keeps_logits)) == 64 * 256 * (own_bytes + 3 * 4)


def test_logits_are_whole_on_every_rank_where_layout_or_stack_gathers_them() -> None:
    layout = Layout(tensor_parallel_degree=8, recompute=Recompute.FULL)
    split, whole = (logits(layout, on_stack(eight_gpus(), gathers_logits=g, logits_copies=2.0)) for g in (False, True))
    # log-softmax, two gradients, one more of a part; joined, the fp32 parts and the whole beside them
    per_logit = 64 * 128256
    assert split == per_logit / 8 * (4 + 3 * 4)
    assert whole == per_logit * (4 + 2 * 4 + 2 * 4)
    layout = Layout(tensor_parallel_degree=8)
    split, whole = (logits(replace(layout, loss_parallel=p), eight_gpus()) for p in (True, False))
    assert whole == logits(Layout(), eight_gpus()) > split


def test_losses_and_norms_keep_the_copies_that_a_stack_makes() -> None:
    few, many = (logits(Layout(), on_stack(eight_gpus(), logits_copies=n)) for n in (1.0, 3.5))
    assert many - few == 2.5 * 4 * 64 * 128256
    steps, fused = (logits(Layout(), on_stack(eight_gpus(), fuses_loss=f, logits_copies=2.0)) for f in (False, True))
    assert steps == 64 * 128256 * (4 + 2 * 4)
    assert fused == 64 * 128256 * (2 + 2)
    split, whole = (logits(Layout(), on_stack(eight_gpus(), gathers_logits=g)) for g in (False, True))
    assert split == whole
    fused, plain = (
        without_working_memory(replace(KORTHIKANTI, fused_norm=f), on_stack(gpt_22b(), unfused_norm_bytes=5.0))
        for f in (True, False)
    )
    assert plain - fused == 2 * 5 * TOKENS_TIMES_HIDDEN * 48  # two norms in each layer


@pytest.mark.parametrize("kernel", list(AttentionKernel))
def test_copies_of_the_scores_are_alive_in_the_backward_of_unfused_kernels(kernel: AttentionKernel) -> None:
    has_scores = kernel in (AttentionKernel.MATH, AttentionKernel.FUSED_SOFTMAX)
    layout = replace(KORTHIKANTI, attention_kernel=kernel)
    none, two = (activations(layout, on_stack(gpt_22b(), scores_alive=n, math_in_fp32=False)) for n in (0.0, 2.0))
    scores = 2 * 4 * 64 * 2048 * 2048 / 8  # bytes, micro-batch, heads, square, tensor ranks
    assert two - none == pytest.approx(2 * scores * has_scores, rel=1e-9)  # rounding of sums a hundred times as large


def test_partial_recomputation_keeps_more_than_inputs_and_less_than_everything() -> None:
    job = eight_gpus()
    kept = without_working_memory(Layout(recompute=Recompute.SELECTIVE), job)
    model = job.model
    # input and both ends of blocks; queries, keys, values, attention's output; both inputs of the gate; 2 bytes each
    per_token = 2 * (3 * 8192 + 2 * 8192 + model.key_value_size + 2 * model.ffn_size) + 4 * model.num_heads
    assert kept == 64 * per_token * model.num_layers
    none, selective, full = (activations(Layout(recompute=r), eight_gpus()) for r in Recompute)
    assert none > selective > full
    job = eight_gpus()
    every, half, none = (
        without_working_memory(layout, job)
        for layout in (Layout(recompute=Recompute.FULL), Layout(recompute=Recompute.FULL, recompute_every=2), Layout())
    )
    assert half == (every + none) / 2


def test_gathered_keys_are_kept_whole_and_offloading_keeps_two_layers() -> None:
    ring, gathered, heads = (
        without_working_memory(Layout(context_parallel_degree=4, context_exchange=way), eight_gpus())
        for way in ContextExchange
    )
    model = eight_gpus().model
    assert gathered - ring == 3 * 2 * 16 * model.key_value_size * model.num_layers  # of 64 tokens, 16 are its own
    assert heads == ring
    assert without_working_memory(Layout(offload_activations=True), eight_gpus()) == 0.0  # however many layers
    six = without_working_memory(Layout(), eight_gpus()) * 6 / 8
    here, away = (activations(Layout(offload_activations=o), eight_gpus()) for o in (False, True))
    assert here - away == six


@pytest.mark.parametrize("recompute", list(Recompute))
def test_activations_in_the_hosts_memory_do_not_fill_the_devices(recompute: Recompute) -> None:
    here, away = (activations(Layout(recompute=recompute, offload_activations=o), eight_gpus()) for o in (False, True))
    assert away < here
