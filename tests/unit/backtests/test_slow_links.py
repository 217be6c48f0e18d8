from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.backtests.cells import UnusableRow
from autotuner.backtests.slow_links import (
    Iteration,
    IterationTable,
    Method,
    Pipeline,
    judge_iterations,
    pass_seconds,
    predicted_s,
    read_iteration,
)

ROW = {
    "testbed": "H800", "model": "14B", "pp": "8", "tp": "1", "dp": "1", "microbatches": "24", "hidden": "5120",
    "method": "zb", "slow_links": "6_7", "delay_ms": "30", "healthy_ms": "755", "last5_mean_ms": "1828.5",
}  # fmt: skip


def test_a_row_says_what_ran_over_which_links() -> None:
    iteration = read_iteration(ROW)
    assert str(iteration.pipeline) == "H800 14B (pp 8, tp 1, dp 1, 24 mb)"
    assert (iteration.method, iteration.delay_s, iteration.hidden) == (Method.ZERO_BUBBLE, ((6, 0.030),), 5120)
    assert (iteration.healthy_s, iteration.measured_s) == (0.755, 1.8285)


@pytest.mark.parametrize(
    ("cell", "links"),
    [("0_1,6_7", (0, 6)), ("6_7; 0_1", (0, 6)), ("[0-1] 3->4", (0, 3)), ("1_0", (0,)), ("", ()), ("none", ())],
)
def test_slow_links_are_read_however_they_are_joined(cell: str, links: tuple[int, ...]) -> None:
    assert tuple(link for link, _ in read_iteration(ROW | {"slow_links": cell}).delay_s) == links


def test_slow_links_may_have_delays_of_their_own_and_missing_facts_are_not_invented() -> None:
    several = ROW | {"slow_links": "6_7,0_1", "delay_ms": "60,30"}
    assert read_iteration(several).delay_s == ((0, 0.030), (6, 0.060))
    sparse = read_iteration(ROW | {"hidden": "", "healthy_ms": "n/a", "tp": "", "dp": "-"})
    assert (sparse.hidden, sparse.healthy_s) == (None, None)
    assert (sparse.pipeline.tensor_degree, sparse.pipeline.data_degree) == (1, 1)


@pytest.mark.parametrize(
    ("word", "method"),
    [
        ("1F1B", Method.ONE_F_ONE_B),
        ("ZB", Method.ZERO_BUBBLE),
        ("zb_cpu_delegated", Method.DELEGATED),
        ("delegate-only", Method.DELEGATED),
        ("PipeMorph", Method.ADAPTED),
        ("ADAPTRA", Method.ADAPTED),
    ],
)
def test_methods_are_known_by_the_names_that_they_have_had(word: str, method: Method) -> None:
    assert read_iteration(ROW | {"method": word}).method is method


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"method": "gpipe++"}, "'gpipe\\+\\+' is not known"),
        ({"slow_links": "0_7"}, "does not join two neighbouring stages"),
        ({"slow_links": "7_8"}, "does not join two neighbouring stages"),
        ({"slow_links": "first"}, "not a list of links"),
        ({"slow_links": "0_1,1_0"}, "named twice"),
        ({"delay_ms": "slow"}, "the value of the column delay_ms is not a number"),
        ({"delay_ms": "inf"}, "not a finite number of 0 or more"),
        ({"delay_ms": "10,20,30"}, "must have one delay for all slow links, or one"),
        ({"pp": "1", "slow_links": ""}, "no links"),
        ({"microbatches": "1000000"}, "passes than can be simulated"),
        ({"last5_mean_ms": ""}, "the value of the column last5_mean_ms is not a number"),
    ],
)
def test_a_row_that_cannot_be_judged_says_why(changes: dict[str, str], complaint: str) -> None:
    with pytest.raises(UnusableRow, match=complaint):
        read_iteration(ROW | changes)


PIPELINE = Pipeline("lab", "small", 4, 1, 1, 12)
ZB = Iteration(
    pipeline=PIPELINE, method=Method.ZERO_BUBBLE, delay_s=((2, 0.060),), hidden=None, healthy_s=0.780, measured_s=1.600
)
DELEGATED = replace(ZB, method=Method.DELEGATED, measured_s=1.120)
ADAPTED = replace(ZB, method=Method.ADAPTED, measured_s=0.840)


def test_the_seconds_of_a_pass_follow_from_healthy_iterations_whatever_they_ran() -> None:
    assert pass_seconds([ZB, replace(DELEGATED, measured_s=9.0)]) == {PIPELINE: pytest.approx(0.020)}
    odd = replace(ADAPTED, healthy_s=1.5)
    assert pass_seconds([ZB, DELEGATED, odd])[PIPELINE] == pytest.approx(0.020)
    alone = replace(ZB, method=Method.ONE_F_ONE_B, healthy_s=0.900)
    assert pass_seconds([alone])[PIPELINE] == pytest.approx(0.020)


def test_delegates_plans_and_other_splits_take_what_the_paper_computes() -> None:
    pass_s = {PIPELINE: 0.020}
    assert predicted_s(DELEGATED, pass_s) == pytest.approx(1.120)
    assert predicted_s(ADAPTED, pass_s) == pytest.approx(0.840)
    narrow, wide = (predicted_s(replace(DELEGATED, hidden=width), {PIPELINE: 0.020}) for width in (1024, 8192))
    assert predicted_s(DELEGATED, {PIPELINE: 0.020}) < narrow < wide
    deeper = PIPELINE._replace(num_ranks=8, num_micro_batches=24)
    known = predicted_s(replace(ZB, pipeline=deeper), {deeper: 0.010})
    assert predicted_s(replace(ZB, pipeline=deeper), {PIPELINE: 0.020}) == pytest.approx(known)


def test_methods_are_compared_where_they_ran_over_the_same_links() -> None:
    report = judge_iterations(IterationTable(iterations=(ZB, DELEGATED, ADAPTED)))
    assert (report.all.num_pairs, report.all.pairs_right) == (3, 3)
    assert (report.all.num_orders, report.all.orders_right) == (1, 1)
    assert [score.name for score in report.methods] == ["zb", "delegated", "adapted"]
    swapped = judge_iterations(IterationTable(iterations=(ZB, DELEGATED, replace(ADAPTED, measured_s=1.3))))
    assert (swapped.all.pairs_right, swapped.all.orders_right) == (2, 0)


def test_errors_are_those_of_every_row_that_a_healthy_iteration_calibrates() -> None:
    report = judge_iterations(IterationTable(iterations=(DELEGATED, replace(ADAPTED, measured_s=0.800))))
    assert report.all.max_abs_error == pytest.approx(0.05)
    assert report.all.mean_error == pytest.approx(0.025)
    assert report.to_dict()["rows"][0]["slow_links"] == "2-3: 60 ms"
    report = judge_iterations(IterationTable(iterations=(replace(ZB, healthy_s=None),)))
    assert report.rows_left_out == {
        ("the table has no iteration of this model without slow links, from which predictions are calibrated"): 1
    }
    assert report.all.median_abs_error is None
