"""Small published runs teach about large ones of the same layout, on a cluster that nobody knows.

The catalog's constants saw these rows, so every time is taken a quarter longer and nothing is known of the cluster
beforehand: what is left to learn is how slow that cluster is. What constants that saw nothing of a source learn stands
in docs/small-trials.md.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from autotuner.backtest.table import Sheet
from bench.fit_stacks import sheets_of
from bench.small_for_large import Figures, figures, twins

SLOWER = 1.25


def on_an_unknown_cluster(sheet: Sheet) -> Sheet:
    job = replace(sheet.job, calibration=None)
    return replace(sheet, job=job, step_time_s=SLOWER * sheet.step_time_s)


@cache
def learnt(table: str, words: str) -> Figures:
    kept = [sheet for sheet in sheets_of(table) if words in sheet.name]
    return figures(list(twins([on_an_unknown_cluster(sheet) for sheet in kept])))


CASES = [
    # table, sheets, pairs, most of the median error of the large runs after one small run: half as much again as is
    # measured, 4.3, 4.2 and 2.1 %
    ("llm_foundry_mpt", "", 37, 0.065),
    ("aleph_alpha_layouts_sweep", "", 25, 0.065),
    ("dgxc_benchmarking", "emotron", 27, 0.03),
]


@pytest.mark.parametrize(("table", "words", "num_runs", "most"), CASES)
def test_one_small_run_tells_how_slow_the_cluster_is(table: str, words: str, num_runs: int, most: float) -> None:
    found = learnt(table, words)
    assert found.num_runs == num_runs
    assert found.median[0] > 0.15  # a quarter, less the errors of predictions
    assert found.median[1] < most
    assert found.p90[1] < found.p90[0]


@pytest.mark.parametrize(("table", "words", "num_runs", "most"), CASES)
def test_intervals_become_narrower_and_still_hold_most_runs(table: str, words: str, num_runs: int, most: float) -> None:
    del num_runs, most
    found = learnt(table, words)
    assert found.half_width[1] < 0.6 * found.half_width[0]  # cluster and parts are shared, a residual mostly
    assert found.covered_80[1] > 0.6
    assert found.covered_95[1] > 0.8  # tails are heavier than a normal distribution's
