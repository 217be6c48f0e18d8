"""Peak memory: published activation sizes, bytes per parameter, and what each switch does to them."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from autotuner.catalog.load import load_model
from autotuner.costmodel.columns import LayoutColumns
from autotuner.costmodel.memory import MemoryColumns, memory
from autotuner.domain.choice import AttentionKernel, PipelineSchedule, Precision, Recompute, ShardLevel
from autotuner.domain.layout import Layout
from autotuner.domain.legality import Job
from autotuner.domain.model import MixtureOfExperts, TransformerSpec
from autotuner.domain.stack import Stack
from autotuner.domain.workload import Workload
from autotuner.units import GIB
from tests.builders import cpu_cluster, cpu_layout, h100_cluster, llama_70b, tiny_job, tiny_model

NONE, OPTIMIZER, GRADIENTS, PARAMETERS = ShardLevel


def of(layout: Layout, job: Job) -> MemoryColumns:
    return memory(LayoutColumns.from_layouts([layout]), job)


def total(layout: Layout, job: Job) -> float:
    return float(of(layout, job).total_bytes[0])


def activations(layout: Layout, job: Job) -> float:
    return float(of(layout, job).activations_bytes[0])


def without_working_memory(layout: Layout, job: Job) -> float:
    """Saved activations alone: twice the layers save twice as much and work with the same."""
    doubled = replace(job, model=replace(job.model, num_layers=2 * job.model.num_layers))
    return activations(layout, doubled) - activations(layout, job)


def gpt_22b(num_layers: int = 48) -> Job:
    """The 22B model of arXiv 2205.05198, table 3: tensor ranks 8, micro-batch 4."""
    model = TransformerSpec(
        name="gpt-22b",
        num_layers=num_layers,
        hidden_size=6144,
        num_heads=64,
        num_kv_heads=64,
        head_dim=96,
        ffn_size=4 * 6144,
        vocab_size=51200,
        gated_mlp=False,
        norm="layernorm",
    )
    cluster = h100_cluster(num_nodes=1)
    return Job(model=model, cluster=cluster, workload=Workload(seq_len=2048, global_batch_size=4))


KORTHIKANTI = Layout(tensor_parallel_degree=8, micro_batch_size=4, attention_kernel=AttentionKernel.MATH)
TOKENS_TIMES_HIDDEN = 2048 * 4 * 6144


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


def test_full_recomputation_keeps_two_bytes_per_hidden_state_of_each_layer() -> None:
    # arXiv 2205.05198, section 5: 2 s b h per layer
    layout = replace(KORTHIKANTI, recompute=Recompute.FULL)
    assert without_working_memory(layout, gpt_22b()) == 2 * TOKENS_TIMES_HIDDEN * 48


def one_core(precision: Precision = Precision.FP32, **workload: object) -> tuple[Job, Layout]:
    job = Job(
        model=tiny_model(),
        cluster=cpu_cluster(1),
        workload=replace(Workload(seq_len=64, global_batch_size=8), **workload),  # type: ignore[arg-type]
    )
    return job, Layout(precision=precision, attention_kernel=AttentionKernel.MATH)


@pytest.mark.parametrize(
    ("precision", "moments", "weight_bytes", "optimizer_bytes"),
    [
        (Precision.FP32, "fp32", 4, 8),
        (Precision.BF16, "fp32", 2, 4 + 8),  # the fp32 master weight is the optimizer's
        (Precision.BF16, "bf16", 2, 4 + 4),
    ],
)
def test_a_lone_rank_holds_the_textbook_bytes_per_parameter(
    precision: Precision, moments: str, weight_bytes: int, optimizer_bytes: int
) -> None:
    job, layout = one_core(precision, optimizer_state_precision=moments)
    # the final norm's 64 elements are nobody's layer and left out
    num_elements = job.model.num_parameters - job.model.hidden_size
    sizes = of(layout, job)
    assert float(sizes.parameters_bytes[0]) == weight_bytes * num_elements
    assert float(sizes.gradients_bytes[0]) == weight_bytes * num_elements
    assert float(sizes.optimizer_bytes[0]) == optimizer_bytes * num_elements


def test_a_cpu_counts_tensors_and_adds_no_allowance() -> None:
    job, layout = one_core()
    assert float(of(layout, job).allowance_bytes[0]) == 0.0
    assert float(of(Layout(), gpt_22b()).allowance_bytes[0]) > GIB


def sharded(level: ShardLevel, *, reshard: bool = False) -> Layout:
    return Layout(
        data_parallel_shard_degree=1 if level == NONE else 8,
        data_parallel_replicate_degree=8 if level == NONE else 1,
        shard_level=level,
        reshard_after_forward=reshard,
    )


def eight_gpus(batch: int = 16) -> Job:
    workload = Workload(seq_len=64, global_batch_size=batch)
    return Job(model=llama_70b(num_layers=8), cluster=h100_cluster(num_nodes=1), workload=workload)


def test_each_level_of_sharding_needs_less_memory_than_the_one_before() -> None:
    peaks = [total(sharded(level, reshard=level == PARAMETERS), eight_gpus()) for level in ShardLevel]
    assert peaks == sorted(peaks, reverse=True)
    assert len(set(peaks)) == len(peaks)


def test_eight_ranks_share_the_state_they_shard() -> None:
    whole, split = of(sharded(NONE), eight_gpus()), of(sharded(PARAMETERS, reshard=True), eight_gpus())
    assert float(split.optimizer_bytes[0]) == float(whole.optimizer_bytes[0]) / 8
    assert float(split.gradients_bytes[0]) == float(whole.gradients_bytes[0]) / 8


def test_without_resharding_all_gathered_parameters_stay() -> None:
    kept, dropped = (of(sharded(PARAMETERS, reshard=r), eight_gpus()) for r in (False, True))
    assert float(kept.buffers_bytes[0]) > 2 * float(dropped.buffers_bytes[0])
    assert float(kept.gradients_bytes[0]) == float(dropped.gradients_bytes[0])


@pytest.mark.parametrize(("batch", "whole"), [(16, True), (4, False)])
def test_a_sharded_pipeline_sums_whole_gradients_over_its_micro_batches(batch: int, whole: bool) -> None:
    steady = replace(sharded(PARAMETERS), data_parallel_shard_degree=4, pipeline_parallel_degree=2)
    kept, dropped = (of(replace(steady, reshard_after_forward=r), eight_gpus(batch)) for r in (False, True))
    assert float(kept.gradients_bytes[0]) == (4 if whole else 1) * float(dropped.gradients_bytes[0])


def test_context_ranks_join_the_shard_group() -> None:
    job = eight_gpus()
    alone = Layout(data_parallel_shard_degree=4, data_parallel_replicate_degree=2, shard_level=OPTIMIZER)
    joined = Layout(data_parallel_shard_degree=4, context_parallel_degree=2, shard_level=OPTIMIZER)
    assert float(of(joined, job).optimizer_bytes[0]) == float(of(alone, job).optimizer_bytes[0]) / 2


def test_tensor_ranks_split_weights_and_most_activations() -> None:
    job = eight_gpus()
    alone = of(Layout(data_parallel_replicate_degree=8), job)
    split = of(Layout(tensor_parallel_degree=8), job)
    assert float(split.gradients_bytes[0]) == pytest.approx(float(alone.gradients_bytes[0]) / 8, rel=1e-12)  # rounding
    assert float(alone.activations_bytes[0]) / 8 < float(split.activations_bytes[0]) < float(alone.activations_bytes[0])


def test_sequence_parallelism_splits_the_rest_of_the_activations() -> None:
    plain = Layout(tensor_parallel_degree=8)
    split = replace(plain, sequence_parallel=True)
    job = eight_gpus()
    assert without_working_memory(split, job) < without_working_memory(plain, job)


@pytest.mark.parametrize("kernel", [AttentionKernel.MATH, AttentionKernel.FLASH])
def test_recomputing_more_keeps_less(kernel: AttentionKernel) -> None:
    none, selective, full = (
        activations(replace(KORTHIKANTI, attention_kernel=kernel, recompute=r), gpt_22b()) for r in Recompute
    )
    assert none >= selective > full


def test_only_the_math_kernel_keeps_scores() -> None:
    math = activations(KORTHIKANTI, gpt_22b())
    flash = activations(replace(KORTHIKANTI, attention_kernel=AttentionKernel.FLASH), gpt_22b())
    scores = 2 * 4 * 64 * 2048 * 2048 / 8 * 48  # bytes, micro-batch, heads, square, tensor ranks, layers
    assert math - flash == pytest.approx(scores, rel=1e-9)  # rounding of sums a thousand times as large


def test_gpipe_keeps_every_micro_batch_and_1f1b_as_many_as_stages() -> None:
    job = replace(eight_gpus(batch=32), cluster=h100_cluster(num_nodes=1, accelerators_per_node=4))
    steady = Layout(pipeline_parallel_degree=4)
    all_first = replace(steady, pipeline_schedule=PipelineSchedule.GPIPE)
    assert without_working_memory(all_first, job) == 8 * without_working_memory(steady, job)


def test_logits_cost_their_own_bytes_and_three_times_fp32() -> None:
    job, layout = one_core(Precision.BF16)
    assert float(of(layout, job).logits_bytes[0]) == 64 * 256 * (2 + 3 * 4)


def demo(layout: Layout, num_micro_batches: int) -> Job:
    """Sequences of 128 tokens, one per micro-batch, on as many cores as the layout has ranks."""
    workload = Workload(seq_len=128, global_batch_size=num_micro_batches * layout.data_parallel_degree)
    return Job(model=load_model("llama-demo"), cluster=cpu_cluster(layout.world_size), workload=workload)


ONE_F_ONE_B = cpu_layout(pipeline_parallel_degree=2, attention_kernel=AttentionKernel.FLASH)
GPIPE = replace(ONE_F_ONE_B, pipeline_schedule=PipelineSchedule.GPIPE)
INTERLEAVED = replace(ONE_F_ONE_B, pipeline_schedule=PipelineSchedule.INTERLEAVED_1F1B, virtual_stages_per_rank=2)
HIDDEN_BYTES, VOCABULARY = 4 * 128 * 256, 128 * 2048


@pytest.mark.parametrize(
    ("layout", "num_micro_batches", "stage", "measured_mb"),
    [
        (ONE_F_ONE_B, 4, 0, 44.5),
        (ONE_F_ONE_B, 64, 0, 52.5),
        (GPIPE, 4, 1, 57.8),
        (GPIPE, 16, 1, 150.9),
        (GPIPE, 64, 1, 523.5),
    ],
)
def test_the_peaks_of_real_pipeline_trials_are_met(
    layout: Layout, num_micro_batches: int, stage: int, measured_mb: float
) -> None:
    # measured with torch 2.13 on CPU cores. 10 %: a layer saves about a tenth more than is counted, and works with less
    sizes = of(layout, demo(layout, num_micro_batches))
    assert float(sizes.total_bytes[0]) == pytest.approx(measured_mb * 1e6, rel=0.1)
    assert int(sizes.worst_stage[0]) == stage


@pytest.mark.parametrize(("layout", "num_links"), [(ONE_F_ONE_B, 1), (GPIPE, 1), (INTERLEAVED, 3)])
def test_a_pipeline_has_a_receive_buffer_per_micro_batch_and_link(layout: Layout, num_links: int) -> None:
    assert float(of(layout, demo(layout, 8)).buffers_bytes[0]) == 8 * num_links * HIDDEN_BYTES


def test_the_second_rank_is_the_fullest_when_receive_buffers_outweigh_what_the_first_has_more() -> None:
    layout = replace(ONE_F_ONE_B, pipeline_parallel_degree=4)
    few, many = (of(layout, demo(layout, m)) for m in (16, 512))
    assert [int(few.worst_stage[0]), int(many.worst_stage[0])] == [0, 1]
    assert float(many.buffers_bytes[0]) == 2 * 512 * HIDDEN_BYTES


def test_sequence_parallelism_splits_receive_buffers() -> None:
    layout = replace(ONE_F_ONE_B, tensor_parallel_degree=2, sequence_parallel=True)
    few, many = (float(of(layout, demo(layout, m)).buffers_bytes[0]) for m in (8, 16))
    assert many - few == 8 * HIDDEN_BYTES / 2


def test_gpipe_keeps_the_logits_of_every_micro_batch_until_its_backward() -> None:
    # logits and log-softmax of all 16, and two gradients of one, all in fp32
    assert float(of(GPIPE, demo(GPIPE, 16)).logits_bytes[0]) == VOCABULARY * (16 * (4 + 4) + 2 * 4)


def test_without_a_pipeline_the_schedule_keeps_the_logits_of_one_micro_batch() -> None:
    lone = replace(GPIPE, pipeline_parallel_degree=1)
    assert float(of(lone, demo(lone, 16)).logits_bytes[0]) == VOCABULARY * (4 + 3 * 4)


@pytest.mark.parametrize(
    ("changes", "bytes_per_parameter", "measured_mb"),
    [
        ({"precision": Precision.BF16}, 2 + 12 + 4, 73.0),
        # the bucket keeps the 16-bit gradients
        ({"precision": Precision.BF16, "data_parallel_replicate_degree": 2}, 2 + 12 + 2 + 4, 80.0),
    ],
)
def test_a_step_on_few_tokens_is_fullest_when_the_optimizer_widens_its_gradients(
    changes: dict[str, Any], bytes_per_parameter: int, measured_mb: float
) -> None:
    layout = cpu_layout(**changes)
    job = replace(demo(layout, 1), workload=Workload(seq_len=16, global_batch_size=2))
    num_elements = job.model.num_parameters - job.model.hidden_size  # the final norm is left out
    assert total(layout, job) == bytes_per_parameter * num_elements
    # 2 %: the last tensor to be widened, the output table, is there in both formats
    assert total(layout, job) == pytest.approx(measured_mb * 1e6, rel=0.02)


def test_the_optimizer_step_costs_nothing_where_activations_outweigh_it_or_nothing_is_widened() -> None:
    half, whole = (cpu_layout(precision=p) for p in (Precision.BF16, Precision.FP32))
    long, short = demo(half, 64), replace(demo(whole, 1), workload=Workload(seq_len=16, global_batch_size=1))
    long = replace(long, workload=Workload(seq_len=2048, global_batch_size=1))
    assert float(of(half, long).buffers_bytes[0]) == float(of(whole, short).buffers_bytes[0]) == 0.0


def test_a_long_vocabulary_makes_the_last_stage_the_worst() -> None:
    job = Job(
        model=tiny_model(vocab_size=1_000_000, tied_embeddings=True),
        cluster=cpu_cluster(2),
        workload=Workload(seq_len=64, global_batch_size=8),
    )
    layout = Layout(pipeline_parallel_degree=2, precision=Precision.FP32, attention_kernel=AttentionKernel.MATH)
    assert int(of(layout, job).worst_stage[0]) == 1
    assert int(of(layout, replace(job, model=tiny_model())).worst_stage[0]) == 0


def test_tied_tables_are_one_on_a_lone_rank_and_two_in_a_pipeline() -> None:
    tied, untied = (
        float(of(cpu, tiny_job(1, model=tiny_model(tied_embeddings=t))).parameters_bytes[0])
        for cpu, t in ((one_core()[1], True), (one_core()[1], False))
    )
    assert untied - tied == 4 * 256 * 64
    piped = replace(one_core()[1], pipeline_parallel_degree=2)
    both = [of(piped, tiny_job(2, model=tiny_model(tied_embeddings=t))).parameters_bytes[0] for t in (True, False)]
    assert both[0] == both[1]


EXPERTS = MixtureOfExperts(num_experts=8, experts_per_token=2, expert_ffn_size=8192)


def test_expert_ranks_split_the_experts_and_nothing_else() -> None:
    job = replace(eight_gpus(), model=llama_70b(num_layers=8, experts=EXPERTS))
    together = Layout(data_parallel_shard_degree=8, shard_level=OPTIMIZER)
    apart = replace(together, expert_parallel_degree=8)
    saved = float(of(together, job).gradients_bytes[0]) - float(of(apart, job).gradients_bytes[0])
    assert saved == pytest.approx(2 * job.model.num_expert_parameters * 7 / 8, rel=1e-12)  # rounding only


def test_splitting_experts_does_not_change_the_share_of_the_optimizer() -> None:
    # 8 ranks own everything once, whether experts are sharded over all of them or dealt out whole
    job = replace(eight_gpus(), model=llama_70b(num_layers=8, experts=EXPERTS))
    together = Layout(data_parallel_shard_degree=8, shard_level=OPTIMIZER)
    apart = replace(together, expert_parallel_degree=8)
    assert of(apart, job).optimizer_bytes[0] == pytest.approx(of(together, job).optimizer_bytes[0], rel=1e-12)


# ---------------------------------------------------------------- what the stack keeps
def on_stack(job: Job, **fields: Any) -> Job:
    return replace(job, stack=Stack(**fields))


def test_gathered_logits_are_whole_on_every_tensor_rank_of_the_last_stage() -> None:
    layout = Layout(tensor_parallel_degree=8, recompute=Recompute.FULL)
    split, whole = (of(layout, on_stack(eight_gpus(), gathers_logits=g, logits_copies=2.0)) for g in (False, True))
    # bf16 and log-softmax, two gradients; joined, the fp32 parts and the whole beside them
    per_logit = 64 * 128256
    assert float(split.logits_bytes[0]) == per_logit / 8 * (2 + 4 + 2 * 4)
    assert float(whole.logits_bytes[0]) == per_logit * (2 + 4 + 2 * 4 + 2 * 4)


def test_a_lone_tensor_rank_has_nothing_to_gather() -> None:
    split, whole = (of(Layout(), on_stack(eight_gpus(), gathers_logits=g)) for g in (False, True))
    assert float(split.logits_bytes[0]) == float(whole.logits_bytes[0])


def test_gathered_logits_make_the_last_stage_the_fullest() -> None:
    layout = Layout(tensor_parallel_degree=4, pipeline_parallel_degree=2, recompute=Recompute.FULL)
    job = replace(eight_gpus(), workload=Workload(seq_len=2048, global_batch_size=16))
    assert [int(of(layout, on_stack(job, gathers_logits=g)).worst_stage[0]) for g in (False, True)] == [0, 1]


def test_a_stack_says_how_many_copies_of_the_logits_its_loss_makes() -> None:
    few, many = (float(of(Layout(), on_stack(eight_gpus(), logits_copies=n)).logits_bytes[0]) for n in (1.0, 3.5))
    assert many - few == 2.5 * 4 * 64 * 128256


def test_gradients_summed_in_fp32_are_twice_as_wide_and_need_no_widening() -> None:
    half, whole = (of(Layout(), on_stack(eight_gpus(), sums_gradients_in_fp32=s)) for s in (False, True))
    assert float(whole.gradients_bytes[0]) == 2 * float(half.gradients_bytes[0])
    # without them, the step widens the 16-bit gradients beside nothing that is larger
    assert float(half.buffers_bytes[0]) > 0.0 == float(whole.buffers_bytes[0])


def test_a_stack_without_receive_buffers_holds_none() -> None:
    kept, freed = (of(ONE_F_ONE_B, on_stack(demo(ONE_F_ONE_B, 8), keeps_receive_buffers=k)) for k in (True, False))
    assert float(kept.buffers_bytes[0]) == 8 * HIDDEN_BYTES > 0.0 == float(freed.buffers_bytes[0])


def test_a_norm_of_elementary_operations_keeps_more_than_a_fused_one() -> None:
    fused, plain = (
        without_working_memory(replace(KORTHIKANTI, fused_norm=f), on_stack(gpt_22b(), unfused_norm_bytes=5.0))
        for f in (True, False)
    )
    assert plain - fused == 2 * 5 * TOKENS_TIMES_HIDDEN * 48  # two norms in each layer


@pytest.mark.parametrize(
    ("kernel", "has_scores"),
    [
        (AttentionKernel.MATH, True),
        (AttentionKernel.FUSED_SOFTMAX, True),
        (AttentionKernel.EFFICIENT, False),
        (AttentionKernel.FLASH, False),
        (AttentionKernel.FLASH_1, False),
        (AttentionKernel.FLASH_3, False),
    ],
)
def test_copies_of_the_scores_are_alive_in_the_backward_of_kernels_that_have_any(
    kernel: AttentionKernel, has_scores: bool
) -> None:
    layout = replace(KORTHIKANTI, attention_kernel=kernel)
    none, two = (activations(layout, on_stack(gpt_22b(), scores_alive=n)) for n in (0.0, 2.0))
    scores = 2 * 4 * 64 * 2048 * 2048 / 8  # bytes, micro-batch, heads, square, tensor ranks
    assert two - none == pytest.approx(2 * scores * has_scores, rel=1e-9)  # rounding of sums a hundred times as large


def test_a_stack_holds_a_share_of_activations_and_an_amount_that_are_not_counted() -> None:
    sizes = of(Layout(), on_stack(eight_gpus(), activation_overhead=0.25, allowance_bytes=10**9))
    assert float(sizes.allowance_bytes[0]) == 1e9 + 0.25 * float(sizes.activations_bytes[0])


def test_the_peak_is_the_sum_of_its_parts() -> None:
    sizes = of(ONE_F_ONE_B, demo(ONE_F_ONE_B, 8))
    parts = [float(getattr(sizes, f.name)[0]) for f in fields(sizes) if f.name != "worst_stage"]
    assert len(parts) == 7
    assert float(sizes.total_bytes[0]) == pytest.approx(sum(parts), rel=1e-12)  # order of a sum


def test_a_fused_loss_keeps_no_logits_in_fp32() -> None:
    steps, fused = (of(Layout(), on_stack(eight_gpus(), fuses_loss=f, logits_copies=2.0)) for f in (False, True))
    assert float(steps.logits_bytes[0]) == 64 * 128256 * (2 + 4 + 2 * 4)
    assert float(fused.logits_bytes[0]) == 64 * 128256 * (2 + 2)
