"""Plans of five training runs whose clusters and hours were published; no software was fitted to them.

Predicted step times against every published table of whole runs.

The constants of the catalog's stacks were fitted to these rows. What this guards is the model and its constants
together; how far predictions of sheets left out of the fit are off stands in docs/reference/accuracy.md.

The six rules of arXiv 2311.05610 come out of its own measurements.

The paper's authors swept ten sheets; six of them are here, so counts are lower than over all ten, whose figures stand
beside those asserted.

The BERT record of MLPerf Training v1.1 and v2.0, on 1,024 A100 with buckets clipped before their reduction.

``mlperf_bert_v11_v20.csv`` has a row for every submission: seconds to the target accuracy, as the mean of ten runs
without the best and the worst, with sequences per step (``gbs``). Samsung's are of the open division, with an optimizer
and a batch of their own, so that ratios hold systems and optimizers together.

Which published runs are predicted to fit, against which did.

The memory constants of the stack aleph-alpha were fitted to its rows; docs/reference/accuracy.md has the shares of
sheets left out of the fit. To the other tables no memory constant was fitted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from autotuner.backtests.measured_table import Sheet
from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.catalog.software import load_stack
from autotuner.core.choices import Precision
from autotuner.core.layout import Layout
from autotuner.core.workload import Workload
from autotuner.costmodel.predict import predict_one
from autotuner.report.explanation import effect_in_words
from autotuner.search.planning.offers import Offer
from autotuner.search.planning.outcomes import Outcome, job_on, outcome_of, searched_cluster
from autotuner.search.planning.request import Goal, PlanRequest
from autotuner.search.predicted_ranking import PredictedLayout
from autotuner.search.results.pairs import PairEffect, pair_effects
from research.accuracy import OTHER_RUNS, left_out, tables_of_runs
from tests.builders import present
from tests.published.tables import judged, read, rows, sheets

# ---------------------------------------------------------------- training runs

MILLION = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run as its report tells it."""

    model: str
    accelerator: str
    num_accelerators: int
    num_tokens: float
    workload: Workload
    precision: Precision
    accelerator_hours: float
    """Of pre-training, in all."""


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


@cache
def planned(run: Run, stack: str = "torch", num_accelerators: int | None = None) -> Outcome:
    cluster = load_cluster(f"{run.accelerator}:{num_accelerators or run.num_accelerators}")
    return present(searched_cluster(requested(run, stack), Offer(cluster=cluster)).outcome)


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


def test_dense_runs_are_planned_within_a_tenth_and_half_their_cluster_would_have_been_too_slow() -> None:
    for run in (LLAMA_3_405B, OLMO_2_32B):
        # a figure to notice a change by: 2 % and 6 % on the day of writing, inside intervals of 27 %
        assert planned(run).accelerator_hours.median == pytest.approx(run.accelerator_hours, rel=0.1)
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


# ---------------------------------------------------------------- step times


def anywhere(_: Sheet) -> bool:
    return True


def several_nodes(sheet: Sheet) -> bool:
    return sheet.job.cluster.num_nodes > 1


def one_node(sheet: Sheet) -> bool:
    return not several_nodes(sheet)


def nemo_dense_on_h100(sheet: Sheet) -> bool:
    is_dense, device = sheet.job.model.experts is None, sheet.job.cluster.accelerator.name
    return (is_dense, device, sheet.job.stack.name) == (True, "h100-sxm", "nemo")


def a100(sheet: Sheet) -> bool:
    return sheet.job.cluster.accelerator.name.startswith("a100")


@pytest.mark.parametrize(
    ("table", "keep", "num_rows", "median"),
    [
        # at least this is asked of sheets left out of the fit; measured here: 3.0, 12.0, 3.4, 2.8 and 3.8 %
        ("aleph_alpha_layouts_sweep", anywhere, 267, 0.07),
        ("nanotron_ultrascale_sweep", anywhere, 512, 0.15),
        ("megatron_lm_tables", anywhere, 20, 0.08),
        ("llm_foundry_mpt", anywhere, 223, 0.10),
        ("vtrain_validation", several_nodes, 52, 0.10),
        # nothing is asked of these: half as much again as is measured, 5.3, 6.6 and 8.9 %
        ("vtrain_validation", one_node, 727, 0.08),
        ("dgxc_benchmarking", nemo_dense_on_h100, 81, 0.10),
        ("torchtitan", a100, 8, 0.135),
        # 0.9 % of few runs of one model; left out of the fit it was 4.8 %
        ("zero_bubble_pp_a100", anywhere, 25, 0.05),
    ],
)
def test_the_median_run_is_predicted(table: str, keep: Callable[[Sheet], bool], num_rows: int, median: float) -> None:
    errors = judged(table, keep).absolute_errors
    assert len(errors) == num_rows  # an average is only as good as the rows it is over
    assert np.median(errors) < median


@pytest.mark.parametrize(
    ("words", "floor"),
    [
        # measured: 0.900, 0.992, 0.931, 0.943 and 0.911; 0.92 is asked for, which two of these miss
        ("LLAMA-13B, 64 x A100-80GB, 2048 tokens", 0.88),
        ("LLAMA-13B, 128 x A100-80GB, 8192 tokens", 0.88),
        ("LLAMA-30B, 256 x A100-80GB, 2048 tokens", 0.88),
        ("LLAMA-13B, 64 x A100-80GB, 8192 tokens", 0.88),
        ("LLAMA-30B, 64 x A100-80GB, 2048 tokens", 0.88),
        # 0.735: 16 runs, half of them within 7 % of each other
        ("LLAMA-13B, 32 x A100-80GB, 2048 tokens", 0.70),
    ],
)
def test_a_sheet_of_aleph_alpha_is_ranked(words: str, floor: float) -> None:
    (judgement,) = [judgement for sheet, judgement in sheets("aleph_alpha_layouts_sweep") if words in sheet.name]
    (search,) = judgement.searches
    assert present(search.spearman) > floor


# ---------------------------------------------------------------- pairs

TABLE = Path(__file__).parent / "aleph_alpha_layouts_sweep.csv"

ROUNDING = 0.0005
"""The figures below are given in tenths of a percent."""


@pytest.fixture(scope="module")
def found() -> dict[tuple[str, str, str], PairEffect]:
    sheets = read(TABLE).sheets
    effects = pair_effects((sheet.layouts, sheet.step_time_s) for sheet in sheets)
    return {(i.subject, i.before, i.after): i for i in effects}


@pytest.mark.parametrize(
    ("subject", "before", "after", "num_pairs", "num_faster", "median_gain"),
    [
        ("recompute", "full", "none", 34, 34, 0.308),  # ten sheets: 44 of 44, +32 %
        ("fused norm", "off", "on", 16, 16, 0.143),  # 22 of 22, +15.6 %
        ("attention", "flash 1", "flash", 64, 52, 0.049),  # 88 % of 102, +3.9 %
        ("attention", "fused softmax", "flash", 24, 20, 0.101),  # +10 %
        ("attention", "math", "flash", 23, 22, 0.556),  # +56 %
        ("micro-batch", "1", "2", 82, 44, 0.007),  # 52 %, +0.4 %: not why micro-batch 1 wins
        ("tensor → pipeline", "", "", 90, 79, 0.118),
        ("sequence parallel", "off", "on", 24, 23, 0.050),
    ],
)
def test_a_rule_of_the_paper_has_its_count_and_size(
    found: dict[tuple[str, str, str], PairEffect],
    subject: str,
    before: str,
    after: str,
    num_pairs: int,
    num_faster: int,
    median_gain: float,
) -> None:
    effect = found[subject, before, after]
    assert (effect.num_pairs, effect.num_faster) == (num_pairs, num_faster)
    assert effect.median_gain == pytest.approx(median_gain, abs=ROUNDING)


def test_recomputation_costs_between_five_and_forty_percent(found: dict[tuple[str, str, str], PairEffect]) -> None:
    assert effect_in_words(found["recompute", "full", "none"]) == (
        "recompute full → none: +30.8 % throughput in the median of 34 pairs (+5.3 % to +39.9 %), faster in 34 of them"
    )


# ---------------------------------------------------------------- mlperf bert

SEQUENCES_TO_TARGET = 2_932_736
"""Of all ten runs of v2.0 and of five of v1.1, by their logs (mlcommons/training_results_v2.0, Samsung)."""


def seconds(round_: str, submitter: str, num_nodes: int) -> float:
    """Of a system of that many nodes of eight A100."""
    (row,) = (one for one in rows("mlperf_bert_v11_v20") if _is_of(one, round_, submitter, num_nodes))
    return float(row["mean_drop_best_worst_s"])


def _is_of(row: Mapping[str, str], round_: str, submitter: str, num_nodes: int) -> bool:
    has_nodes = f"_n{num_nodes}_" in row["system"]
    return (row["round"], row["submitter"]) == (round_, submitter) and has_nodes


@pytest.mark.parametrize(
    ("round_", "num_nodes", "published_s"), [("v1.1", 128, 25.06), ("v2.0", 128, 22.32), ("v2.0", 171, 21.41)]
)
def test_the_record_is_what_the_rows_say(round_: str, num_nodes: int, published_s: float) -> None:
    assert seconds(round_, "Samsung", num_nodes) == published_s


@pytest.mark.parametrize(
    ("round_", "submitter", "ratio"), [("v1.1", "NVIDIA", 1.33), ("v1.1", "Azure", 1.57), ("v2.0", "NVIDIA", 1.13)]
)
def test_systems_of_as_many_accelerators_took_longer(round_: str, submitter: str, ratio: float) -> None:
    # published with two decimals
    assert seconds(round_, submitter, 128) / seconds(round_, "Samsung", 128) == pytest.approx(ratio, abs=0.005)


def test_the_record_took_179_steps_of_an_eighth_of_a_second() -> None:
    batch = next(int(row["gbs"]) for row in rows("mlperf_bert_v11_v20") if row["submitter"] == "Samsung")
    num_steps = SEQUENCES_TO_TARGET / batch
    assert num_steps == 179
    # 22.32 s over 179, evaluations included
    assert seconds("v2.0", "Samsung", 128) / num_steps == pytest.approx(0.125, abs=5e-4)


# ---------------------------------------------------------------- out of memory

ALEPH_ALPHA = "aleph_alpha_layouts_sweep"


def test_few_runs_that_ran_out_of_memory_were_let_through() -> None:
    rows = judged(ALEPH_ALPHA)
    # at most this is asked of sheets left out; 5.9 % of 372 are measured
    assert rows.fits[~rows.ran].mean() <= 0.10


@pytest.mark.parametrize(
    ("table", "most"),
    [
        # at most this is asked of sheets left out; 2 of 267 are measured
        (ALEPH_ALPHA, 0.03),
        # 20 of 223, by 1 to 6 %: none would be if 5 % of the activations came on top of those counted, instead of the
        # 15 % that other software needs and that is assumed where nothing was fitted
        ("llm_foundry_mpt", 0.15),
        # 3 of 512, of one micro-batch through two ranks: their recorded peaks are below the predicted logits alone
        ("nanotron_ultrascale_sweep", 0.01),
        ("megatron_lm_tables", 0.0),
        ("vtrain_validation", 0.0),
        ("zero_bubble_pp_a100", 0.0),
    ],
)
def test_few_runs_that_ended_are_refused(table: str, most: float) -> None:
    rows = judged(table)
    assert (~rows.fits[rows.ran]).mean() <= most


@pytest.mark.parametrize("number", range(6))
def test_the_best_run_of_a_sheet_is_never_refused(number: int) -> None:
    _, judgement = sheets(ALEPH_ALPHA)[number]
    (search,) = judgement.searches
    assert not search.best_refused


# ---------------------------------------------------------------- rows read

UNREAD = {
    "megatron_lm_tables": 10,  # tensor and pipeline degree are printed as their product, or no micro-batch is
    "nemo_megatron_bridge_perf": 8,  # the product of the parallel degrees differs from the number of accelerators
}
"""Rows that say too little, or contradict themselves."""


@pytest.mark.parametrize("path", tables_of_runs(), ids=lambda path: path.stem)
def test_all_rows_are_read_but_those_that_contradict_themselves_and_runs_of_other_kinds(path: Path) -> None:
    reasons = left_out(read(path))
    unread = sum(count for reason, count in reasons.items() if not reason.startswith(OTHER_RUNS))
    assert unread == UNREAD.get(path.stem, 0), reasons
