from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from autotuner.core.errors import InvalidInput
from autotuner.core.layout import Layout
from autotuner.core.measurement import ResourceCost
from autotuner.core.objective import Metric, Objective, Weight
from autotuner.core.trial import Trial, TrialState
from autotuner.search.compute import Inline
from autotuner.search.predicted_ranking import PredictedLayout
from autotuner.search.results.sweep_tables import SweepTables
from autotuner.search.results.trial_query import TableQuery, conditions_said
from autotuner.search.results.trial_table import COLUMNS, USUAL, TableRow, as_csv, cells_of, ranked_rows, untried_rows
from autotuner.store.cache import KeptTrials
from autotuner.store.sql import memory_store
from tests import builders
from tests.api.service import StoreDriver
from tests.builders import (
    cpu_cluster,
    cpu_layout,
    estimate,
    failure,
    measurement,
    prediction,
    proxy_trial,
    sweep_request,
    tiny_job,
)
from tests.cases import each
from tests.unit.runs.challenged import challenge, challenged


def trial(number: int, words: str, **measured: Any) -> Trial:
    """A complete trial of the layout in these words."""
    told = {"prediction": prediction(relative_error=0.1), "measurement": measurement(**measured)}
    return builders.trial(Layout.parse(words), number, **told)


def rows(*trials: Trial) -> tuple[TableRow, ...]:
    """Their ranking."""
    return ranked_rows(sweep_request(), trials)


def untried(words: str = "tp2 mb1", **predicted: Any) -> TableRow:
    """A layout that no trial tried."""
    layout: Layout = Layout.parse(words)
    return TableRow(layout=layout, prediction=prediction(**predicted))


# ---------------------------------------------------------------- condition
ROWS = (
    *rows(
        trial(0, "tp4 pp2 1f1b fsdp8 mb1", mfu=0.44, peak_bytes=(70 * 10**9,)),
        trial(1, "tp8 zero8 mb2 sp recompute-full", mfu=0.40, peak_bytes=(60 * 10**9,)),
        trial(2, "tp4 pp2 v2 interleaved_1f1b mb4", mfu=0.30, peak_bytes=()),
    ),
    untried("tp2 mb1"),
)


def kept(text: str) -> list[str]:
    """Trials that meet the conditions, by number; ``-`` for what was not tried."""
    conditions = conditions_said(text)
    met = (row for row in ROWS if all(condition(row) for condition in conditions))
    return [str(row.trial.number) if row.trial else "-" for row in met]


@each(
    ("text", "met"),
    [
        ("", "0 1 2 -"),
        ("tp=4", "0 2"),
        ("tp=4,8", "0 1 2"),
        ("tp!=4,8", "-"),
        ("tp = 4   pp >1", "0 2"),
        ("tensor_parallel_degree=8", "1"),
        ("tp≥4 mb≤2", "0 1"),
        ("mfu>35", "0 1"),
        ("mfu>35%", "0 1"),
        ("memory<65", "1"),
        ("memory<65GB", "1"),
        ("peak_bytes<60000MB", ""),
        ("memory>1", "0 1"),
        ("recompute=full", "1"),
        ("recompute!=full", "0 2 -"),
        ("sp=on", "1"),
        ("sp=yes", "1"),
        ("sharding=zero-1", "1"),
        ("sharding=FSDP,zero-1", "0 1"),
        ("schedule=interleaved-1f1b v=2", "2"),
        ("tp4 mb1", "0"),
        ("recompute-full", "1"),
        ("fsdp8", "0"),
        ("sp", "1"),
        ("rank<=2", "0 1"),
        ("trial=2", "2"),
        ("predicted>30 step<600ms", "0 1 2"),
        ("tokens>1k", "0 1 2"),
    ],
)
def test_conditions_are_met_by_these_rows(text: str, met: str) -> None:
    assert " ".join(kept(text)) == met


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tpp=4", r"'tpp': is not a column of the table of trials; nearest legal value: tp$"),
        ("recompute=ful", r"must use one of these values: full, selective, none; nearest legal value: recompute=full"),
        ("tp", r"'tp': is not a condition: .*, for example tp>1"),
        ("hello", r"'hello': is not a condition"),
        ("mfu=40", r"must use <, <=, > or >=, because mfu is a measured number .* nearest legal value: mfu>=40"),
        ("mfu>fast", r"must compare mfu with a number, with % or no unit behind it, for example mfu>1"),
        ("tp>4GB", r"must compare tp with a number, for example tp>1"),
        ("tp>1,2", r"several values only after = or !=; nearest legal value: tp>1"),
        (
            "recompute>none",
            r"must use = or !=, because the values of recompute are words; "
            r"nearest legal value: recompute=none",
        ),
        (
            "layout=tp4",
            r"must be a word of a layout, such as tp4, because values of the column layout cannot be compared",
        ),
        ("tp=,", r"must have a value after the sign, for example tp=4"),
        ("tp=1 " * 31, r"must be 30 conditions or fewer"),
    ],
)
def test_an_unreadable_condition_is_refused_with_the_nearest_legal_one(text: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as refused:
        conditions_said(text)
    assert refused.value.field == "where"


# ---------------------------------------------------------------- query
QUERY_ROWS = rows(
    trial(0, "tp4 mb1 recompute-selective", mfu=0.44, tokens_per_s=10.0, peak_bytes=()),
    trial(1, "tp8 mb2 recompute-full", mfu=0.40, tokens_per_s=30.0, peak_bytes=(5,)),
    trial(2, "tp2 mb4", mfu=0.30, tokens_per_s=20.0, peak_bytes=(7,)),
)


def order(sort: str) -> list[int | None]:
    """Numbers of the trials as sorted by that column."""
    return [row.trial.number if row.trial else None for row in TableQuery.read(sort=sort).rows(reversed(QUERY_ROWS))]


@pytest.mark.parametrize(
    ("sort", "numbers"),
    [
        ("", [0, 1, 2]),
        ("-rank", [2, 1, 0]),
        ("tp", [2, 0, 1]),
        ("-tokens_per_s", [1, 2, 0]),
        ("recompute", [1, 0, 2]),
        ("memory", [1, 2, 0]),
        ("-memory", [2, 1, 0]),
    ],
)
def test_rows_are_sorted_by_a_column_and_those_without_a_value_come_last(sort: str, numbers: list[int]) -> None:
    assert order(sort) == numbers


@each("name", COLUMNS)
def test_rows_can_be_sorted_by_every_column(name: str) -> None:
    every = (*QUERY_ROWS, untried())
    assert len(TableQuery.read(sort=name).rows(every)) == len(TableQuery.read(sort=f"-{name}").rows(every)) == 4


def test_columns_are_named_figures_with_their_error_and_read_back_from_csv() -> None:
    assert [column.name for column in TableQuery.read(columns="mfu,TP,memory,tp").columns] == [
        "mfu",
        "tp",
        "peak_bytes",
    ]
    assert TableQuery.read(columns=" , ").columns == USUAL
    (row,) = rows(trial(0, "tp2 mb1", mfu=0.4, step_time_s=1.0, step_time_interval_s=0.05))
    columns = TableQuery.read(columns="mfu,tp").columns
    assert {name: value(row) for name, value in cells_of(columns)} == {
        "mfu": 0.4,
        "mfu_error": pytest.approx(0.02),
        "tp": 2,
    }
    columns = TableQuery.read(columns="rank,tp,mfu,memory,recompute").columns
    written = list(csv.DictReader(io.StringIO(as_csv((*QUERY_ROWS, untried()), columns))))
    assert [line["recompute"] for line in written] == ["selective", "full", "none", "none"]
    assert float(written[1]["mfu"]) == 0.40
    assert (written[0]["peak_bytes"], written[1]["peak_bytes"], written[3]["rank"]) == ("", "5.0", "")
    assert written[2]["layout"] == str(QUERY_ROWS[2].layout)


@pytest.mark.parametrize("field", ["sort", "columns"])
def test_a_column_that_there_is_not_is_refused_with_the_nearest(field: str) -> None:
    with pytest.raises(InvalidInput, match="nearest legal value: mfu") as refused:
        TableQuery.read(**{field: "mfuu"})
    assert refused.value.field == field


# ---------------------------------------------------------------- row
def test_rows_are_the_ranked_trials_by_what_the_sweep_maximises() -> None:
    ranked = rows(trial(0, "tp2 mb1", mfu=0.2), trial(1, "tp2 mb2", mfu=0.4))
    assert [(row.rank, row.trial.number) for row in ranked if row.trial] == [(1, 1), (2, 0)]
    assert [row.source for row in ranked] == ["measured", "measured"]
    assert sum(row.standing.probability_best for row in ranked if row.standing) == pytest.approx(1)
    failed = replace(trial(1, "tp2 mb2"), state=TrialState.FAILED, measurement=None, failure=failure())
    again = replace(trial(2, "tp2 mb1"), repeats=0)
    assert len(rows(trial(0, "tp2 mb1"), failed, again)) == 1


def test_a_row_has_the_error_of_its_source_and_a_price_where_the_cluster_has_one() -> None:
    (row,) = rows(trial(0, "tp2 mb1", step_time_s=2.0, step_time_interval_s=0.04))
    assert row.step_error == pytest.approx(0.02)
    ran = proxy_trial(measurement=measurement())
    small = replace(trial(0, "tp2 mb1"), proxy=ran, measurement=None, estimate=estimate())
    (row,) = rows(small)
    assert (row.source, row.step_error, row.peak_bytes) == ("estimated", 0.125, 12e6)
    cluster = cpu_cluster(price_per_accelerator_hour=3.6)
    (row,) = ranked_rows(sweep_request(job=tiny_job(cluster=cluster)), [trial(0, "tp2 mb1", tokens_per_s=1000.0)])
    assert row.price_per_million_tokens == pytest.approx(2 * 3.6 / 3600 / 1000 * 1e6)
    assert untried().price_per_million_tokens is None


def test_untried_rows_are_what_no_trial_tried_and_values_are_reached_or_predicted() -> None:
    both = [PredictedLayout(layout=Layout.parse(words), prediction=prediction()) for words in ("tp2 mb1", "tp2 mb2")]
    (row,) = untried_rows(sweep_request(), both, [trial(0, "tp2 mb1")])
    assert str(row.layout) == "tp2 mb2 flash bf16"
    assert (row.source, row.rank, row.peak_bytes, row.step_error) == ("predicted", None, None, None)
    assert row.tokens_per_s == row.prediction.tokens_per_s
    profile = (Weight(metric=Metric.TOKENS_PER_S, weight=1), Weight(metric=Metric.SIMPLICITY, weight=2))
    request = sweep_request(objective=Objective(profile=profile))
    one = ResourceCost(power=None, price_per_hour=0, co2_kg_per_hour=0, complexity=1)
    (row,) = ranked_rows(request, [trial(0, "tp2 mb1", tokens_per_s=1000.0, resource_cost=one)])
    assert row.value == pytest.approx(1000 * 0.5**2)
    expected = PredictedLayout(layout=Layout.parse("tp2 mb2"), prediction=prediction(), resource_cost=one)
    (untried_row,) = untried_rows(request, [expected], [])
    tokens = request.job.workload.tokens_per_step
    assert untried_row.value == pytest.approx(tokens / expected.prediction.step_time.total_s * 0.5**2)
    profile = (Weight(metric=Metric.MFU, weight=1), Weight(metric=Metric.SIMPLICITY, weight=1))
    request = sweep_request(objective=Objective(profile=profile))
    (row,) = untried_rows(request, [PredictedLayout(layout=Layout.parse("tp2 mb2"), prediction=prediction())], [])
    assert row.value is None


# ---------------------------------------------------------------- sweep tables
class Counted(Inline):
    """Counts what it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def search(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.asked += 1
        return function(*args, **kwargs)


def test_untried_rows_are_predicted_once_and_only_for_sweeps_that_search() -> None:
    driver = StoreDriver(store=memory_store())
    sweep, compute = driver.sweep(), Counted()
    tables, kept = SweepTables(compute), KeptTrials(driver.store)
    every = tables.untried(sweep, kept.of(sweep.id))
    driver.ended(sweep, 0, measurement(), every[0].layout)
    left = tables.untried(sweep, kept.of(sweep.id))
    assert compute.asked == 1
    assert [row.layout for row in left] == [row.layout for row in every[1:]]
    driver = StoreDriver(store=memory_store())
    request = challenged(challenge(searches=False))
    sweep = driver.sweep(request)
    assert SweepTables(Counted()).untried(sweep, KeptTrials(driver.store).of(sweep.id)) == ()


def test_ranked_rows_follow_the_trials() -> None:
    driver = StoreDriver(store=memory_store())
    sweep = driver.sweep()
    tables, kept = SweepTables(Inline()), KeptTrials(driver.store)
    assert tables.ranked(sweep, kept.of(sweep.id)) == ()
    driver.ended(sweep, 0, measurement(mfu=0.2))
    driver.ended(sweep, 1, measurement(mfu=0.3), cpu_layout(tensor_parallel_degree=2, micro_batch_size=2))
    ranked = tables.ranked(sweep, kept.of(sweep.id))
    assert [row.trial.number for row in ranked if row.trial] == [1, 0]
    assert tables.ranked(sweep, kept.of(sweep.id)) is ranked
