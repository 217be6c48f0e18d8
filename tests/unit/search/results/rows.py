"""Rows of tables, for tests."""

from __future__ import annotations

from typing import Any

from autotuner.core.layout import Layout
from autotuner.core.trial import Trial, TrialState
from autotuner.search.results.trial_table import TableRow, ranked_rows
from tests.builders import measurement, prediction, sweep_request


def trial(number: int, words: str, **measured: Any) -> Trial:
    """A complete trial of the layout in these words."""
    return Trial(
        id=f"sw-x-{number:04d}",
        sweep_id="sw-x",
        number=number,
        state=TrialState.COMPLETE,
        layout=Layout.parse(words),
        prediction=prediction(relative_error=0.1),
        measurement=measurement(**measured),
    )


def rows(*trials: Trial) -> tuple[TableRow, ...]:
    """Their ranking."""
    return ranked_rows(sweep_request(), trials)


def untried(words: str = "tp2 mb1", **predicted: Any) -> TableRow:
    """A layout that no trial tried."""
    layout: Layout = Layout.parse(words)
    return TableRow(layout=layout, prediction=prediction(**predicted))
