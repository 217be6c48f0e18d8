"""Rows of iteration times under slow links, in the words in which tables write them."""

from __future__ import annotations

import pytest

from autotuner.backtest.cells import UnusableRow
from autotuner.backtest.slow_links.iteration import Method, read_iteration

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
    [
        ("0_1,6_7", (0, 6)),
        ("6_7; 0_1", (0, 6)),
        ("[0-1] 3->4", (0, 3)),
        ("1_0", (0,)),
        ("", ()),
        ("none", ()),
    ],
)
def test_slow_links_are_read_however_they_are_joined(cell: str, links: tuple[int, ...]) -> None:
    assert tuple(link for link, _ in read_iteration(ROW | {"slow_links": cell}).delay_s) == links


def test_every_slow_link_may_have_a_delay_of_its_own() -> None:
    several = ROW | {"slow_links": "6_7,0_1", "delay_ms": "60,30"}
    assert read_iteration(several).delay_s == ((0, 0.030), (6, 0.060))


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


def test_what_a_table_does_not_say_is_not_made_up() -> None:
    sparse = read_iteration(ROW | {"hidden": "", "healthy_ms": "n/a", "tp": "", "dp": "-"})
    assert (sparse.hidden, sparse.healthy_s) == (None, None)
    assert (sparse.pipeline.tensor_degree, sparse.pipeline.data_degree) == (1, 1)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"method": "gpipe++"}, "'gpipe\\+\\+' is not known"),
        ({"slow_links": "0_7"}, "joins no neighbouring stages"),
        ({"slow_links": "7_8"}, "joins no neighbouring stages"),
        ({"slow_links": "first"}, "no list of links"),
        ({"slow_links": "0_1,1_0"}, "named twice"),
        ({"delay_ms": "slow"}, "delay_ms is no number"),
        ({"delay_ms": "inf"}, "no delay that a transfer survives"),
        ({"delay_ms": "10,20,30"}, "neither one delay nor one per slow link"),
        ({"pp": "1", "slow_links": ""}, "no links"),
        ({"microbatches": "1000000"}, "more passes than are simulated"),
        ({"last5_mean_ms": ""}, "last5_mean_ms is no number"),
    ],
)
def test_a_row_that_cannot_be_judged_says_why(changes: dict[str, str], complaint: str) -> None:
    with pytest.raises(UnusableRow, match=complaint):
        read_iteration(ROW | changes)
