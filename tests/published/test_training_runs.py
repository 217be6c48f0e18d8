"""Plans of five training runs whose clusters and hours were published; no software was fitted to them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.catalog.software import load_stack
from autotuner.core.choices import Precision
from autotuner.core.layout import Layout
from autotuner.core.workload import Workload
from autotuner.costmodel.predict import predict_one
from autotuner.search.planning.clusters import Offer
from autotuner.search.planning.layouts import Outcome, job_on, outcome_of, searched_cluster
from autotuner.search.planning.request import Goal, PlanRequest
from autotuner.search.ranking import PredictedLayout

MILLION = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run as its report tells it.

    Attributes:
        accelerator_hours: Of pre-training, in all.
    """

    model: str
    accelerator: str
    num_accelerators: int
    num_tokens: float
    workload: Workload
    precision: Precision
    accelerator_hours: float


LLAMA_3_405B = Run(
    model="llama-3.1-405b",
    accelerator="h100",
    num_accelerators=16_384,
    num_tokens=15.6e12,
    workload=Workload(seq_len=8192, global_batch_size=2048),  # 16M tokens, as from 2.87T tokens on
    precision=Precision.BF16,
    accelerator_hours=30.84 * MILLION,
)
"""arXiv 2407.21783, table 4 and section 3.4; hours of the model card of Llama 3.1, 2024-07-23."""

DEEPSEEK_V3 = Run(
    model="deepseek-v3",
    accelerator="h800",
    num_accelerators=2048,
    num_tokens=14.8e12,
    workload=Workload(seq_len=4096, global_batch_size=15_360),  # as after the first 469B tokens
    precision=Precision.FP8,
    accelerator_hours=2.664 * MILLION,
)
"""arXiv 2412.19437, table 1 and section 4.2, 2024-12-27."""

OLMO_2_32B = Run(
    model="olmo-2-32b",
    accelerator="h100",
    num_accelerators=1280,
    num_tokens=6e12,
    workload=Workload(seq_len=4096, global_batch_size=2048),
    precision=Precision.BF16,
    accelerator_hours=6e12 / 1800 / 3600,
)
"""allenai.org/blog/olmo2-32B, 2025-03-13: 6T tokens at more than 1,800 tokens per second and GPU; its cluster, Augusta,
has 160 nodes of 8 (from memory). The rate is of healthy steps: a little more was paid."""


LLAMA_2_70B = Run(
    model="llama-2-70b",
    accelerator="a100",
    num_accelerators=2048,  # "up to 2,000"
    num_tokens=2e12,
    workload=Workload(seq_len=4096, global_batch_size=1024),
    precision=Precision.BF16,
    accelerator_hours=1_720_320,
)
"""arXiv 2307.09288, tables 1 and 2 and section 2.2, 2023-07-19."""

BLOOM_176B = Run(
    model="bloom-176b",
    accelerator="a100",
    num_accelerators=384,
    num_tokens=366e9,
    workload=Workload(seq_len=2048, global_batch_size=2048),
    precision=Precision.BF16,
    accelerator_hours=1_082_990,
)
"""Hours: arXiv 2211.02001, table 1, 2022-11-03; tokens and cluster: arXiv 2211.05100."""

BLOOM_LAYOUT = "zero8 tp4 pp12 1f1b mb2 recompute-full math bf16"
"""8 replicas, 4 tensor ranks, 12 stages (same report); the micro-batch as in its launch script (tr11-176B-ml)."""


def requested(run: Run, stack: str) -> PlanRequest:
    return PlanRequest(
        model=load_model(run.model),
        workload=run.workload,
        goal=Goal(num_tokens=run.num_tokens),
        stack=load_stack(stack),
        space={"precision": (run.precision,)},
    )


def planned(run: Run, stack: str = "torch", num_accelerators: int | None = None) -> Outcome:
    cluster = load_cluster(f"{run.accelerator}:{num_accelerators or run.num_accelerators}")
    outcome = searched_cluster(requested(run, stack), Offer(cluster=cluster)).outcome
    assert outcome is not None
    return outcome


@pytest.mark.parametrize(
    ("run", "stack"),
    [
        (LLAMA_3_405B, "torch"),
        (LLAMA_3_405B, "megatron-core"),
        (OLMO_2_32B, "torch"),
        (OLMO_2_32B, "megatron-core"),
        (DEEPSEEK_V3, "megatron-core"),
        (LLAMA_2_70B, "torch"),
    ],
    ids=lambda value: value.model if isinstance(value, Run) else value,
)
def test_published_hours_lie_inside_the_interval(run: Run, stack: str) -> None:
    hours = planned(run, stack).accelerator_hours
    assert hours.low <= run.accelerator_hours <= hours.high


def test_dense_runs_are_planned_within_a_tenth_of_their_hours() -> None:
    for run in (LLAMA_3_405B, OLMO_2_32B):
        # a figure to notice a change by: 2 % and 6 % on the day of writing, inside intervals of 27 %
        assert planned(run).accelerator_hours.median == pytest.approx(run.accelerator_hours, rel=0.1)


def test_half_their_cluster_would_have_been_too_slow_in_every_case_of_the_interval() -> None:
    for run in (LLAMA_3_405B, OLMO_2_32B):
        took_s = run.accelerator_hours / run.num_accelerators * 3600
        assert planned(run, num_accelerators=run.num_accelerators // 2).time_s.low > took_s
        assert planned(run).time_s.low < took_s


def test_deepseek_v3_beats_torch_by_what_its_own_trainer_hides() -> None:
    outcome = planned(DEEPSEEK_V3)
    hours = outcome.accelerator_hours
    assert DEEPSEEK_V3.accelerator_hours < hours.low < 1.05 * DEEPSEEK_V3.accelerator_hours  # missed, by 2 %
    step = outcome.best.prediction.step_time
    # DualPipe hides the exchange between experts and halves the bubble; they recompute no products
    hidden_s = step.expert_communication_s + step.bubble_s / 2 + step.recompute_s
    without = hours.median * (1 - hidden_s / step.total_s)
    assert without == pytest.approx(DEEPSEEK_V3.accelerator_hours, rel=0.15)  # the rest of the step is known that well


def test_bloom_is_planned_too_fast_by_what_its_own_layout_does_and_a_layout_of_today_does_not() -> None:
    hours = planned(BLOOM_176B).accelerator_hours
    assert hours.high < BLOOM_176B.accelerator_hours  # the best layout recomputes nothing, by kernels that came later
    request, cluster = requested(BLOOM_176B, "torch"), load_cluster("a100:384")
    job = job_on(request, cluster)
    row = PredictedLayout(layout=Layout.parse(BLOOM_LAYOUT), prediction=predict_one(Layout.parse(BLOOM_LAYOUT), job))
    own = outcome_of(job, row, request.goal, request.failures).accelerator_hours
    assert own.low < BLOOM_176B.accelerator_hours < own.high
