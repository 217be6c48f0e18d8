"""Why a better layout is better."""

from __future__ import annotations

from dataclasses import replace

from autotuner.core.layout import Layout
from autotuner.core.trial import Trial, TrialState
from autotuner.search.upkeep.retunes.better import why_better
from tests.builders import breakdown, cpu_layout, measurement, prediction, tiny_job

BEFORE = cpu_layout(pipeline_parallel_degree=2)
AFTER = cpu_layout(data_parallel_replicate_degree=2)


def profiled(layout: Layout, **parts: float) -> Trial:
    trial = Trial(id="t", sweep_id="s", number=0, state=TrialState.COMPLETE, layout=layout, prediction=prediction())
    return replace(trial, measurement=measurement(breakdown=breakdown(**parts)))


def test_it_says_what_changes_and_what_that_is_predicted_to_do() -> None:
    changed, predicted = why_better(BEFORE, AFTER, tiny_job(), [])
    assert changed == "pipeline 2 → 1, replicate 1 → 2"
    assert predicted.startswith("predicted: it removes ")


def test_where_both_were_profiled_the_measured_parts_are_told_in_shares_of_the_incumbents_step() -> None:
    trials = [
        profiled(BEFORE, forward_s=0.5, pipeline_idle_s=0.4, optimizer_s=0.1),
        profiled(AFTER, forward_s=0.5, all_reduce_s=0.05, optimizer_s=0.105),
    ]
    assert why_better(BEFORE, AFTER, tiny_job(), trials)[2] == (
        "measured, in shares of the incumbent's step: pipeline idle −40 %, all-reduce +5 %"
    )
