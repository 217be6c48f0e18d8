"""Upkeep: performance gates of CI and scheduled retunes."""

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
    """Content key of the job and of how much of it a trial runs: runs that share it may be compared.

    Whatever layout and versions they had.
    """
    trial = request.trial
    return content_key(job_key(request), trial.proxy_layers_per_stage, trial.max_gradient_norm)


def gate_content(request: MfuGateRequest, software: Mapping[str, str]) -> str:
    """Content key of all that a gate measures: gates that share it would measure the same, so the runs of one do.

    Args:
        request: What is gated; against which baseline and how strictly is no part of what is measured.
        software: Versions of what runs, as far as they are known before anything has run.
    """
    sweep = request.sweep
    searched = None if request.layout else [sweep.space, sweep.objective, sweep.budget, sweep.loss_gate, sweep.seed]
    return content_key(gate_key(sweep), request.layout, searched, sweep.trial, request.software, dict(software))


@value
class Baseline:
    """What a change is held to, under a name such as that of a branch."""

    name: str
    key: str
    """Content key of the job and what runs it; runs of another job are not compared with it."""
    layout: Layout
    """What reached it."""
    runs: tuple[RunGroup, ...]
    """What it reached, a group for each sitting."""
    gate_id: str
    """The gate that set it."""
    at: float
    """When, epoch seconds."""
    model: str = ""
    """Name of the job's model; empty where an earlier release set it."""
    cluster: str = ""
    """Name of its cluster, likewise."""

    @property
    @derived
    def tokens_per_s(self) -> float:
        """Mean of all runs, whole job."""
        return fmean(rate for group in self.runs for rate in group.rates)

    @property
    @derived
    def mfu(self) -> float:
        """Mean of all runs."""
        return fmean((group.mfu for group in self.runs), weights=[len(group.rates) for group in self.runs])

    @property
    @derived
    def num_runs(self) -> int:
        """How often it was measured, in all sittings."""
        return sum(len(group.rates) for group in self.runs)


@value
class MfuGateRequest:
    """What a caller asks for, with every name resolved."""

    sweep: SweepRequest
    """Job, trial settings, trainer, budget; its space is searched where no layout is given."""
    layout: Layout | None = None
    """What the change trains with; None: the best that the sweep finds."""
    baseline: str
    """Name of what it is held to."""
    sets_baseline: bool = False
    """What is measured becomes the baseline of that name, unless the gate fails."""
    test: SequentialTest = field(default_factory=SequentialTest)
    """How strictly it is compared."""
    software: str = ""
    """What the caller says of the software under test, such as a commit or an image; part of the content key beside
    what trials record."""
    reuses: bool = True
    """Take the runs of an earlier gate of the same content instead of measuring again."""


@value
class GateRunRequest:
    """What the run of a gate is asked."""

    gate: MfuGateRequest
    """What the caller asks for."""
    key: str
    """Content key of the job and what runs it."""
    content: str
    """Content key of the same with layout and software."""
    baseline: Baseline | None = None
    """As it stood when the gate was asked for; None: there was none."""


class MfuGateOutcome(StrEnum):
    """How a gate ended."""

    PASSED = "passed"
    FAILED = "failed"
    UNDECIDED = "undecided"  # the noise is too large for the budget
    NO_BASELINE = "no_baseline"  # nothing is stored under that name for this job
    COULD_NOT_RUN = "could_not_run"
    CANCELLED = "cancelled"


@value
class MfuGateResult:
    """What a gate found."""

    outcome: MfuGateOutcome
    findings: ChallengeFindings | None = None
    """What was measured; None where nothing was."""
    changes: tuple[EnvironmentChange, ...] = ()
    """How the environment differs from the baseline's."""
    reused_from: str | None = None
    """The gate whose runs these are; None where they were measured for this one."""


@value
class GateRun(Run):
    """A performance regression gate; ``subject`` is the name of the baseline that it is held to."""

    kind: Literal["gate"] = "gate"
    request: GateRunRequest
    result: MfuGateResult | None = None
    """None until it is finished."""

    @property
    @derived
    def outcome(self) -> MfuGateOutcome | None:
        """How it ended; null until it is finished."""
        return None if self.result is None else self.result.outcome

    @property
    @derived
    def is_passed(self) -> bool:
        """Return whether the change may be merged: it passed, or its runs are the first of their baseline, as asked."""
        is_first = self.outcome is MfuGateOutcome.NO_BASELINE and self.request.gate.sets_baseline
        return is_first or self.outcome is MfuGateOutcome.PASSED

    @property
    def word(self) -> str:
        """The outcome for people, in the spelling of the wire format: ``baseline_set`` where that was asked for."""
        if self.outcome is None:
            return "running"
        return "baseline_set" if self.is_passed and self.outcome is not MfuGateOutcome.PASSED else self.outcome.value


@value
class RetuneRequest:
    """What a caller asks for, with every name resolved."""

    name: str
    """Of the retune, unique."""
    cron: str
    """Five fields: minute, hour, day of month, month, day of week."""
    time_zone: str = "UTC"
    """Of the expression, as the IANA database names it."""
    template: SweepRequest
    """The sweep that every run starts, budget included; its challenge is filled in by each run."""
    incumbent: Layout | None = None
    """The layout in use; None: the best that was measured of the job until the first run."""
    searches: bool = True
    """Whether runs try other layouts; else they only measure the incumbent."""
    test: SequentialTest = field(default_factory=SequentialTest)
    """How strictly runs are compared."""
    on_new_environment: bool = False
    """Also run when torch, a driver or another part of the software has changed."""
    on_new_links: bool = False
    """Also run when the stored cluster's links are not as they were in the last run: another phase of the job has
    begun, in which the incumbent is held to nothing that it reached before."""
    adopts: bool = False
    """Take a better layout for the incumbent without asking."""

    def __post_init__(self) -> None:
        challenge = Challenge(incumbent=self.incumbent, test=self.test, searches=self.searches)
        try:
            replace(self.template, challenge=challenge)  # what no run could ask of its sweep is refused now
        except InvalidInput as error:
            raise error.under("sweep") from error


@value
class Retune:
    """A retune as it is stored."""

    request: RetuneRequest
    created_at: float
    is_paused: bool = False
    incumbent: Layout | None = None
    """The layout in use now; None before the first run."""
    baseline: tuple[RunGroup, ...] = ()
    """What the incumbent reached in the runs since it was adopted, of which none was a regression."""
    next_due_at: float | None = None
    """Epoch seconds; None while it is paused."""
    created_by: str = ""
    """Name of the caller who asked for it, whom the sweeps of its runs count for; empty where the service asks
    nobody."""
    last_run: RetuneRun | None = None
    """The newest run that was not skipped, as it was when the retune was read; None before the first."""

    @property
    @derived
    def name(self) -> str:
        """What it is called by."""
        return self.request.name

    @property
    @derived
    def measured_tokens_per_s(self) -> float | None:
        """What the layout in use is held to, the mean of its baseline; null without one."""
        return fmean(rate for one in self.baseline for rate in one.rates) if self.baseline else None

    @property
    @derived
    def measured_mfu(self) -> float | None:
        """The same as MFU."""
        return fmean(one.mfu for one in self.baseline) if self.baseline else None


class Trigger(StrEnum):
    """Why a run began."""

    CRON = "cron"
    CAUGHT_UP = "caught_up"  # due while nobody was there to start it
    MANUAL = "manual"
    ENVIRONMENT = "environment"
    LINKS = "links"


class Verdict(StrEnum):
    """What a run found."""

    UNCHANGED = "unchanged"
    BETTER_FOUND = "better_found"
    REGRESSION = "regression"
    COULD_NOT_RUN = "could_not_run"


@value
class StepChange:
    """How the step of a better layout differs from that of the incumbent."""

    predicted_before: StepTime
    """Of the incumbent."""
    predicted_after: StepTime
    """Of the better layout."""
    relative_error: float | None
    """Half-width of the 80 % interval of ``predicted_after``, as in ``Prediction``."""
    measured_before: Breakdown | None = None
    """Of the incumbent's last run that has one."""
    measured_after: Breakdown | None = None


@value
class RetuneOutcome:
    """How a run ended."""

    verdict: Verdict
    findings: ChallengeFindings | None = None
    """What was measured; None where nothing was."""
    since: float | None = None
    """When the incumbent last ran as it should, epoch seconds; None where nothing is known of that."""
    changes: tuple[EnvironmentChange, ...] = ()
    """How the environment differs from that of the last run that was as it should."""
    why: StepChange | None = None
    """What the better layout gains; None where none was found."""
    is_simulated: bool = False
    """Nothing ran: these are times of the cost model."""

    @property
    @derived
    def sets_baseline(self) -> bool:
        """Return whether this run begins a baseline, since there was none to compare with."""
        found = self.findings
        is_measured = found is not None and found.runs is not None and found.against_baseline is None
        return self.verdict is Verdict.UNCHANGED and is_measured

    @property
    def word(self) -> str:
        """The verdict for people, in the spelling of the wire format: ``baseline_set`` where nothing was compared."""
        return "baseline_set" if self.sets_baseline else self.verdict.value


@value
class RetuneRunRequest:
    """What a run of a retune is asked."""

    due_at: float
    """When it was due, epoch seconds; of a run that somebody asked for, when they asked."""
    trigger: Trigger
    """Why it began."""
    started_at: float
    """Epoch seconds."""
    num_missed: int = 0
    """Due times before this one that nobody was there for."""
    is_skipped: bool = False
    """It was due while another was unfinished, and is over."""


@value
class RetuneRun(Run):
    """A run of a retune, whose name is ``subject``."""

    kind: Literal["retune"] = "retune"
    request: RetuneRunRequest
    result: RetuneOutcome | None = None
    """None until it is finished, and of a run that was skipped."""

    @property
    def word(self) -> str:
        """Where it stands, for people: its verdict once it has one."""
        if self.result is None:
            return "skipped" if self.request.is_skipped else "running"
        return self.result.word
