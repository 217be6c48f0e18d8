"""What runs today beside the best."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.rules.legality import reasons
from autotuner.costmodel.predict import predict_one
from autotuner.search.advice.current import current_beside
from autotuner.search.ranking import PredictedLayout
from tests.builders import big_job

TODAY = Layout.parse("dp2 tp8 pp4 mb1 sp")


def row(layout: Layout, job: Job) -> PredictedLayout:
    return PredictedLayout(layout=layout, prediction=predict_one(layout, job))


def test_the_gain_is_the_rate_of_the_better_layout_over_that_of_today() -> None:
    job = big_job()
    best = row(replace(TODAY, compiled=True), job)
    current = current_beside(TODAY, job, best=best, unchanged=None)
    assert current.predicted is not None
    assert current.predicted.prediction == predict_one(TODAY, job)
    assert current.best is not None
    ratio = best.prediction.tokens_per_s / predict_one(TODAY, job).tokens_per_s
    assert current.best.gain == pytest.approx(ratio - 1)
    assert (current.best.change, current.unchanged) == ("compiled off → on", None)


def test_without_a_row_there_is_nothing_to_gain() -> None:
    current = current_beside(TODAY, big_job(), best=None, unchanged=None)
    assert (current.best, current.unchanged) == (None, None)
    assert current.predicted is not None


def test_what_breaks_a_rule_has_its_reasons_and_no_prediction() -> None:
    job, impossible = big_job(), Layout.parse("tp3 mb1")
    current = current_beside(impossible, job, best=row(TODAY, job), unchanged=None)
    assert current.reasons == reasons(impossible, job) != ()
    assert (current.predicted, current.best) == (None, None)
