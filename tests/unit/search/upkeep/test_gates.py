from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotuner.core.choices import PipelineSchedule, Recompute
from autotuner.core.comparison import ChallengeFindings, Decision, RunGroup
from autotuner.core.dry_run import DryRun, HeldBytes, OperationCounts, RankDryRun
from autotuner.core.layout import Layout
from autotuner.core.run import RunState
from autotuner.core.space import SearchSpace
from autotuner.core.trial import FailureKind, Trial, TrialState
from autotuner.core.upkeep import GateRun, RegressionGateOutcome, RegressionGateResult
from autotuner.report.verdicts import gate_verdict, predicted_verdict
from autotuner.search.sequential_test import longer_baseline
from autotuner.search.space.legal import legal_layouts
from autotuner.search.upkeep.gate import gate_announcement, gate_result, gate_sweep, new_baseline, reused_result
from autotuner.search.upkeep.gate_prediction import PredictedGate, predicted_change, predicted_gate
from tests.builders import big_job, failure, present, trial
from tests.unit.search.upkeep.builders import (
    CHALLENGER,
    INCUMBENT,
    SLOWER,
    baseline,
    comparison,
    ended,
    findings,
    gate,
    gate_request,
    measured,
    runs,
)


# ---------------------------------------------------------------- measured
def result(
    found: ChallengeFindings, state: RunState = RunState.COMPLETE, *, of: GateRun | None = None, dies: Any = None
) -> RegressionGateResult:
    return gate_result((of or gate()).request, ended(state), found, [] if dies is None else [died(dies)])


def died(kind: FailureKind) -> Trial:
    return trial(INCUMBENT, state=TrialState.FAILED, failure=failure(kind))


def test_a_gate_measures_the_given_layout_or_the_best_of_the_space() -> None:
    sweep = gate_sweep(gate_request(), baseline())
    assert sweep.challenge is not None
    assert (sweep.challenge.incumbent, sweep.challenge.searches) == (INCUMBENT, False)
    assert sweep.challenge.baseline == baseline().runs
    assert not sweep.convergence_gate.enabled
    table = legal_layouts(sweep.trial_job, sweep.space)
    assert [table.row(row) for row in range(len(table))] == [INCUMBENT]
    request = gate_request(layout=None)
    sweep = gate_sweep(request, None)
    assert sweep.challenge is not None
    assert (sweep.challenge.incumbent, sweep.challenge.searches, sweep.challenge.baseline) == (None, True, ())
    assert sweep.space == request.sweep.space != SearchSpace()


def test_a_rate_passes_fails_or_is_undecided_with_its_numbers() -> None:
    found = result(findings(against_baseline=comparison()))
    assert found.outcome is RegressionGateOutcome.PASSED
    assert gate_verdict(gate().request, found) == (
        "compared with main it is 0.1 % faster (95 % interval 0.9 % slower to 1.1 % faster), from 3 runs compared "
        "with 4 that scatter by 0.4 %; it reaches 1 ktoken/s (25.0 % MFU)"
    )
    found = result(SLOWER)
    assert found.outcome is RegressionGateOutcome.FAILED
    assert [str(change) for change in found.changes] == ["torch was 2.12 and is 2.13"]
    assert "torch was 2.12 and is 2.13" in gate_verdict(gate().request, found)
    found = result(findings(against_baseline=comparison(Decision.UNDECIDED)))
    assert found.outcome is RegressionGateOutcome.UNDECIDED


@pytest.mark.parametrize("state", [RunState.CANCELLED, RunState.FAILED])
def test_a_decision_stands_after_any_end_of_the_sweep(state: RunState) -> None:
    assert result(SLOWER, state).outcome is RegressionGateOutcome.FAILED


@pytest.mark.parametrize(
    ("state", "outcome"),
    [(RunState.CANCELLED, RegressionGateOutcome.CANCELLED), (RunState.FAILED, RegressionGateOutcome.COULD_NOT_RUN)],
)
def test_a_sweep_that_ended_undecided_says_why(state: RunState, outcome: RegressionGateOutcome) -> None:
    undecided = findings(against_baseline=comparison(Decision.UNDECIDED))
    sweep = ended(state, "somebody said so")
    found = gate_result(gate().request, sweep, undecided, [])
    assert found.outcome is outcome
    assert "somebody said so" in gate_verdict(gate().request, found, sweep)


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [
        (FailureKind.OOM, RegressionGateOutcome.FAILED),
        (FailureKind.NUMERICS, RegressionGateOutcome.FAILED),
        (FailureKind.CRASH, RegressionGateOutcome.COULD_NOT_RUN),
        (FailureKind.INFRASTRUCTURE, RegressionGateOutcome.COULD_NOT_RUN),
    ],
)
def test_a_death_that_the_layout_caused_fails_and_another_says_nothing(
    kind: FailureKind, outcome: RegressionGateOutcome
) -> None:
    found = result(ChallengeFindings(measured=INCUMBENT, death="it died"), dies=kind)
    assert found.outcome is outcome
    assert "it died" in gate_verdict(gate().request, found, ended())


def test_the_reason_for_the_end_of_a_sweep_is_stated_and_a_running_gate_has_not_passed() -> None:
    died_at_once = ChallengeFindings(measured=INCUMBENT, death="the trial failed (oom)")
    assert result(died_at_once, RunState.FAILED, dies=FailureKind.OOM).outcome is RegressionGateOutcome.FAILED
    assert result(ChallengeFindings(), of=gate(layout=None)).outcome is RegressionGateOutcome.COULD_NOT_RUN
    assert not gate().is_passed


@pytest.mark.parametrize(("sets_baseline", "passed"), [(True, True), (False, False)])
def test_the_first_gate_of_a_job_passes_where_it_is_to_set_the_baseline(*, sets_baseline: bool, passed: bool) -> None:
    first = gate(baseline=None, sets_baseline=sets_baseline)
    found = result(findings(against_baseline=None), of=first)
    assert found.outcome is RegressionGateOutcome.NO_BASELINE
    ended = replace(first, result=found)
    assert (ended.is_passed, ended.word) == (passed, "baseline_set" if passed else "no_baseline")


def test_a_baseline_grows_by_what_was_measured_once_where_a_gate_is_asked_to_set_it() -> None:
    stored = present(new_baseline(gate(sets_baseline=True), measured(), now=9.0))
    assert stored.runs == (*baseline().runs, findings().runs)
    assert (stored.gate_id, stored.at, stored.key) == ("ga-1", 9.0, "a-key")
    held = baseline(runs=(runs(), findings().runs))
    again = present(new_baseline(gate(sets_baseline=True, baseline=held), measured(reused_from="ga-before"), now=9.0))
    assert again.runs == held.runs
    assert new_baseline(gate(), measured(), now=9.0) is None


@pytest.mark.parametrize(
    "result",
    [
        measured(changes=result(SLOWER).changes),
        measured(findings=findings(measured=CHALLENGER)),
        measured(findings=findings(against_baseline=comparison(change=0.2))),
    ],
    ids=["another environment", "another layout", "faster"],
)
def test_a_baseline_begins_anew_where_the_runs_are_of_another_kind(result: RegressionGateResult) -> None:
    stored = present(new_baseline(gate(sets_baseline=True), result, now=9.0))
    assert stored.runs == (findings().runs,)


@pytest.mark.parametrize(
    "outcome", [RegressionGateOutcome.FAILED, RegressionGateOutcome.UNDECIDED, RegressionGateOutcome.COULD_NOT_RUN]
)
def test_a_gate_that_did_not_pass_sets_no_baseline(outcome: RegressionGateOutcome) -> None:
    assert new_baseline(gate(sets_baseline=True), measured(outcome), now=9.0) is None


def test_runs_of_an_earlier_gate_are_judged_beside_the_baseline_of_now_if_they_decide() -> None:
    steady = runs(rates=(1000.0, 1001.0, 999.0, 1000.5, 1000.2))
    held = gate(baseline=baseline(runs=(steady,)))
    slow = findings(runs=runs(rates=(800.0, 801.0, 799.0, 800.5, 800.2)))
    found = present(reused_result(held.request, gate(id="ga-0", result=measured(findings=slow))))
    assert (found.outcome, found.reused_from) == (RegressionGateOutcome.FAILED, "ga-0")
    assert "this uses the runs of ga-0" in gate_verdict(held.request, found)
    few = gate(id="ga-0", result=measured(findings=findings(runs=runs(rates=(990.0,)))))
    assert reused_result(gate().request, few) is None
    assert reused_result(gate().request, gate(result=measured(findings=None))) is None


# ---------------------------------------------------------------- predicted
JOB = big_job(64)  # 512 accelerators

TODAY = Layout.parse("fsdp16 tp8 pp4 1f1b mb1 sp")


def changed(**fields: Any) -> Layout:
    return replace(TODAY, **fields)


def gate_of(candidate: Layout, *, tolerance: float = 0.02, dry_run: DryRun | None = None) -> PredictedGate:
    return predicted_gate(JOB, candidate, TODAY, tolerance=tolerance, dry_run=dry_run)


def counted(peak_bytes: float) -> DryRun:
    held = HeldBytes(
        parameters_bytes=peak_bytes, gathered_bytes=0.0, gradients_bytes=0.0, optimizer_bytes=0.0, activations_bytes=0.0
    )
    counts = OperationCounts(flop=1.0, moved_bytes=1.0, num_operations=1.0, collectives=())
    return DryRun(ranks=(RankDryRun(rank=0, held=held, counts=counts),), notes=("nothing was compiled",))


def test_an_equal_layout_passes_and_a_loss_fails_beyond_the_error_and_the_tolerance() -> None:
    found = gate_of(TODAY)
    assert found.outcome is RegressionGateOutcome.PASSED
    assert "equally fast" in predicted_verdict(found, JOB)
    found = predicted_gate(JOB, TODAY, None, tolerance=0.02)
    assert (found.outcome, found.change) == (RegressionGateOutcome.PASSED, None)
    slower = changed(recompute=Recompute.FULL)
    assert gate_of(slower).outcome is RegressionGateOutcome.FAILED
    assert gate_of(slower, tolerance=0.5).outcome is RegressionGateOutcome.PASSED
    found = gate_of(changed(data_parallel_shard_degree=8, pipeline_parallel_degree=8))
    assert found.outcome is RegressionGateOutcome.UNDECIDED
    assert "within the error of the prediction; measure it" in predicted_verdict(found, JOB)


def test_layouts_that_break_rules_or_memory_fail_by_closed_forms_or_as_a_dry_run_counted() -> None:
    found = gate_of(changed(pipeline_schedule=PipelineSchedule.GPIPE))
    assert found.outcome is RegressionGateOutcome.FAILED
    assert "runs out of memory: of 512 ranks, the rank that needs most memory needs" in predicted_verdict(found, JOB)
    found = gate_of(changed(pipeline_parallel_degree=5))
    assert found.outcome is RegressionGateOutcome.FAILED
    assert "accelerators of the cluster, 512, but it is 640" in predicted_verdict(found, JOB)
    assert found.predicted is None
    full, empty = gate_of(TODAY, dry_run=counted(90e9)), gate_of(TODAY, dry_run=counted(10e9))
    assert (full.outcome, empty.outcome) == (RegressionGateOutcome.FAILED, RegressionGateOutcome.PASSED)
    assert "nothing was compiled" in full.notes
    assert present(empty.peak).is_counted


def test_a_change_says_the_same_both_ways_and_is_known_better_than_either_layout() -> None:
    slower = changed(recompute=Recompute.FULL)
    there, back = predicted_change(JOB, TODAY, slower), predicted_change(JOB, slower, TODAY)
    assert (1 + there.change) * (1 + back.change) == pytest.approx(1)
    assert (1 + there.low) * (1 + back.high) == pytest.approx(1)
    found = gate_of(changed(recompute=Recompute.FULL))
    assert found.change is not None
    width = (1 + found.change.high) / (1 + found.change.low)
    assert width < (1 + present(present(found.predicted).relative_error)) ** 2


# ---------------------------------------------------------------- announced
FAILED = measured(RegressionGateOutcome.FAILED, findings=SLOWER)


def test_a_gate_is_announced_once_with_its_numbers() -> None:
    told = gate_announcement(gate(software="commit 17"), FAILED, "slower than main", at=7.0)
    assert (told.id, told.kind.value, told.path, told.at) == ("an-ga-1", "gate.failed", "/gates/ga-1", 7.0)
    assert told.title == "Performance regression gate main, tiny on cpu:2: failed"
    assert (told.facts["change"], told.facts["software"], told.facts["tokens_per_s"]) == (-0.07, "commit 17", 930.0)


# ---------------------------------------------------------------- a long baseline
def test_a_long_baseline_keeps_its_first_runs_and_its_last() -> None:
    kept: tuple[RunGroup, ...] = ()
    for night in range(40):
        kept = longer_baseline(kept, runs(at=float(night)))
    assert [group.at for group in kept] == [0, 1, 2, 3, 4, *range(25, 40)]
