"""Attention that PyTorch composes in fp32: what it keeps and what its backward works with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.choices import AttentionKernel, ContextExchange, Precision
from autotuner.core.layout import Layout
from tests.unit.costmodel.memory_jobs import activations, eight_gpus, on_stack, without_working_memory

MATH = Layout(attention_kernel=AttentionKernel.MATH)
SCORES = 64 * 64 * 64  # heads, and the square of the sequence


def test_scores_are_kept_in_fp32_whatever_the_format() -> None:
    layers = eight_gpus().model.num_layers
    wide, narrow = (without_working_memory(MATH, on_stack(eight_gpus(), math_in_fp32=f)) for f in (True, False))
    # queries from 2 bytes to 4, keys and values once for every one of the 8 query heads that share them, and the scores
    heads = 64 * 8192 * (2 + 2 * (4 - 2 / 8))
    assert wide - narrow == pytest.approx(layers * (2 * SCORES + heads), rel=1e-9)


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
