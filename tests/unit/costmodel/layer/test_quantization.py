"""Casts: bytes per tensor, by recipe, software and device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotuner.catalog.hardware import load_cluster
from autotuner.core.choices import Fp8Recipe, Precision
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.costmodel.layer.memory_bound import stream_rate
from autotuner.costmodel.layer.quantization import CastTimes, cast_kernels, casts_s, weight_casts_s
from tests.builders import big_job, llama_70b
from tests.unit.costmodel.works import columns, first, sparse_job, with_stack

FP8 = Layout(precision=Precision.FP8)


def engine(name: str = "h100", **fields: bool) -> Job:
    """The big job with Transformer Engine, on that accelerator."""
    job = with_stack(None, fp8_implementation="transformer_engine", **fields)
    return replace(job, cluster=replace(job.cluster, accelerator=load_cluster(name).accelerator))


def seconds(layout: Layout, job: Job, *, sparse: bool = False) -> float:
    times = casts_s(columns(layout), job, sparse=sparse)
    return first(times.forward_s + times.input_gradient_s + times.weight_gradient_s)


def recipe(name: Fp8Recipe, **fields: bool) -> Layout:
    return replace(FP8, fp8_recipe=name, **fields)  # type: ignore[arg-type]


def test_nothing_is_cast_in_16_bits() -> None:
    assert seconds(Layout(), big_job()) == 0.0
    assert first(weight_casts_s(columns(Layout()), big_job(), np.array([1e9]))) == 0.0
    assert first(cast_kernels(columns(Layout()), big_job())) == 0.0


def test_a_scale_per_block_moves_four_bytes_and_the_scales_of_each_input_and_gradient() -> None:
    job, model = engine("b200"), llama_70b()
    inputs = 2 * model.hidden_size + model.attention_output_size + model.ffn_size
    gradients = 2 * model.hidden_size + model.query_size + model.key_value_size + 2 * model.ffn_size
    moved_bytes = (4 + 2 / 32) * (inputs + gradients) * job.workload.seq_len
    assert seconds(recipe(Fp8Recipe.MXFP8), job) == pytest.approx(moved_bytes / stream_rate(job), rel=1e-12)


def test_finding_the_largest_value_first_reads_every_tensor_once_more() -> None:
    delayed, current = (seconds(recipe(r), engine()) for r in (Fp8Recipe.DELAYED, Fp8Recipe.TENSORWISE))
    assert delayed < current
    assert seconds(recipe(Fp8Recipe.DELAYED), engine("b200")) < seconds(recipe(Fp8Recipe.MXFP8), engine("b200"))


def test_a_second_layout_is_written_on_hopper_and_not_on_blackwell() -> None:
    hopper, blackwell = (engine(name) for name in ("h100", "b200"))
    moved = [seconds(recipe(Fp8Recipe.TENSORWISE), job) * stream_rate(job) for job in (hopper, blackwell)]
    assert moved[0] == pytest.approx(moved[1] * 6 / 5, rel=1e-12)  # read 2 and 2, write 1 and 1, or 1


def test_weights_are_rounded_once_a_step_by_transformer_engine_and_in_every_pass_by_torchao() -> None:
    x, elements = columns(FP8), np.array([1e9])
    assert first(weight_casts_s(x, engine(), elements)) > 0.0
    assert first(weight_casts_s(x, big_job(), elements)) == 0.0
    gathered = with_stack(gathers_fp8_parameters=True)
    assert seconds(FP8, gathered) < seconds(FP8, with_stack())


def test_gathered_weights_are_only_laid_out_again_and_not_even_that_on_blackwell() -> None:
    x, elements = columns(recipe(Fp8Recipe.DELAYED)), np.array([1e9])
    hopper, blackwell = (engine(name, gathers_fp8_parameters=True) for name in ("h100", "b200"))
    assert 0.0 < first(weight_casts_s(x, hopper, elements)) < first(weight_casts_s(x, engine(), elements))
    assert first(weight_casts_s(x, blackwell, elements)) == 0.0


def test_compiled_casts_move_a_fraction_of_what_eager_ones_do() -> None:
    assert 4 * seconds(replace(FP8, compiled=True), big_job()) < seconds(FP8, big_job())
    launched = [first(cast_kernels(columns(replace(FP8, compiled=compiled)), big_job())) for compiled in (False, True)]
    assert launched[0] > launched[1]


def test_a_scale_per_row_costs_more_than_one_per_tensor() -> None:
    tensorwise, rowwise = (
        seconds(recipe(r, compiled=True), big_job()) for r in (Fp8Recipe.TENSORWISE, Fp8Recipe.ROWWISE)
    )
    assert tensorwise < rowwise


def test_a_rank_rounds_its_part_of_what_is_gathered_rounded() -> None:
    split = Layout(precision=Precision.FP8, fp8_recipe=Fp8Recipe.TENSORWISE, tensor_parallel_degree=8)
    alone, sharing = (engine(gathers_fp8_activations=gathers) for gathers in (False, True))
    parallel = replace(split, sequence_parallel=True)
    assert seconds(parallel, sharing) < seconds(parallel, alone)
    assert seconds(split, sharing) == seconds(split, alone)


def test_emulation_rounds_and_widens() -> None:
    assert seconds(Layout(precision=Precision.FP8_EMULATED), big_job()) > seconds(FP8, big_job())


def test_experts_round_every_copy_of_a_token() -> None:
    job = sparse_job()
    assert seconds(FP8, job, sparse=True) > seconds(FP8, job)


def test_passes_share_the_casts_by_what_they_need() -> None:
    times = casts_s(columns(recipe(Fp8Recipe.DELAYED), replace(FP8, compiled=True)), engine(), sparse=False)
    assert isinstance(times, CastTimes)
    assert times.weight_gradient_s.tolist() == [0.0, 0.0]  # the forward pass left what it needs
    assert (times.forward_s > 0).all()
    assert (times.input_gradient_s > 0).all()
    assert first(casts_s(columns(FP8), big_job(), sparse=False).weight_gradient_s) > 0.0  # torchao rounds again
