from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotuner.core.comparison import ChallengeFindings, Decision
from autotuner.core.run import RunState
from autotuner.core.space import SearchSpace
from autotuner.core.trial import FailureKind, Trial, TrialState
from autotuner.core.upkeep import MfuGate, MfuGateOutcome, MfuGateResult
from autotuner.search.space import legal_layouts
from autotuner.search.upkeep.gates.measured import gate_result, gate_sweep, is_passed, new_baseline, reused_result
from tests.builders import failure, prediction
from tests.unit.search.upkeep.builders import CHALLENGER, INCUMBENT, SLOWER, comparison, ended, findings, runs
from tests.unit.search.upkeep.gates.builders import baseline, gate, gate_request, measured


def result(
    found: ChallengeFindings, state: RunState = RunState.COMPLETE, *, of: MfuGate | None = None, dies: Any = None
) -> MfuGateResult:
    return gate_result(of or gate(), ended(state), found, [] if dies is None else [died(dies)])


def died(kind: FailureKind) -> Trial:
    return Trial(
        id="sw-1-0000",
        sweep_id="sw-1",
        number=0,
        state=TrialState.FAILED,
        layout=INCUMBENT,
        prediction=prediction(),
        failure=failure(kind),
    )


def test_a_layout_that_is_given_is_all_that_is_measured() -> None:
    sweep = gate_sweep(gate_request(), baseline())
    assert sweep.challenge is not None
    assert (sweep.challenge.incumbent, sweep.challenge.searches) == (INCUMBENT, False)
    assert sweep.challenge.baseline == baseline().runs
    assert not sweep.loss_gate.enabled
    table = legal_layouts(sweep.trial_job, sweep.space)
    assert [table.row(row) for row in range(len(table))] == [INCUMBENT]


def test_without_a_layout_the_space_is_searched_and_its_best_is_judged() -> None:
    request = gate_request(layout=None)
    sweep = gate_sweep(request, None)
    assert sweep.challenge is not None
    assert (sweep.challenge.incumbent, sweep.challenge.searches, sweep.challenge.baseline) == (None, True, ())
    assert sweep.space == request.sweep.space != SearchSpace()


def test_a_rate_that_is_not_lower_passes_with_its_numbers() -> None:
    against = comparison(detail="0.1 % faster, by 3 runs beside 4 that scatter by 0.4 %")
    found = result(findings(against_baseline=against))
    assert found.outcome is MfuGateOutcome.PASSED
    assert found.detail == (
        "beside main it is 0.1 % faster, by 3 runs beside 4 that scatter by 0.4 %; it reaches 1 ktoken/s (25.0 % MFU)"
    )


def test_a_lower_rate_fails_and_names_what_else_differs() -> None:
    found = result(SLOWER)
    assert found.outcome is MfuGateOutcome.FAILED
    assert [str(change) for change in found.changes] == ["torch was 2.12 and is 2.13"]
    assert "torch was 2.12 and is 2.13" in found.detail


def test_what_the_noise_hides_is_undecided() -> None:
    found = result(findings(against_baseline=comparison(Decision.UNDECIDED)))
    assert found.outcome is MfuGateOutcome.UNDECIDED


@pytest.mark.parametrize("state", [RunState.CANCELLED, RunState.FAILED])
def test_what_was_decided_stands_however_the_sweep_ended(state: RunState) -> None:
    assert result(SLOWER, state).outcome is MfuGateOutcome.FAILED


@pytest.mark.parametrize(
    ("state", "outcome"),
    [(RunState.CANCELLED, MfuGateOutcome.CANCELLED), (RunState.FAILED, MfuGateOutcome.COULD_NOT_RUN)],
)
def test_a_sweep_that_ended_undecided_says_why(state: RunState, outcome: MfuGateOutcome) -> None:
    undecided = findings(against_baseline=comparison(Decision.UNDECIDED))
    found = gate_result(gate(), ended(state, "somebody said so"), undecided, [])
    assert found.outcome is outcome
    assert "somebody said so" in found.detail


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [
        (FailureKind.OOM, MfuGateOutcome.FAILED),
        (FailureKind.NUMERICS, MfuGateOutcome.FAILED),
        (FailureKind.CRASH, MfuGateOutcome.COULD_NOT_RUN),
        (FailureKind.INFRASTRUCTURE, MfuGateOutcome.COULD_NOT_RUN),
    ],
)
def test_a_death_that_the_layout_brought_about_fails_and_another_says_nothing(
    kind: FailureKind, outcome: MfuGateOutcome
) -> None:
    found = result(ChallengeFindings(measured=INCUMBENT, death="it died"), dies=kind)
    assert found.outcome is outcome
    assert "it died" in found.detail


def test_a_death_that_ended_the_sweep_is_of_the_change_all_the_same() -> None:
    died_at_once = ChallengeFindings(measured=INCUMBENT, death="it died (oom)")
    assert result(died_at_once, RunState.FAILED, dies=FailureKind.OOM).outcome is MfuGateOutcome.FAILED


def test_a_search_that_found_nothing_could_not_run() -> None:
    assert result(ChallengeFindings(), of=gate(layout=None)).outcome is MfuGateOutcome.COULD_NOT_RUN


@pytest.mark.parametrize(("sets_baseline", "passed"), [(True, True), (False, False)])
def test_the_first_gate_of_a_job_passes_where_it_is_to_set_the_baseline(*, sets_baseline: bool, passed: bool) -> None:
    first = gate(baseline=None, sets_baseline=sets_baseline)
    found = result(findings(against_baseline=None), of=first)
    assert found.outcome is MfuGateOutcome.NO_BASELINE
    assert is_passed(replace(first, result=found)) is passed


def test_a_gate_that_runs_is_not_passed() -> None:
    assert not is_passed(gate())


def test_a_baseline_that_is_set_grows_by_a_sitting() -> None:
    stored = new_baseline(gate(sets_baseline=True), measured(), now=9.0)
    assert stored is not None
    assert stored.runs == (*baseline().runs, findings().runs)
    assert (stored.gate_id, stored.at, stored.key) == ("ga-1", 9.0, "a-key")


@pytest.mark.parametrize(
    "result",
    [
        measured(changes=result(SLOWER).changes),
        measured(findings=findings(measured=CHALLENGER)),
        measured(findings=findings(against_baseline=comparison(change=0.2))),
    ],
    ids=["another environment", "another layout", "faster"],
)
def test_a_baseline_begins_anew_where_the_runs_are_of_another_kind(result: MfuGateResult) -> None:
    stored = new_baseline(gate(sets_baseline=True), result, now=9.0)
    assert stored is not None
    assert stored.runs == (findings().runs,)


@pytest.mark.parametrize("outcome", [MfuGateOutcome.FAILED, MfuGateOutcome.UNDECIDED, MfuGateOutcome.COULD_NOT_RUN])
def test_a_gate_that_did_not_pass_sets_no_baseline(outcome: MfuGateOutcome) -> None:
    assert new_baseline(gate(sets_baseline=True), measured(outcome), now=9.0) is None


def test_a_gate_that_is_not_asked_to_sets_no_baseline() -> None:
    assert new_baseline(gate(), measured(), now=9.0) is None


def test_runs_that_are_taken_again_do_not_enter_the_baseline_twice() -> None:
    held = baseline(runs=(runs(), findings().runs))
    again = new_baseline(gate(sets_baseline=True, baseline=held), measured(reused_from="ga-before"), now=9.0)
    assert again is not None
    assert again.runs == held.runs


def test_runs_of_an_earlier_gate_are_judged_beside_the_baseline_of_now() -> None:
    steady = runs(rates=(1000.0, 1001.0, 999.0, 1000.5, 1000.2))
    held = gate(baseline=baseline(runs=(steady,)))
    slow = findings(runs=runs(rates=(800.0, 801.0, 799.0, 800.5, 800.2)))
    found = reused_result(held, gate(id="ga-0", result=measured(findings=slow)))
    assert found is not None
    assert (found.outcome, found.reused_from) == (MfuGateOutcome.FAILED, "ga-0")
    assert "by the runs of ga-0" in found.detail


def test_earlier_runs_that_do_not_decide_it_are_not_taken() -> None:
    few = gate(id="ga-0", result=measured(findings=findings(runs=runs(rates=(990.0,)))))
    assert reused_result(gate(), few) is None


def test_an_earlier_gate_that_measured_nothing_is_not_taken() -> None:
    assert reused_result(gate(), gate(result=measured(findings=None))) is None
