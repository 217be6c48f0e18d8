"""Upkeep: performance gates of CI and scheduled retunes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from enum import StrEnum

from autotuner.core.codec import content_key
from autotuner.core.comparison import Challenge, ChallengeFindings, EnvironmentChange, RunGroup, SequentialTest
from autotuner.core.errors import InvalidInput
from autotuner.core.layout import Layout
from autotuner.core.sweep import SweepRequest, job_key
from autotuner.core.value import value


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
    """What a change is held to, under a name such as that of a branch.

    Attributes:
        key: Content key of the job and what runs it; runs of another job are not compared with it.
        layout: What reached it.
        runs: What it reached, a group for each sitting.
        gate_id: The gate that set it.
        at: When, epoch seconds.
    """

    name: str
    key: str
    layout: Layout
    runs: tuple[RunGroup, ...]
    gate_id: str
    at: float


@value
class MfuGateRequest:
    """What a caller asks for, with every name resolved.

    Attributes:
        sweep: Job, trial settings, trainer, budget; its space is searched where no layout is given.
        layout: What the change trains with; None: the best that the sweep finds.
        baseline: Name of what it is held to.
        sets_baseline: What is measured becomes the baseline of that name, unless the gate fails.
        test: How strictly it is compared.
        software: What the caller says of the software under test, such as a commit or an image; part of the content
            key beside what trials record.
        reuses: Take the runs of an earlier gate of the same content instead of measuring again.
    """

    sweep: SweepRequest
    layout: Layout | None = None
    baseline: str
    sets_baseline: bool = False
    test: SequentialTest = field(default_factory=SequentialTest)
    software: str = ""
    reuses: bool = True


@value
class GateRunRequest:
    """What the run of a gate is asked.

    Attributes:
        gate: What the caller asks for.
        key: Content key of the job and what runs it.
        content: Content key of the same with layout and software.
        baseline: As it stood when the gate was asked for; None: there was none.
    """

    gate: MfuGateRequest
    key: str
    content: str
    baseline: Baseline | None = None


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
    """What a gate found.

    Attributes:
        detail: The outcome with its numbers, as a sentence without a full stop.
        findings: What was measured; None where nothing was.
        changes: How the environment differs from the baseline's.
        reused_from: The gate whose runs these are; None where they were measured for this one.
    """

    outcome: MfuGateOutcome
    detail: str
    findings: ChallengeFindings | None = None
    changes: tuple[EnvironmentChange, ...] = ()
    reused_from: str | None = None


@value
class MfuGate:
    """A gate as it is stored.

    Attributes:
        key: Content key of the job and what runs it, as a baseline has one.
        content: Content key of the same with layout and software: gates that share it measure the same.
        baseline: As it stood when the gate was asked for.
        sweep_id: The sweep that measures; None where an earlier gate's runs are taken.
        result: None until it is finished.
        created_by: Name of the caller who asked for it; empty where the service asks nobody.
    """

    id: str
    request: MfuGateRequest
    key: str
    content: str
    baseline: Baseline | None
    created_at: float
    sweep_id: str | None = None
    finished_at: float | None = None
    result: MfuGateResult | None = None
    created_by: str = ""


@value
class RetuneRequest:
    """What a caller asks for, with every name resolved.

    Attributes:
        name: Of the retune, unique.
        cron: Five fields: minute, hour, day of month, month, day of week.
        time_zone: Of the expression, as the IANA database names it.
        template: The sweep that every run starts, budget included; its challenge is filled in by each run.
        incumbent: The layout in use; None: the best that was measured of the job until the first run.
        searches: Whether runs try other layouts; else they only measure the incumbent.
        test: How strictly runs are compared.
        on_new_environment: Also run when torch, a driver or another part of the software has changed.
        on_new_links: Also run when the stored cluster's links are not as they were in the last run: another phase of
            the job has begun, in which the incumbent is held to nothing that it reached before.
        adopts: Take a better layout for the incumbent without asking.
    """

    name: str
    cron: str
    time_zone: str = "UTC"
    template: SweepRequest
    incumbent: Layout | None = None
    searches: bool = True
    test: SequentialTest = field(default_factory=SequentialTest)
    on_new_environment: bool = False
    on_new_links: bool = False
    adopts: bool = False

    def __post_init__(self) -> None:
        challenge = Challenge(incumbent=self.incumbent, test=self.test, searches=self.searches)
        try:
            replace(self.template, challenge=challenge)  # what no run could ask of its sweep is refused now
        except InvalidInput as error:
            raise error.under("sweep") from error


@value
class Retune:
    """A retune as it is stored.

    Attributes:
        incumbent: The layout in use now; None before the first run.
        baseline: What the incumbent reached in the runs since it was adopted, of which none was a regression.
        next_due_at: Epoch seconds; None while it is paused.
        created_by: Name of the caller who asked for it, whom the sweeps of its runs count for; empty where the service
            asks nobody.
    """

    request: RetuneRequest
    created_at: float
    is_paused: bool = False
    incumbent: Layout | None = None
    baseline: tuple[RunGroup, ...] = ()
    next_due_at: float | None = None
    created_by: str = ""

    @property
    def name(self) -> str:
        """What it is called by."""
        return self.request.name


class Trigger(StrEnum):
    """Why a run began."""

    CRON = "cron"
    CAUGHT_UP = "caught_up"  # due while nobody was there to start it
    MANUAL = "manual"
    ENVIRONMENT = "environment"
    LINKS = "links"


class RetuneState(StrEnum):
    """Where a run stands."""

    RUNNING = "running"
    FINISHED = "finished"
    SKIPPED = "skipped"  # due while the run before it was not finished


class Verdict(StrEnum):
    """What a run found."""

    UNCHANGED = "unchanged"
    BETTER_FOUND = "better_found"
    REGRESSION = "regression"
    COULD_NOT_RUN = "could_not_run"


@value
class RetuneOutcome:
    """How a run ended.

    Attributes:
        detail: The verdict with its numbers, as a sentence without a full stop.
        findings: What was measured; None where nothing was.
        since: When the incumbent last ran as it should, epoch seconds; of a regression.
        changes: How the environment differs from that of the last run that was as it should.
        explanation: What the better layout does otherwise and what it gains by it, a sentence for each.
    """

    verdict: Verdict
    detail: str
    findings: ChallengeFindings | None = None
    since: float | None = None
    changes: tuple[EnvironmentChange, ...] = ()
    explanation: tuple[str, ...] = ()

    @property
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
    """What a run of a retune is asked.

    Attributes:
        due_at: When it was due, epoch seconds; of a run that somebody asked for, when they asked.
        trigger: Why it began.
        started_at: Epoch seconds.
        num_missed: Due times before this one that nobody was there for.
        is_skipped: It was due while another was unfinished, and is over.
    """

    due_at: float
    trigger: Trigger
    started_at: float
    num_missed: int = 0
    is_skipped: bool = False


@value
class RetuneRun:
    """One run of a retune.

    Attributes:
        retune: Its name.
        due_at: When it was due, epoch seconds; of a run that somebody asked for, when they asked.
        started_at: Epoch seconds, as is the next.
        sweep_id: The sweep that it started; null of one that was skipped.
        num_missed: Due times before this one that nobody was there for; this run stands for them all.
        outcome: Null until it is finished.
    """

    id: str
    retune: str
    due_at: float
    trigger: Trigger
    state: RetuneState
    started_at: float
    finished_at: float | None = None
    sweep_id: str | None = None
    num_missed: int = 0
    outcome: RetuneOutcome | None = None
