from __future__ import annotations

import pytest

from api.dashboard import words
from api.schemas import Predicted
from autotuner.domain.layouts.choice import (
    ContextExchange,
    Fp8Recipe,
    OptimizerKernel,
    Precision,
    Recompute,
    ShardLevel,
)
from autotuner.domain.layouts.layout import Layout
from autotuner.domain.runs.metric import Metric
from autotuner.domain.runs.objective import Objective, Weight
from tests.builders import cpu_layout, prediction


@pytest.mark.parametrize(
    ("layout", "text"),
    [
        (cpu_layout(), "one rank · micro-batch 1 · fp32 · math attention"),
        (
            cpu_layout(tensor_parallel_degree=2, sequence_parallel=True, recompute=Recompute.FULL),
            "tensor 2 · micro-batch 1 · sequence parallel · recompute full · fp32 · math attention",
        ),
        (
            Layout(
                pipeline_parallel_degree=4,
                data_parallel_replicate_degree=2,
                data_parallel_shard_degree=8,
                shard_level=ShardLevel.PARAMETERS,
                reshard_after_forward=True,
                micro_batch_size=2,
            ),
            "pipeline 4 · data 2 · fully sharded data 8 · schedule 1f1b · micro-batch 2 · reshard after forward · "
            "bf16 · flash attention",
        ),
        (
            Layout(
                pipeline_parallel_degree=2,
                last_stage_less_layers=1,
                context_parallel_degree=2,
                context_exchange=ContextExchange.ALL_GATHER,
                recompute=Recompute.FULL,
                recompute_every=2,
                precision=Precision.FP8_EMULATED,
                fp8_recipe=Fp8Recipe.ROWWISE,
                compiled=True,
                optimizer_kernel=OptimizerKernel.FOREACH,
            ),
            "pipeline 2 · context 2 · schedule 1f1b · micro-batch 1 · 1 layers fewer on the last stage · "
            "context by all gather · recompute full every 2 layers · compiled · foreach optimizer · "
            "fp8 emulated rowwise · flash attention",
        ),
        (
            Layout(
                tensor_parallel_degree=2,
                data_parallel_replicate_degree=2,
                sequence_parallel=True,
                async_tensor_parallel=True,
                loss_parallel=False,
                gradient_bucket_bytes=100_000_000,
                fp32_gradient_reduce=True,
                offload_activations=True,
                fused_norm=False,
            ),
            "tensor 2 · data 2 · micro-batch 1 · sequence parallel · async tensor parallel · gathered logits · "
            "buckets of 100 MB · gradients summed in fp32 · activations offloaded · unfused norm · bf16 · "
            "flash attention",
        ),
    ],
)
def test_a_layout_is_said_in_words(layout: Layout, text: str) -> None:
    assert words.in_words(layout) == text


@pytest.mark.parametrize("value", [None, float("nan"), float("inf")])
def test_what_is_unknown_is_a_dash(value: float | None) -> None:
    assert {words.percent(value), words.seconds(value), words.num_bytes(value), words.token_rate(value)} == {"–"}


def test_a_prediction_is_said_with_its_interval_and_how_likely_it_fits() -> None:
    predicted = Predicted.of(prediction(relative_error=0.124, fit_probability=0.97))
    assert words.predicted_seconds(predicted) == "1.36 s ± 12 %"
    assert words.predicted_mfu(predicted) == "40.0 ± 5.0 %"
    assert words.fit(predicted) == "fits, 97 % sure"


def test_a_prediction_of_unknown_error_has_none() -> None:
    predicted = Predicted.of(prediction(relative_error=None, fit_probability=None))
    assert (words.predicted_seconds(predicted), words.fit(predicted)) == ("1.36 s", "fits")


@pytest.mark.parametrize(("value", "text"), [(0.2, "0 s"), (59.6, "1 min"), (3725.0, "1 h 2 min 5 s")])
def test_a_duration_is_said_in_hours_minutes_and_seconds(value: float, text: str) -> None:
    assert words.duration(value) == text


@pytest.mark.parametrize(
    ("text", "said"), [("it runs as it did", "It runs as it did."), ("fsdp64 mb1 is faster", "fsdp64 mb1 is faster.")]
)
def test_a_sentence_begins_large_but_for_a_layout_which_stays_as_it_is_typed(text: str, said: str) -> None:
    assert words.sentence(text) == said


@pytest.mark.parametrize(("total", "said"), [(0, "0"), (10_000, "10000"), (10_050, "more than 10000")])
def test_a_list_says_no_more_than_it_counted(total: int, said: str) -> None:
    assert words.in_all(total) == said


def test_what_a_sweep_is_compared_by_is_said_where_it_is_not_mfu_alone() -> None:
    profile = (Weight(metric=Metric.MFU, weight=2.0), Weight(metric=Metric.TOKENS_PER_JOULE, weight=1.0))
    front = (Metric.MFU, Metric.SIMPLICITY)
    assert words.compared_by(Objective()) == words.compared_by(Objective(under_faults=True)) == ""
    assert words.compared_by(Objective(profile=profile)) == "MFU ×2, tokens per joule ×1"
    assert words.compared_by(Objective(front=front)) == "MFU; front of MFU and simplicity"


def test_what_comes_on_top_has_a_sign_unless_it_is_next_to_nothing() -> None:
    assert (words.more(0.18), words.more(0.001)) == ("+18 %", "<1 %")
