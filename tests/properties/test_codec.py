"""What is written is what is read."""

from __future__ import annotations

from dataclasses import fields

from hypothesis import given
from hypothesis import strategies as st

from autotuner.core.codec import dumps, from_plain, loads, to_plain
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.model import TransformerSpec
from autotuner.core.prediction import StepTime
from autotuner.core.trial import TrialFailure
from tests.properties.strategies import jobs, layouts, models

seconds = st.floats(min_value=0, allow_infinity=False)


@given(layouts)
def test_a_layout_survives_the_journey(layout: Layout) -> None:
    assert loads(Layout, dumps(layout)) == layout


@given(models())
def test_a_model_survives_the_journey(model: TransformerSpec) -> None:
    assert loads(TransformerSpec, dumps(model)) == model


@given(jobs)
def test_a_job_survives_the_journey_as_objects_too(job: Job) -> None:
    assert loads(Job, dumps(job)) == job
    assert from_plain(Job, to_plain(job)) == job


@given(st.builds(StepTime, **dict.fromkeys([each.name for each in fields(StepTime)], seconds)))
def test_floats_keep_every_bit(step_time: StepTime) -> None:
    assert loads(StepTime, dumps(step_time)) == step_time


@given(st.builds(TrialFailure, message=st.text(), log_tail=st.text()))
def test_any_text_survives_the_journey(failure: TrialFailure) -> None:
    assert loads(TrialFailure, dumps(failure)) == failure
