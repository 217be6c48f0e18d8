"""Upkeep: performance regression gates of CI, and scheduled retunes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from enum import StrEnum
from statistics import fmean
from typing import Literal

from autotuner.core.codec import content_key
from autotuner.core.comparison import Challenge, ChallengeFindings, EnvironmentChange, RunGroup, SequentialTest
from autotuner.core.errors import InvalidInput
from autotuner.core.layout import Layout
from autotuner.core.measurement import Breakdown
from autotuner.core.prediction import StepTime
from autotuner.core.run import Run
from autotuner.core.sweep import SweepRequest, job_key
from autotuner.core.value import derived, value


def gate_key(request: SweepRequest) -> str:
    """Return the content key (a hash) of the job that a performance regression gate measures.

    Such a gate compares the speed of a change with earlier runs. Only runs with equal keys may be compared. The key
    includes the job, and the trial settings that decide how much of the job runs. The layout and the versions of
    software are not part of the key.
    """
    trial = request.trial
    return content_key(job_key(request), trial.proxy_layers_per_stage, trial.max_gradient_norm)


def gate_content(request: RegressionGateRequest, software: Mapping[str, str]) -> str:
    """Return the content key (a hash) of everything that decides the runs of a performance regression gate.

    Such a gate compares the speed of a change with earlier runs. Gates with equal keys can share their runs.

    Args:
        request: The gate. Its baseline and thresholds are not part of the key.
        software: For each program, its version as far as it is known before anything has run.
    """
    sweep = request.sweep
    search = [sweep.space, sweep.objective, sweep.budget, sweep.convergence_gate, sweep.seed]
    searched = None if request.layout else search
    return content_key(gate_key(sweep), request.layout, searched, sweep.trial, request.software, dict(software))


@value
class Baseline:
    """A named set of earlier runs that changes are compared with, such as the runs of a branch."""

    name: str
    key: str
    """Content key of the job and its trainer. Runs of another job are not compared with the baseline."""
    layout: Layout
    """Layout whose runs are the baseline."""
    runs: tuple[RunGroup, ...]
    """Runs of the layout, as one group for each session."""
    gate_id: str
    """Id of the gate that set the baseline."""
    at: float
    """Time when the baseline was set, in epoch seconds."""
    model: str = ""
    """Name of the job's model; empty if an earlier release set the baseline."""
    cluster: str = ""
    """Name of the job's cluster; empty if an earlier release set the baseline."""

    @property
    @derived
    def tokens_per_s(self) -> float:
        """The mean tokens per second of the whole job, over all runs of the baseline."""
        return fmean(rate for group in self.runs for rate in group.rates)

    @property
    @derived
    def mfu(self) -> float:
        """The mean MFU over all runs of the baseline."""
        return fmean((group.mfu for group in self.runs), weights=[len(group.rates) for group in self.runs])

    @property
    @derived
    def num_runs(self) -> int:
        """The number of runs of the baseline, in all of its groups of runs."""
        return sum(len(group.rates) for group in self.runs)


@value
class RegressionGateRequest:
    """A request for a performance regression gate, in which every name was replaced by the object that it names.

    The gate compares the speed of a changed layout or software with a baseline.
    """

    sweep: SweepRequest
    """Sweep with the job, trial settings, trainer and budget. Its space is searched if ``layout`` is not given."""
    layout: Layout | None = None
    """Layout that the change trains with; None: the best layout that the sweep finds."""
    baseline: str
    """Name of the baseline that the runs are compared with."""
    sets_baseline: bool = False
    """Make the measured runs the baseline of that name, unless the gate fails."""
    test: SequentialTest = field(default_factory=SequentialTest)
    """Thresholds of the comparison."""
    software: str = ""
    """Software under test as the caller names it, such as a commit or an image. Together with the versions that trials
    record, it is a part of the content key."""
    reuses: bool = True
    """Use the runs of an earlier gate of the same content instead of measuring again."""


@value
class GateRunRequest:
    """The complete request of a performance gate's run, with the baseline as it was when the gate was requested."""

    gate: RegressionGateRequest
    """Gate that the caller requested."""
    key: str
    """Content key of the job and its trainer."""
    content: str
    """Content key of the job with layout and software."""
    baseline: Baseline | None = None
    """Baseline at the time of the request; None: there was none."""


class RegressionGateOutcome(StrEnum):
    """The possible outcomes of a performance regression gate, which compares the speed of a change with a baseline.

    ``passed`` and ``failed`` say whether the change is fast enough. The other outcomes say why the gate could not
    decide: too much noise, no baseline, an error, or a cancel request.
    """

    PASSED = "passed"
    FAILED = "failed"
    UNDECIDED = "undecided"  # the noise is too large for the budget
    NO_BASELINE = "no_baseline"  # no baseline of that name is stored for this job
    COULD_NOT_RUN = "could_not_run"
    CANCELLED = "cancelled"


@value
class RegressionGateResult:
    """The result of a performance regression gate: its outcome, the measured runs, and changes of the environment."""

    outcome: RegressionGateOutcome
    findings: ChallengeFindings | None = None
    """Findings of the measured runs; None if nothing was measured."""
    changes: tuple[EnvironmentChange, ...] = ()
    """Differences between the environment and the baseline's."""
    reused_from: str | None = None
    """Id of the gate whose runs are used; None if the runs were measured for this gate."""


@value
class GateRun(Run):
    """The durable run (background work that survives restarts) of a performance regression gate.

    The gate compares the speed of a change with a baseline; ``subject`` is the name of this baseline.
    """

    kind: Literal["gate"] = "gate"
    request: GateRunRequest
    result: RegressionGateResult | None = None
    """Result of the gate; None until it is finished."""

    @property
    @derived
    def outcome(self) -> RegressionGateOutcome | None:
        """The outcome of the performance regression gate (a comparison with a baseline); None until it is finished."""
        return None if self.result is None else self.result.outcome

    @property
    @derived
    def is_passed(self) -> bool:
        """True if the change may be merged: the gate passed, or its runs became the first baseline, as requested."""
        is_first = self.outcome is RegressionGateOutcome.NO_BASELINE and self.request.gate.sets_baseline
        return is_first or self.outcome is RegressionGateOutcome.PASSED

    @property
    def word(self) -> str:
        """The outcome as a word: ``running`` until there is one, ``baseline_set`` for a first baseline."""
        if self.outcome is None:
            return "running"
        is_first = self.is_passed and self.outcome is not RegressionGateOutcome.PASSED
        return "baseline_set" if is_first else self.outcome.value


@value
class RetuneRequest:
    """A request for a retune (a sweep on a schedule), in which every name was replaced by the object that it names."""

    name: str
    """Unique name of the retune."""
    cron: str
    """Schedule in five fields: minute, hour, day of month, month, day of week."""
    time_zone: str = "UTC"
    """Time zone of the schedule, as the IANA database names it."""
    template: SweepRequest
    """Sweep that every run starts, including its budget. Each run adds the layouts to compare."""
    incumbent: Layout | None = None
    """Layout in use; None: until the first run, the best layout that was measured for the job."""
    searches: bool = True
    """Try other layouts. If false, runs only measure the incumbent."""
    test: SequentialTest = field(default_factory=SequentialTest)
    """Thresholds of the comparisons."""
    on_new_environment: bool = False
    """Run also when torch, a driver or another part of the software has changed."""
    on_new_links: bool = False
    """Run also when the links of the stored cluster have changed since the last run. The incumbent is then not compared
    with earlier results, because they were measured with other links."""
    adopts: bool = False
    """Make a better layout the incumbent without asking a person."""

    def __post_init__(self) -> None:
        challenge = Challenge(incumbent=self.incumbent, test=self.test, searches=self.searches)
        try:
            replace(self.template, challenge=challenge)  # refuse the request now, because every run would refuse it
        except InvalidInput as error:
            raise error.under("sweep") from error


@value
class Retune:
    """A retune as it is stored: a sweep on a schedule that looks for better layouts than the layout in use."""

    request: RetuneRequest
    created_at: float
    is_paused: bool = False
    incumbent: Layout | None = None
    """Layout in use now; None before the first run."""
    baseline: tuple[RunGroup, ...] = ()
    """Runs of the incumbent since it was adopted, without runs that were regressions."""
    next_due_at: float | None = None
    """Time of the next run in epoch seconds; None while the retune is paused."""
    created_by: str = ""
    """Name of the caller who requested the retune, and whose quota the sweeps of its runs use; empty if the service has
    no login."""
    last_run: RetuneRun | None = None
    """Newest run that was not skipped, as it was when the retune was read; None before the first run."""

    @property
    @derived
    def name(self) -> str:
        """The unique name of the retune (a sweep on a schedule)."""
        return self.request.name

    @property
    @derived
    def measured_tokens_per_s(self) -> float | None:
        """The mean tokens per second of the incumbent (the layout in use); null if it has no baseline runs."""
        return fmean(rate for one in self.baseline for rate in one.rates) if self.baseline else None

    @property
    @derived
    def measured_mfu(self) -> float | None:
        """The mean MFU of the incumbent (the layout in use); null if it has no baseline runs."""
        return fmean(one.mfu for one in self.baseline) if self.baseline else None


class Trigger(StrEnum):
    """The reasons why a run of a retune started: its schedule, a person, a new environment, or changed links."""

    CRON = "cron"
    CAUGHT_UP = "caught_up"  # due while no worker was running
    MANUAL = "manual"
    ENVIRONMENT = "environment"
    LINKS = "links"


class Verdict(StrEnum):
    """The possible results of a run of a retune, which compares the layout in use with earlier runs and other layouts.

    The run found no better layout, found a better one, found that the layout in use has become slower, or could not
    run.
    """

    UNCHANGED = "unchanged"
    BETTER_FOUND = "better_found"
    REGRESSION = "regression"
    COULD_NOT_RUN = "could_not_run"


@value
class StepChange:
    """The step times by part of a better layout and of the incumbent (the layout in use), to show the difference."""

    predicted_before: StepTime
    """Predicted step time of the incumbent."""
    predicted_after: StepTime
    """Predicted step time of the better layout."""
    relative_error: float | None
    """Half-width of the 80 % interval of ``predicted_after``, as in ``Prediction``."""
    measured_before: Breakdown | None = None
    """Measured parts of a step in the incumbent's last run that has them."""
    measured_after: Breakdown | None = None


@value
class RetuneOutcome:
    """The result of a finished run of a retune: the verdict, the measured runs, and possible causes of a change."""

    verdict: Verdict
    findings: ChallengeFindings | None = None
    """Findings of the measured runs; None if nothing was measured."""
    since: float | None = None
    """Time of the last run in which the incumbent was as fast as expected, in epoch seconds; None if it is not
    known."""
    changes: tuple[EnvironmentChange, ...] = ()
    """Differences between the present environment and that of the last run that was as fast as expected."""
    why: StepChange | None = None
    """Change of the step time that the better layout makes; None if no better layout was found."""
    is_simulated: bool = False
    """True if nothing ran, so that all times come from the cost model."""

    @property
    @derived
    def sets_baseline(self) -> bool:
        """True if this run became the incumbent's baseline, because there were no earlier runs to compare with.

        The incumbent is the layout in use.
        """
        found = self.findings
        is_measured = found is not None and found.runs is not None and found.against_baseline is None
        return self.verdict is Verdict.UNCHANGED and is_measured

    @property
    def word(self) -> str:
        """The result of a retune's run as a word; ``baseline_set`` if the run became the first baseline."""
        return "baseline_set" if self.sets_baseline else self.verdict.value


@value
class RetuneRunRequest:
    """The request of one run of a retune: its due time and the reason why it started."""

    due_at: float
    """Time when the run was due, in epoch seconds; for a manual run, the time of the request."""
    trigger: Trigger
    """Reason why the run began."""
    started_at: float
    """Time when the run began, in epoch seconds."""
    num_missed: int = 0
    """Number of earlier due times of the retune that were missed."""
    is_skipped: bool = False
    """True if the run was skipped because another run was not finished when it was due."""


@value
class RetuneRun(Run):
    """One durable run (background work that survives restarts) of a retune, which is a sweep on a schedule.

    ``subject`` is the name of the retune.
    """

    kind: Literal["retune"] = "retune"
    request: RetuneRunRequest
    result: RetuneOutcome | None = None
    """Result of the run; None until it is finished, and for a run that was skipped."""

    @property
    def word(self) -> str:
        """The state of a retune's run as a word for people: ``running``, ``skipped``, or the result."""
        if self.result is None:
            return "skipped" if self.request.is_skipped else "running"
        return self.result.word
