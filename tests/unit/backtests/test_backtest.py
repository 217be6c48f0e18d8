from __future__ import annotations

import csv
import json
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from autotuner.backtests import cells
from autotuner.backtests.measured_table import REQUIRED_COLUMNS, Sheet, Table
from autotuner.backtests.models import with_capacity
from autotuner.backtests.replay import PROPOSERS, Replay
from autotuner.backtests.report import (
    GIVEN,
    MIN_MEASURED,
    NUM_DRAWS,
    Rows,
    Score,
    backtest,
    corrected,
    judge,
    kind_of_cluster,
    mean,
    quantile,
    replays,
    spearman,
)
from autotuner.backtests.sources import Source, descriptions, source_of
from autotuner.catalog.hardware import load_accelerator, load_link
from autotuner.catalog.models import model_called, models
from autotuner.catalog.software import load_stack, stacks
from autotuner.core.blocks import MixtureOfExperts
from autotuner.core.choices import ContextExchange
from autotuner.core.stack import Stack
from autotuner.costmodel.uncertainty import cluster_deviation
from tests.builders import present, tiny_model
from tests.unit.backtests.sheets import JOB, LAYOUTS, PREDICTED_S, sheet, with_values

# ---------------------------------------------------------------- How many tokens an expert takes, as tables say it
SPARSE = tiny_model(experts=MixtureOfExperts(num_experts=4, experts_per_token=2, expert_ffn_size=64))


@pytest.mark.parametrize(
    ("row", "usual", "capacity"),
    [
        ({}, None, None),
        ({}, 1.0, 1.0),
        ({"notes": "8 layers; capacity factor 1.25 with inputs padded to it"}, None, 1.25),
        ({"notes": "tokendrop; precision column absent"}, None, 1.0),
        ({"notes": "dropless"}, 1.0, None),
        ({"capacity_factor": "2"}, 1.0, 2.0),
    ],
)
def test_a_capacity_is_read_from_its_column_the_notes_or_what_is_usual(
    row: dict[str, str], usual: float | None, capacity: float | None
) -> None:
    experts = present(with_capacity(SPARSE, row, usual).experts)
    assert (experts.capacity_factor, experts.pads_to_capacity) == (capacity, capacity is not None)


def test_a_dense_model_has_no_capacity() -> None:
    assert with_capacity(tiny_model(), {"notes": "capacity factor 2"}, 1.0) == tiny_model()


# ---------------------------------------------------------------- Descriptions of software and of published sources
PUBLISHED = Path(__file__).parents[2] / "published"
SOFTWARE = tuple(descriptions()["software"])
SOURCES = tuple(beginning for source in descriptions()["source"] for beginning in source["match"])


@pytest.mark.parametrize("beginning", SOURCES)
def test_a_source_is_known_by_its_beginning_and_nothing_but_that(beginning: str) -> None:
    known = source_of({"source": f"{beginning} and the file in it"})
    assert beginning in known.match
    assert beginning not in source_of({"source": f"as in {beginning}"}).match


@pytest.mark.parametrize("row", [*({"source": b} for b in SOURCES), *({"framework": name} for name in SOFTWARE)])
def test_every_word_of_a_description_means_something(row: dict[str, str]) -> None:
    source = source_of(row)
    assert load_stack(source.stack).name == source.stack
    cells.shard_level(source.sharding)
    cells.recompute(source.recompute)
    cells.attention_kernel(source.attention, source.flash)
    cells.fp8_recipe("", source.fp8_recipe)
    ContextExchange.from_label(source.context_exchange)
    assert source.inter_node_link is None or load_link(source.inter_node_link)


def test_a_source_is_of_a_stack_of_the_catalog_and_typical_where_it_is_unknown() -> None:
    described = {source_of({"source": beginning}).stack for beginning in SOURCES}
    named = {source_of({"framework": name, "date": "2022" * name.endswith("-lm")}).stack for name in SOFTWARE}
    newest = {source_of({"framework": name, **NEWEST}).stack for name in SOFTWARE}
    assert described | named | newest | {Stack().name, Source().stack} == set(stacks())
    source = source_of({"source": "my own cluster"})
    assert source.stack == "typical"
    assert (source.inter_node_link, source.oversubscription, source.congestion) == (None, 2.0, None)  # of those fitted


NEWEST = {"release": "26.08", "precision": "mxfp8", "gpu": "GB200"}


@pytest.mark.parametrize(
    ("changes", "stack"),
    [
        ({}, "megatron-bridge-graphs"),
        ({"release": "26.04.01"}, "megatron-bridge"),
        ({"precision": "bf16"}, "megatron-bridge"),
        ({"gpu": "H100-80GB-SXM"}, "megatron-bridge"),
        ({"release": ""}, "megatron-bridge"),
    ],
)
def test_a_release_of_software_is_described_by_what_its_rows_hold(changes: dict[str, str], stack: str) -> None:
    assert source_of({"framework": "Megatron-Bridge", **NEWEST, **changes}).stack == stack


@pytest.mark.parametrize(
    ("row", "stack"),
    [
        ({"source": "github somebody/runs", "framework": "Megatron-LM (main, 2025)"}, "megatron-core"),
        ({"source": "github NVIDIA-NeMo/Megatron-Bridge docs"}, "megatron-bridge"),
        ({"source": "docs.nvidia.com nemo-framework user-guide"}, "nemo"),
        ({"source": "arXiv:2104.12345 table 2", "notes": "Megatron-LM on 64 V100"}, "megatron"),
        ({"source": "arXiv:2402.15627 table 2", "notes": "Megatron-LM baseline"}, "megatron-core"),
        ({"source": "my blog", "notes": "trained with torchtitan"}, "torchtitan"),
        ({"source": "my blog", "notes": "PyTorch FSDP, bf16"}, "torchtitan"),
        ({"source": "github EleutherAI/gpt-neox README"}, "megatron-deepspeed"),
        ({"source": "github NVIDIA/dgxc-benchmarking grok1", "framework": "maxtext"}, "maxtext"),
    ],
)
def test_software_is_known_by_its_column_else_by_the_words_of_source_and_notes(row: dict[str, str], stack: str) -> None:
    assert source_of(row).stack == stack


def test_software_of_a_time_or_release_has_the_defaults_of_that_time() -> None:
    old, new = (source_of({"source": f"arXiv:{month}.00001", "framework": "Megatron-LM"}) for month in ("2104", "2406"))
    assert (old.sharding, old.attention) == ("zero0", "fused_softmax")
    assert (new.sharding, new.attention) == ("distributed optimizer", "transformer engine")
    old, new = (source_of({"framework": "nemo", "release": release}) for release in ("24.03.01.framework", "25.04"))
    assert (old.attention, new.attention) == ("flash", "transformer engine")


@pytest.mark.parametrize(
    ("model", "gpu", "precision", "sharding", "recompute"),
    [
        ("GPT OSS 120B", "B200", "bf16", "", "selective (layernorm + moe_act)"),
        ("GPT OSS 120B", "B300", "bf16", "", "none"),
        ("DeepSeek-V3", "H100", "fp8-cs", "", "selective (mla_up_proj + mlp)"),
        ("DeepSeek-V3", "GB200", "mxfp8", "", "selective (mla_up_proj)"),
        ("LLAMA3_8B", "H100", "fp8-cs", "", "full (5 layers)"),
        ("LLAMA3_8B", "H100", "bf16", "", "none"),
        ("LLAMA3_70B", "GB200", "bf16", "FSDP", "none + offload"),
        ("LLAMA3_70B", "GB200", "mxfp8", "", "none"),
    ],
)
def test_blank_recomputation_is_what_the_software_s_recipe_of_that_model_says(
    model: str, gpu: str, precision: str, sharding: str, recompute: str
) -> None:
    source = source_of({"framework": "Megatron-Bridge"})
    known, device = model_called(model), load_accelerator(gpu.lower())
    assert known is not None
    assert source.recompute_of(known.name, device.name, {"precision": precision, "zero_or_fsdp": sharding}) == recompute


def test_every_recipe_and_published_run_is_of_models_and_software_that_are_known() -> None:
    for name in SOFTWARE:
        for recipe in source_of({"framework": name, "date": "2024-09" if name == "nemo-2024" else ""}).recipes:
            assert {*recipe.models} <= {*models()}
            cells.recompute(recipe.recompute)
    for path in PUBLISHED.glob("*.csv"):
        with path.open(encoding="utf-8") as file:
            rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
        if "zero_or_fsdp" in rows[0]:  # a table of runs
            assert all(source_of(row).match for row in rows), path.name


# ---------------------------------------------------------------- Tests of `autotuner.backtests.report`
NOTHING = np.empty(0)


def test_equal_values_share_ranks_and_all_trials_are_counted() -> None:
    values = np.array([3.0, 1.0, 2.0, 5.0])
    assert spearman(values, np.exp(values)) == pytest.approx(1.0)  # rounding of the correlation
    assert spearman(values, -values) == pytest.approx(-1.0)
    # ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4: covariance 4.5, variances 4.5 and 5
    assert spearman(np.array([1.0, 2.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0, 4.0])) == pytest.approx(np.sqrt(0.9))
    far = sheet(with_values(PREDICTED_S, {15: PREDICTED_S.min() / 2}))
    report = backtest(table(sheet(), sheet(), far), num_seeds=4)
    counts = [score.trials_to_2pct["ours"] for score in report.sheets]
    assert present(counts[2].median) > 1
    assert report.all.trials_to_2pct["ours"].median == 1.0
    assert report.all.trials_to_2pct["ours"].p90 == pytest.approx(counts[2].p90)


@pytest.mark.parametrize("constant", [np.ones(4), np.ones(1), NOTHING])
def test_one_value_has_no_rank_correlation(constant: np.ndarray) -> None:
    assert spearman(constant, np.arange(constant.size, dtype=np.float64)) is None


def test_figures_are_relative_to_measured_times_and_none_without_rows() -> None:
    assert (mean(NOTHING), quantile(NOTHING, 0.5), mean([True, None, False, True, True])) == (None, None, 0.75)
    assert quantile(np.array([1.0, 2.0]), 0.5) == 1.5
    assert rows([0.5, np.nan, 2.0]).absolute_errors == pytest.approx([1.0, 0.5])  # 1 / 0.5 and 1 / 2
    assert rows([0.8, 1.25, np.nan, 0.79, 1.26]).covered.tolist() == [True, True, False, False]


def test_without_known_layouts_or_times_the_predictions_are_believed() -> None:
    replay = Replay.of(sheet(PREDICTED_S * 2))
    believed = corrected(replay)
    assert believed.step_time_s.tolist() == replay.predictions.step_time.total_s.tolist()
    assert believed.relative_error.tolist() == replay.predictions.relative_error.tolist()
    assert believed.fits.tolist() == replay.predictions.fits.tolist()
    replay = Replay.of(sheet(np.full(len(LAYOUTS), np.nan))).knowing(4, seed=0)
    assert corrected(replay).step_time_s == pytest.approx(replay.predictions.step_time.total_s)  # exp(log(x))


def test_known_step_times_move_others_towards_them_and_narrow_their_intervals() -> None:
    replay = Replay.of(sheet(PREDICTED_S * 2)).knowing(4, seed=0)
    others = replay.open
    ratio = corrected(replay).step_time_s[others] / replay.predictions.step_time.total_s[others]
    assert ratio.min() > 1.0
    # four of sixteen cannot tell which parts are slow, so some factors come out too large and others too small
    assert np.median(np.abs(np.log(ratio / 2))) < np.log(2) / 2
    replay = Replay.of(sheet()).knowing(4, seed=0)
    others = replay.open
    assert (corrected(replay).relative_error[others] < replay.predictions.relative_error[others]).all()


def test_a_known_run_out_of_memory_refuses_layouts_that_need_as_much() -> None:
    peaks = Replay.of(sheet()).predictions.memory.total_bytes
    accelerator = replace(JOB.cluster.accelerator, memory_bytes=int(peaks.max() * 1.01))
    edge = replace(JOB, cluster=replace(JOB.cluster, accelerator=accelerator))
    replay = Replay.of(sheet(np.full(len(LAYOUTS), np.nan), job=edge))
    assert corrected(replay).fits.all()
    assert not corrected(replay.knowing(4, seed=0)).fits[peaks.argmax()]


def rows(measured_s: list[float], predicted_s: float = 1.0, relative_error: float = 0.25) -> Rows:
    count = len(measured_s)
    return Rows(
        measured_s=np.array(measured_s),
        predicted_s=np.full(count, predicted_s),
        relative_error=np.full(count, relative_error),
        fits=np.full(count, True),
    )


def test_a_table_that_does_as_predicted_costs_one_trial_by_ours_and_loses_nothing() -> None:
    (search,) = judge(sheet(), num_seeds=3, num_given=0).searches
    assert search.trials["ours"].tolist() == [1, 1, 1]
    assert search.regret.tolist() == [0.0, 0.0, 0.0]
    assert search.spearman == pytest.approx(1.0)  # rounding of the correlation
    assert not search.best_refused
    assert {name: counts.size for name, counts in search.trials.items()} == dict.fromkeys(PROPOSERS, 3)


def test_a_slower_first_choice_is_regretted_and_one_out_of_memory_costs_a_trial() -> None:
    best = PREDICTED_S.min() / 2
    (search,) = judge(sheet(with_values(PREDICTED_S, {9: best})), num_seeds=1, num_given=0).searches
    assert search.regret == pytest.approx([0.5])  # twice as slow: half of the MFU is lost
    assert search.trials["ours"][0] > 1
    measured_s = with_values(np.full(len(LAYOUTS), PREDICTED_S.min()), {0: np.nan})
    (search,) = judge(sheet(measured_s), num_seeds=1, num_given=0).searches
    assert search.trials["ours"].tolist() == [2]
    assert search.regret.tolist() == [0.0]


@pytest.mark.parametrize(("measured", "searches"), [(7, 0), (8, 1)])
def test_an_order_of_fewer_than_eight_measured_runs_is_not_judged(measured: int, searches: int) -> None:
    measured_s = np.where(np.arange(len(LAYOUTS)) < measured, PREDICTED_S, np.nan)
    assert len(judge(sheet(measured_s), num_seeds=1, num_given=0).searches) == searches


def test_rows_are_judged_beside_what_all_draws_of_a_calibration_know() -> None:
    slow = sheet(PREDICTED_S * 2.0)
    before, after = judge(slow, num_seeds=5, num_given=0), judge(slow, num_seeds=5, num_given=4)
    assert np.median(before.rows.absolute_errors) == pytest.approx(0.5)  # rounding
    assert np.median(after.rows.absolute_errors) < 0.1  # the prior still pulls towards the prediction
    searches = judge(sheet(), num_seeds=7, num_given=3).searches
    assert [search.trials["random"].size for search in searches] == [2, 2, 1, 1, 1]


def test_rows_are_left_out_by_sheet_table_and_calibration() -> None:
    judgement = judge(sheet(left_out={"odd": 2}), num_seeds=5, num_given=3)
    assert judgement.num_rows == len(LAYOUTS) - 3
    assert judgement.left_out == {"odd": 2, GIVEN: 3}
    judgement = judge(sheet(), num_seeds=5, num_given=100)
    assert judgement.num_rows == 0
    assert judgement.searches == ()
    report = backtest(table(sheet(left_out={"odd": 2}), sheet(left_out={"odd": 1, "even": 4}), odd=3), num_seeds=1)
    assert report.all.rows_left_out == {"odd": 6, "even": 4}
    assert report.all.rows_used == 2 * len(LAYOUTS)
    score = backtest(table(odd=3)).all
    assert (score.rows_used, score.rows_left_out, score.median_abs_error) == (0, {"odd": 3}, None)


PUBLIC_KEYS = [
    *("name", "rows_used", "rows_left_out", "median_abs_error", "p90_abs_error", "mean_abs_error", "spearman"),
    *("oom_balanced_accuracy", "oom_let_through", "feasible_refused", "regret", "trials_to_2pct"),
]
"""What readers of the JSON rely on, in this order; more may follow."""

FEW = LAYOUTS.take(slice(3))


def table(*sheets: Sheet, **left_out: int) -> Table:
    return Table(sheets=sheets, left_out=left_out)


def test_the_json_has_the_public_keys_for_all_and_for_every_sheet() -> None:
    document = json.loads(json.dumps(backtest(table(sheet()), num_seeds=2).to_dict()))
    assert list(document) == ["all", "sheets", "left_out_examples"]
    for score in (document["all"], *document["sheets"]):
        assert list(score)[: len(PUBLIC_KEYS)] == PUBLIC_KEYS
        assert list(score["trials_to_2pct"]) == ["ours", "tpe", "random"]
        assert all(list(count) == ["median", "p90"] for count in score["trials_to_2pct"].values())


def test_figures_without_meaning_are_none_and_memory_verdicts_are_counted_apart() -> None:
    """Everything is predicted to fit, so all runs out of memory are let through and none that ended is refused."""
    few = backtest(table(sheet(PREDICTED_S[:3] * 2, FEW)), num_seeds=2).sheets[0]
    assert few.median_abs_error == pytest.approx(0.5)  # rounding
    assert few.feasible_refused == 0.0
    assert [few.spearman, few.regret, few.oom_let_through, few.oom_balanced_accuracy, few.best_refused] == [None] * 5
    assert {(count.median, count.p90) for count in few.trials_to_2pct.values()} == {(None, None)}
    score = backtest(table(sheet(with_values(PREDICTED_S, {1: np.nan}))), num_seeds=1).all
    assert (score.oom_let_through, score.feasible_refused, score.oom_balanced_accuracy) == (1.0, 0.0, 0.5)


def test_errors_of_all_are_of_runs_and_rank_figures_medians_over_sheets() -> None:
    report = backtest(table(sheet(), sheet(PREDICTED_S[:3] * 2, FEW)), num_seeds=1)
    assert [score.mean_abs_error for score in report.sheets] == pytest.approx([0.0, 0.5])  # rounding
    assert report.all.mean_abs_error == pytest.approx(0.5 * 3 / (len(LAYOUTS) + 3))  # rounding
    reversed_s = PREDICTED_S[::-1].copy()
    report = backtest(table(sheet(), sheet(), sheet(reversed_s), sheet(PREDICTED_S[:3], FEW)), num_seeds=1)
    assert [score.spearman for score in report.sheets] == [pytest.approx(1.0)] * 2 + [pytest.approx(-1.0), None]
    assert report.all.spearman == pytest.approx(1.0)  # rounding
    assert report.all.regret == 0.0


def test_trials_that_ran_out_of_memory_are_counted_by_proposer() -> None:
    """All layouts but the best run out of memory, which ours finds at once and chance does not."""
    only_best = np.where(PREDICTED_S.min() == PREDICTED_S, PREDICTED_S, np.nan)
    only_best[np.argsort(PREDICTED_S)[-8:]] = PREDICTED_S.max()  # enough that a search is judged
    report = backtest(table(sheet(only_best), sheet()), num_seeds=4)
    lost = report.sheets[0].lost_to_memory
    assert list(lost) == ["ours", "tpe", "random"]
    assert lost["ours"] == 0.0
    assert lost["random"] is not None
    assert 0 < lost["random"] < 1
    assert report.sheets[1].lost_to_memory == {"ours": 0.0, "tpe": 0.0, "random": 0.0}
    assert 0 < present(report.all.lost_to_memory["random"]) < lost["random"]  # half of the sheets lose nothing


def test_every_figure_and_every_required_column_is_documented() -> None:
    text = (Path(__file__).parents[3] / "docs/how-to/backtest-your-own-measurements.md").read_text()
    names = [*(field.name for field in fields(Score)), *REQUIRED_COLUMNS]
    assert [name for name in names if f"`{name}`" not in text] == []


# ---------------------------------------------------------------- report shown
SMALL = sheet(PREDICTED_S[:3] * 2, FEW)


def test_a_large_sheet_gives_up_its_own_rows_and_a_small_one_learns_from_others() -> None:
    (replay,) = replays(sheet(), [SMALL], 0)
    assert replay.known.size == 0
    assert replay.job is JOB
    drawn = replays(sheet(), [SMALL], len(LAYOUTS) - MIN_MEASURED)
    assert [replay.known.size for replay in drawn] == [len(LAYOUTS) - MIN_MEASURED] * NUM_DRAWS
    for replay in replays(SMALL, [sheet(PREDICTED_S * 2)], 4):
        assert replay.known.size == 0
        assert replay.job.calibration is not None
        assert replay.job.calibration.num_runs == 4
        assert replay.job.calibration.factor > 1.0
        assert replay.job.calibration.deviation < cluster_deviation(JOB)
    assert all(replay.known.size == 1 for replay in replays(SMALL, [], 1))
    out_of_memory = sheet(np.full(3, np.nan), FEW)
    assert all(replay.known.size == 1 for replay in replays(SMALL, [out_of_memory], 1))


def test_draws_differ_and_are_the_same_every_time_on_clusters_of_one_kind() -> None:
    slower = sheet(PREDICTED_S * np.linspace(1, 3, len(LAYOUTS)))
    factors = [replay.job.calibration.factor for replay in replays(SMALL, [slower], 1) if replay.job.calibration]
    again = [replay.job.calibration.factor for replay in replays(SMALL, [slower], 1) if replay.job.calibration]
    assert factors == again
    assert len(set(factors)) > 1
    assert kind_of_cluster(sheet()) == kind_of_cluster(sheet())
    assert kind_of_cluster(sheet()) != kind_of_cluster(sheet(source="another"))
    larger = replace(JOB, cluster=replace(JOB.cluster, num_nodes=2))
    assert kind_of_cluster(sheet()) == kind_of_cluster(sheet(job=larger))
    thinner = replace(JOB, cluster=replace(JOB.cluster, oversubscription=2.0))
    assert kind_of_cluster(sheet()) != kind_of_cluster(sheet(job=thinner))
