"""Said: a layout as settings of torchtitan, by their dotted names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from autotuner.core.choices import FP8_PRECISIONS, Fp8Recipe, Precision, Recompute
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.stages import ONE_STAGE_SCHEDULES, layers_per_stage
from autotuner.export.torchtitan.catalog import Release
from autotuner.export.torchtitan.entries import Value
from autotuner.export.torchtitan.rules import shards


def entries(release: Release, layout: Layout) -> Iterator[tuple[str, Value]]:
    """Settings that say one field each; those that mean nothing beside the degrees are left out."""
    for entry in release.entries:
        value = entry.said(layout)
        if entry.matters(layout) and value is not None:
            yield entry.setting, value
    if shards(layout):
        yield "parallelism.fsdp_reshard_after_forward", "always" if layout.reshard_after_forward else "never"


def batch(job: Job, layout: Layout) -> Iterator[tuple[str, Value]]:
    """Sequences of a replica: one micro-batch with accumulation, or in a pipeline all micro-batches of a step."""
    pipelined = layout.pipeline_parallel_degree > 1
    at_once = job.workload.num_micro_batches(layout) if pipelined else 1
    yield "training.local_batch_size", layout.micro_batch_size * max(1, at_once)
    yield "training.global_batch_size", job.workload.global_batch_size
    yield "training.seq_len", job.workload.seq_len
    if pipelined:
        yield "parallelism.pipeline_parallel_microbatch_size", layout.micro_batch_size


def stages(job: Job, layout: Layout) -> Iterator[tuple[str, Value]]:
    """Layers per stage, from which torchtitan counts its stages, where these are not what it takes by itself.

    It makes ceil((layers + first less + last less) / this) of them and deals the layers as a layout does
    (``generate_llm_fqn_per_model_part`` of torchtitan 0.2.2), one or two stages per rank where nothing is said.
    """
    usual = 1 if layout.pipeline_schedule in ONE_STAGE_SCHEDULES else 2
    if layout.pipeline_parallel_degree > 1 and layout.virtual_stages_per_rank != usual:
        share = layers_per_stage(layout, job.model.num_layers)
        yield "parallelism.pipeline_parallel_layers_per_stage", max(1, share)


def experts(job: Job, layout: Layout) -> Iterator[tuple[str, Value]]:
    """Whether tensor ranks split the experts that expert ranks hold, which is a fact of the job's software."""
    if layout.expert_parallel_degree > 1:
        splits = job.stack.splits_experts
        yield "parallelism.expert_tensor_parallel_degree", layout.tensor_parallel_degree if splits else 1


def recompute_0_2(layout: Layout) -> Iterator[tuple[str, Value]]:
    """Activation checkpointing of 0.2; an interval of full layers is a kind of its selective mode."""
    by_interval = layout.recompute == Recompute.FULL and layout.recompute_every > 1
    yield "activation_checkpoint.mode", "selective" if by_interval else layout.recompute.label
    if by_interval:
        yield "activation_checkpoint.selective_ac_option", str(layout.recompute_every)
    elif layout.recompute == Recompute.SELECTIVE:
        yield "activation_checkpoint.selective_ac_option", "op"


def precision(release: Release, job: Job, layout: Layout) -> Iterator[tuple[str, Value]]:
    """Formats of parameters and products in 0.2, whose converters are settings."""
    yield "training.mixed_precision_param", "float32" if layout.precision == Precision.FP32 else "bfloat16"
    if layout.precision not in FP8_PRECISIONS:
        return
    kind = "mx" if layout.fp8_recipe == Fp8Recipe.MXFP8 else "float8"
    of_experts = (f"quantize.grouped_mm.{kind}",) if job.model.experts else ()
    yield "model.converters", (f"quantize.linear.{kind}", *of_experts)
    yield f"quantize.linear.{kind}.filter_fqns", ("output", "router.gate") if of_experts else ("output",)
    if of_experts:
        yield f"quantize.grouped_mm.{kind}.fqns", ("experts",)
    if kind == "mx":
        yield "quantize.linear.mx.recipe_name", "mxfp8_cublas"
    else:
        yield from _float8(release, job, layout)


def _float8(release: Release, job: Job, layout: Layout) -> Iterator[tuple[str, Value]]:
    """The recipe, which torchtitan takes to be tensorwise where it emulates or gathers in 8 bits and none is named."""
    is_tensorwise = layout.fp8_recipe == Fp8Recipe.TENSORWISE
    if layout.precision == Precision.FP8_EMULATED:
        yield "quantize.linear.float8.emulate", True
    elif job.stack.gathers_fp8_parameters and is_tensorwise and shards(layout):
        yield "quantize.linear.float8.enable_fsdp_float8_all_gather", True
        yield "quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp", True
    else:
        yield "quantize.linear.float8.recipe_name", release.recipes.get(layout.fp8_recipe, "tensorwise")


def left_out(settings: Mapping[str, Value]) -> tuple[str, ...]:
    """What neither the layout nor the job says, in sentences."""
    sentences = [
        "data set, tokenizer, learning rate, clipping, number of steps, checkpoints and logs are torchtitan's own",
    ]
    if settings.get("compile.enable"):
        sentences.append("compile.components is left at model and loss")
    return tuple(sentences)
