from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from autotuner.backtest.report import Score, backtest
from autotuner.backtest.row import REQUIRED_COLUMNS
from autotuner.backtest.table import Sheet, Table
from tests.unit.backtest.sheets import LAYOUTS, PREDICTED_S, sheet, with_values

PUBLIC_KEYS = [
    "name",
    "rows_used",
    "rows_left_out",
    "median_abs_error",
    "p90_abs_error",
    "mean_abs_error",
    "spearman",
    "oom_balanced_accuracy",
    "oom_let_through",
    "feasible_refused",
    "regret",
    "trials_to_2pct",
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


def test_figures_without_meaning_are_none_and_the_others_are_there() -> None:
    few = backtest(table(sheet(PREDICTED_S[:3] * 2, FEW)), num_seeds=2).sheets[0]
    assert few.median_abs_error == pytest.approx(0.5)  # rounding
    assert few.feasible_refused == 0.0
    assert [few.spearman, few.regret, few.oom_let_through, few.oom_balanced_accuracy, few.best_refused] == [None] * 5
    assert {(count.median, count.p90) for count in few.trials_to_2pct.values()} == {(None, None)}


def test_errors_of_all_are_those_of_all_runs_not_of_all_sheets() -> None:
    report = backtest(table(sheet(), sheet(PREDICTED_S[:3] * 2, FEW)), num_seeds=1)
    assert [score.mean_abs_error for score in report.sheets] == pytest.approx([0.0, 0.5])  # rounding
    assert report.all.mean_abs_error == pytest.approx(0.5 * 3 / (len(LAYOUTS) + 3))  # rounding


def test_rank_figures_of_all_are_medians_over_the_sheets_that_have_them() -> None:
    reversed_s = PREDICTED_S[::-1].copy()
    report = backtest(table(sheet(), sheet(), sheet(reversed_s), sheet(PREDICTED_S[:3], FEW)), num_seeds=1)
    assert [score.spearman for score in report.sheets] == [pytest.approx(1.0)] * 2 + [pytest.approx(-1.0), None]
    assert report.all.spearman == pytest.approx(1.0)  # rounding
    assert report.all.regret == 0.0


def test_trials_of_all_are_counted_over_sheets_and_seeds() -> None:
    far = sheet(with_values(PREDICTED_S, {15: PREDICTED_S.min() / 2}))
    report = backtest(table(sheet(), sheet(), far), num_seeds=4)
    counts = [score.trials_to_2pct["ours"] for score in report.sheets]
    assert counts[2].median is not None
    assert counts[2].median > 1
    assert report.all.trials_to_2pct["ours"].median == 1.0
    assert report.all.trials_to_2pct["ours"].p90 == pytest.approx(counts[2].p90)


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
    assert report.all.lost_to_memory["random"] is not None
    assert 0 < report.all.lost_to_memory["random"] < lost["random"]  # half of the sheets lose nothing


def test_memory_verdicts_are_counted_apart_for_runs_that_ended_and_runs_that_did_not() -> None:
    """Everything is predicted to fit, so all runs out of memory are let through and none that ended is refused."""
    score = backtest(table(sheet(with_values(PREDICTED_S, {1: np.nan}))), num_seeds=1).all
    assert (score.oom_let_through, score.feasible_refused, score.oom_balanced_accuracy) == (1.0, 0.0, 0.5)


def test_rows_left_out_of_all_are_those_of_the_sheets_and_of_none() -> None:
    report = backtest(table(sheet(left_out={"odd": 2}), sheet(left_out={"odd": 1, "even": 4}), odd=3), num_seeds=1)
    assert report.all.rows_left_out == {"odd": 6, "even": 4}
    assert report.all.rows_used == 2 * len(LAYOUTS)


def test_a_table_without_a_usable_row_has_a_report_of_nothing() -> None:
    score = backtest(table(odd=3)).all
    assert (score.rows_used, score.rows_left_out, score.median_abs_error) == (0, {"odd": 3}, None)


def test_every_figure_and_every_required_column_is_documented() -> None:
    text = (Path(__file__).parents[3] / "docs/backtest.md").read_text()
    names = [*(field.name for field in fields(Score)), *REQUIRED_COLUMNS]
    assert [name for name in names if f"`{name}`" not in text] == []
