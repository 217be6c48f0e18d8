"""Which published runs are predicted to fit, against which did.

The memory constants of the stack aleph-alpha were fitted to its rows; docs/accuracy.md has the shares of sheets left
out of the fit. To the other tables no memory constant was fitted.
"""

from __future__ import annotations

import pytest

from tests.published.tables import judged, sheets

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
