"""Iterations under slow links that arXiv 2504.19232 measured on H800, predicted from healthy ones."""

from __future__ import annotations

from functools import cache

import pytest

from autotuner.backtests.slow_links import (
    Iteration,
    Method,
    Pipeline,
    Score,
    SlowLinkReport,
    judge_iterations,
    pass_seconds,
    predicted_s,
    read_iteration_table,
)
from tests.builders import present
from tests.published.tables import FOLDER

SMALL = Pipeline("H800", "7B", 4, 1, 1, 12), 0.392
LARGE = Pipeline("H800", "14B", 8, 1, 1, 24), 0.755
WIDTH = 5120

POINTS = [
    *zip([(LARGE, 6, ms) for ms in (10, 20, 30, 40, 50, 60)],
         [(834, 904, 1007, 1082), (854, 1053, 1359, 1331), (876, 1221, 1825, 1580), (889, 1356, 2299, 1832),
          (877, 1522, 2828, 2108), (891, 1690, 3257, 2334)], strict=True),
    *zip([(LARGE, 0, 30), (LARGE, 0, 60), (SMALL, 0, 30), (SMALL, 0, 60), (SMALL, 2, 30), (SMALL, 2, 60)],
         [(930, 970, 1968, 1597), (964, 1240, 3403, 2532), (456, 541, 902, 801), (497, 728, 1495, 1232),
          (434, 617, 882, 1102), (491, 867, 1484, 1819)], strict=True),
]  # fmt: skip
"""Pipeline, link and delay in ms, and the iterations in ms: adapted, delegated, zero-bubble, 1F1B."""

METHODS = (Method.ADAPTED, Method.DELEGATED, Method.ZERO_BUBBLE, Method.ONE_F_ONE_B)


def predicted_ms(pipeline: Pipeline, healthy_s: float, link: int, delay_ms: float) -> list[float]:
    """By method, from one healthy zero-bubble iteration."""
    healthy = Iteration(
        pipeline=pipeline,
        method=Method.ZERO_BUBBLE,
        delay_s=(),
        hidden=WIDTH,
        healthy_s=healthy_s,
        measured_s=healthy_s,
    )
    slow = [
        Iteration(
            pipeline=pipeline,
            method=method,
            delay_s=((link, delay_ms / 1e3),),
            hidden=WIDTH,
            healthy_s=None,
            measured_s=1.0,
        )
        for method in METHODS
    ]
    pass_s = pass_seconds([healthy])
    return [1e3 * predicted_s(iteration, pass_s) for iteration in slow]


@pytest.mark.parametrize(("point", "measured"), POINTS, ids=lambda value: str(value[-1]))
def test_twelve_points_follow_from_one_healthy_iteration_per_model(
    point: tuple[tuple[Pipeline, float], int, int], measured: tuple[int, ...]
) -> None:
    (pipeline, healthy_s), link, delay_ms = point
    adapted, delegated, zero_bubble, one_f_one_b = predicted_ms(pipeline, healthy_s, link, delay_ms)
    assert abs(adapted / measured[0] - 1) < 0.12  # required: 16 %; hoped for: 8 %
    assert abs(delegated / measured[1] - 1) < 0.03
    assert adapted < delegated < min(zero_bubble, one_f_one_b)
    assert abs(zero_bubble / measured[2] - 1) < 0.13  # a model that was chosen with such rows in view


@cache
def report() -> SlowLinkReport:
    table = present(read_iteration_table(FOLDER / "pipemorph_iteration_times.csv"))
    return judge_iterations(table)


def score(name: str) -> Score:
    return next(score for score in (*report().methods, *report().models, *report().parts) if score.name == name)


def test_every_row_of_the_table_is_judged() -> None:
    assert report().rows_left_out == {}
    assert report().all.rows_used == 71


@pytest.mark.parametrize(
    ("name", "median", "mean"),
    [("delegated", 0.04, 0.06), ("zb", 0.05, 0.06), ("adapted", 0.11, 0.15), ("1f1b", 0.08, 0.15)],
)
def test_errors_by_method(name: str, median: float, mean: float) -> None:
    # adapted: with eight ranks per stage (30B, 60B) delegates slow everything down by more than they do in health;
    # 1f1b: the last link of four stages costs twice what it costs of eight, which no model here explains
    found = score(name)
    assert present(found.median_abs_error) < median
    assert present(found.mean_abs_error) < mean


@pytest.mark.parametrize("name", ["H800 14B", "H800 30B", "H800 60B"])
def test_methods_come_in_the_right_order(name: str) -> None:
    found = score(name)
    assert (found.pairs_right, found.orders_right) == (found.num_pairs, found.num_orders)
