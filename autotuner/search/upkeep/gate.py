"""Performance regression gates: their measurements, outcomes, baselines and announcements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autotuner.core.announcement import Announcement, AnnouncementKind
from autotuner.core.comparison import Challenge, ChallengeFindings, Comparison, Decision, RunGroup, environment_changes
from autotuner.core.layout import OPTIONS
from autotuner.core.run import Finish, RunState
from autotuner.core.space import SearchSpace
from autotuner.core.sweep import Sweep, SweepRequest
from autotuner.core.trial import FailureKind, Trial
from autotuner.core.upkeep import (
    Baseline,
    GateRun,
    GateRunRequest,
    RegressionGateOutcome,
    RegressionGateRequest,
    RegressionGateResult,
)
from autotuner.search.sequential_test import compare, longer_baseline

_OF_THE_CHANGE = (FailureKind.OOM, FailureKind.NUMERICS)
"""Kinds of failures that the layout or the code causes. Other failures may be caused by a machine or a network."""

_OUTCOMES = {
    Decision.SLOWER: RegressionGateOutcome.FAILED,
    Decision.NOT_SLOWER: RegressionGateOutcome.PASSED,
    Decision.UNDECIDED: RegressionGateOutcome.UNDECIDED,
}

_STATES = {
    RegressionGateOutcome.PASSED: RunState.COMPLETE,
    RegressionGateOutcome.NO_BASELINE: RunState.COMPLETE,
    RegressionGateOutcome.CANCELLED: RunState.CANCELLED,
    RegressionGateOutcome.FAILED: RunState.FAILED,
    RegressionGateOutcome.UNDECIDED: RunState.FAILED,
    RegressionGateOutcome.COULD_NOT_RUN: RunState.FAILED,
}
"""State of a gate's run by its outcome. A gate that does not pass has failed, and people are notified of it."""


def gate_sweep(request: RegressionGateRequest, baseline: Baseline | None) -> SweepRequest:
    """Return the sweep that makes the measurements for a performance regression gate.

    The gate checks that a change does not slow training. If the gate names a layout, the sweep measures this layout
    repeatedly. Otherwise the sweep searches for the best layout and then measures it. A named layout is not ranked.
    Therefore no convergence gate (short training that compares losses) runs for it.

    Args:
        request: The request for the gate.
        baseline: Earlier runs with which the layout is compared; None: there are none yet.
    """
    challenge = Challenge(
        incumbent=request.layout,
        baseline=() if baseline is None else baseline.runs,
        test=request.test,
        searches=request.layout is None,
    )
    sweep = replace(request.sweep, challenge=challenge, name=request.sweep.name or f"gate {request.baseline}")
    if request.layout is None:
        return sweep
    only = SearchSpace(**{name: (getattr(request.layout, name),) for name in OPTIONS if hasattr(SearchSpace, name)})
    return replace(sweep, space=only, convergence_gate=replace(sweep.convergence_gate, enabled=False))


def gate_result(
    asked: GateRunRequest, sweep: Sweep, findings: ChallengeFindings, trials: Sequence[Trial]
) -> RegressionGateResult:
    """Return the result of a performance regression gate (does a change slow training?) from its finished sweep.

    If the runs already decided the comparison, that decision counts even if the sweep was cancelled or failed.

    Args:
        asked: The request of the gate's run.
        sweep: The finished sweep.
        findings: Results of the measured runs.
        trials: All trials of the sweep.
    """
    runs, against = findings.runs, findings.against_baseline
    is_decided = against is not None and against.decision is not Decision.UNDECIDED
    if runs is None or (sweep.state is not RunState.COMPLETE and not is_decided):
        return RegressionGateResult(outcome=_not_measured(asked, sweep, findings, trials), findings=findings)
    return _measured(asked, findings, runs, against)


def reused_result(asked: GateRunRequest, earlier: GateRun) -> RegressionGateResult | None:
    """Return the result of a performance regression gate without new runs, from the runs of an earlier, equal gate.

    The earlier runs are compared with the baseline of the new gate. The result is None if they do not decide whether
    training became slower.

    Args:
        asked: The request of the new gate's run.
        earlier: The run of the earlier gate.
    """
    if earlier.result is None or earlier.result.findings is None or earlier.result.findings.runs is None:
        return None
    findings, runs = earlier.result.findings, earlier.result.findings.runs
    beside_now = compare(asked.baseline.runs, [runs], asked.gate.test) if asked.baseline else None
    if beside_now is not None and beside_now.decision is Decision.UNDECIDED:
        return None
    found = _measured(asked, replace(findings, against_baseline=beside_now), runs, beside_now)
    return replace(found, reused_from=earlier.id)


def end_of(result: RegressionGateResult, detail: str) -> Finish:
    """Return the state in which a performance regression gate (does a change slow training?) ends.

    The state is failed if the gate rejects the change, cannot decide, or could not run.

    Args:
        result: The result of the gate.
        detail: The result in words.
    """
    return Finish(state=_STATES[result.outcome], detail=detail, result=result)


def new_baseline(gate: GateRun, result: RegressionGateResult, *, now: float) -> Baseline | None:
    """Return the new baseline of a performance regression gate, or None if the baseline does not change.

    The baseline has the runs with which later runs are compared. A gate sets the baseline only if its request says so,
    and if the gate passed or is the first one for this baseline. While the layout and the environment stay the same,
    the new runs are added to the old runs. The baseline starts again from the new runs if the layout or the environment
    changed, or if training became faster by more than the tolerance. This makes sure that later gates find a loss of
    the gained speed. Reused runs are in the baseline already and are not added twice.

    Args:
        gate: The run of the gate.
        result: The result of this run.
        now: Epoch seconds.
    """
    asked, findings = gate.request, result.findings
    is_good = result.outcome in (RegressionGateOutcome.PASSED, RegressionGateOutcome.NO_BASELINE)
    if not (asked.gate.sets_baseline and is_good) or findings is None:
        return None
    if findings.runs is None or findings.measured is None:
        return None
    runs: tuple[RunGroup, ...] = (findings.runs,)
    if asked.baseline is not None and asked.baseline.layout == findings.measured and _is_as_it_was(asked, result):
        runs = asked.baseline.runs
        runs = runs if findings.runs in runs else longer_baseline(runs, findings.runs)
    job = asked.gate.sweep.job
    return Baseline(
        name=asked.gate.baseline,
        key=asked.key,
        layout=findings.measured,
        runs=runs,
        gate_id=gate.id,
        at=now,
        model=job.model.name,
        cluster=job.cluster.name,
    )


def _is_as_it_was(asked: GateRunRequest, result: RegressionGateResult) -> bool:
    """Return True if the runs can be added to the earlier runs.

    They must be in the same environment and must not be faster than noise explains.
    """
    against = result.findings.against_baseline if result.findings else None
    is_faster = against is not None and against.low > asked.gate.test.tolerance
    return not result.changes and not is_faster


# ---------------------------------------------------------------- nothing to compare
def _not_measured(
    asked: GateRunRequest, sweep: Sweep, findings: ChallengeFindings, trials: Sequence[Trial]
) -> RegressionGateOutcome:
    if sweep.state is RunState.CANCELLED:
        return RegressionGateOutcome.CANCELLED
    deaths = [trial.failure for trial in trials if trial.failure is not None]
    if findings.runs is None and deaths and asked.gate.layout is not None and deaths[-1].kind in _OF_THE_CHANGE:
        return RegressionGateOutcome.FAILED
    return RegressionGateOutcome.COULD_NOT_RUN


# ---------------------------------------------------------------- measured
def _measured(
    asked: GateRunRequest, findings: ChallengeFindings, runs: RunGroup, against: Comparison | None
) -> RegressionGateResult:
    if asked.baseline is None or against is None:
        return RegressionGateResult(outcome=RegressionGateOutcome.NO_BASELINE, findings=findings)
    then = asked.baseline.runs[-1].environment
    changes = environment_changes(then, runs.environment) if then and runs.environment else ()
    return RegressionGateResult(outcome=_OUTCOMES[against.decision], findings=findings, changes=changes)


def gate_announcement(gate: GateRun, result: RegressionGateResult, text: str, *, at: float) -> Announcement:
    """Return the message about a finished performance regression gate, for the web feed and the webhooks.

    The gate checks that a change does not slow training. There is one message per gate. Its id is derived from the id
    of the gate.

    Args:
        gate: The run of the gate.
        result: The result of this run.
        text: The result in words.
        at: Time of the message in epoch seconds.
    """
    asked = gate.request.gate
    job = asked.sweep.job
    outcome = result.outcome.value.replace("_", " ")
    return Announcement(
        id=f"an-{gate.id}",
        at=at,
        kind=AnnouncementKind(f"gate.{result.outcome.value}"),
        title=f"Performance regression gate {asked.baseline}, {job.model.name} on {job.cluster.name}: {outcome}",
        text=text,
        path=f"/gates/{gate.id}",
        subject_id=gate.id,
        facts={
            "gate": gate.id,
            "sweep": gate.child_id,
            "baseline": asked.baseline,
            "outcome": result.outcome.value,
            "software": asked.software,
            "model": job.model.name,
            "cluster": job.cluster.name,
            **(result.findings.facts() if result.findings else {}),
        },
    )
