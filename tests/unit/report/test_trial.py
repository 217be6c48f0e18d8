"""A trial says the same figures in a terminal, on a page and in Markdown."""

from __future__ import annotations

from dataclasses import replace

from autotuner.core.convergence_gate import GateOutcome, GateResult
from autotuner.core.objective import Objective
from autotuner.core.run import RunState
from autotuner.core.sweep import Sweep, SweepRequest
from autotuner.core.trial import Trial, TrialState
from autotuner.report.charts import Dots, Line, Stretch
from autotuner.report.trial import TrialResult, trial_report
from autotuner.report.trial_parts import loss_curves, step_series
from autotuner.search.explain.explanation import explain, trial_parts
from autotuner.search.results.failures import failures
from autotuner.search.results.reached import ranked_times
from tests.builders import (
    cpu_cluster,
    cpu_layout,
    estimate,
    failure,
    measurement,
    proxy_trial,
    step_report,
    sweep_request,
    tiny_job,
    trial,
)
from tests.unit.report.surfaces import surfaces

LAYOUT = cpu_layout(data_parallel_replicate_degree=2)
SIMULATED = measurement(is_simulated=True)


def result(one: Trial, request: SweepRequest | None = None) -> TrialResult:
    """A trial that is the only one of its sweep."""
    request = request or sweep_request()
    died = failures(request, [one])
    return TrialResult(
        trial=one,
        sweep=Sweep(id="sw-test", request=request, state=RunState.COMPLETE, created_at=0.0),
        times=ranked_times(Objective(), [one]),
        parts=trial_parts(one, request),
        explanation=explain(one.layout, request.trial_job),
        failure=died[0] if died else None,
        now=100.0,
    )


def test_a_measured_trial_shows_what_it_reached_beside_what_was_predicted_on_every_surface() -> None:
    one = trial(LAYOUT, measurement=measurement(mfu=0.4123, tokens_per_s=1234.0, environment={"torch": "9.8.7"}))
    for shown in surfaces(trial_report(result(one))):
        for words in ("rank 1 of 1", "MFU, measured", "41.2", "1.23 ktokens/s", "Predicted, s", "One step away"):
            assert words in shown
        assert "9.8.7" in shown
        assert str(LAYOUT) in shown


def test_a_simulated_trial_is_never_called_measured() -> None:
    request = sweep_request(job=tiny_job(cluster=cpu_cluster(engine="simulated")))
    one = trial(LAYOUT, measurement=SIMULATED)
    for shown in surfaces(trial_report(result(one, request))):
        assert "MFU, simulated" in shown
        assert "Simulated: nothing ran" in shown
        assert "MFU, measured" not in shown


def test_a_failed_trial_shows_why_it_died_what_to_do_and_its_log() -> None:
    one = trial(LAYOUT, state=TrialState.FAILED, failure=failure(log_tail="tried to allocate 1.2 GB"))
    for shown in surfaces(trial_report(result(one))):
        assert "What to do:" in shown
        assert "tried to allocate 1.2 GB" in shown
        assert "MFU, predicted" in shown


def test_a_proxy_trial_shows_its_estimate_and_its_own_measurement_apart() -> None:
    request = sweep_request(job=tiny_job(8), trial_cluster=cpu_cluster(2))
    layout = cpu_layout(tensor_parallel_degree=2, data_parallel_replicate_degree=4)
    one = trial(layout, scaled=proxy_trial(measurement=measurement(mfu=0.77)), estimate=estimate(mfu=0.1875))
    for shown in surfaces(trial_report(result(one, request))):
        for words in ("MFU, estimated", "18.8", "2 of 8", "Its step time, measured", "the proxy trial"):
            assert words in shown
        assert "MFU, measured" not in shown
        assert "77.0" not in shown


def test_steps_are_soft_while_they_warm_up_and_amber_where_nothing_ran() -> None:
    steps = [step_report(k, is_warmup=k < 2) for k in range(1000)]
    found = step_series(steps, SIMULATED)
    dots = next(mark.dots for mark in found.marks if isinstance(mark, Dots))
    assert len(dots) <= 400
    assert (dots[0].look, dots[-1].look) == ("soft", "simulated")
    assert next(mark for mark in found.marks if isinstance(mark, Stretch)).label == "warm-up"


def test_a_loss_curve_ends_at_the_first_loss_that_is_no_number() -> None:
    gate = GateResult(
        outcome=GateOutcome.FAILED,
        detail="found",
        reference=cpu_layout(),
        tolerance=0.02,
        candidate_losses=((3.0, 2.0, float("nan"), 1.0),),
        reference_losses=((3.0, 2.5, 2.0),),
    )
    chart = loss_curves(gate)
    assert chart is not None
    assert [len(mark.points) for mark in chart.marks if isinstance(mark, Line)] == [3, 2]
    assert loss_curves(replace(gate, candidate_losses=((float("nan"),),), reference_losses=())) is None
