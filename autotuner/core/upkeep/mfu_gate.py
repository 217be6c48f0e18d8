"""MFU gate: whether a change may be merged, by what it does to the measured MFU. Not the loss gate of a sweep."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from autotuner.core.layouts.layout import Layout
from autotuner.core.runs.challenge import ChallengeFindings
from autotuner.core.runs.comparison import RunGroup, SequentialTest
from autotuner.core.runs.sweep import SweepRequest
from autotuner.core.upkeep.environment import EnvironmentChange

__all__ = ["Baseline", "MfuGate", "MfuGateOutcome", "MfuGateRequest", "MfuGateResult"]


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
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


class MfuGateOutcome(StrEnum):
    """How a gate ended."""

    PASSED = "passed"
    FAILED = "failed"
    UNDECIDED = "undecided"  # the noise is too large for the budget
    NO_BASELINE = "no_baseline"  # nothing is stored under that name for this job
    COULD_NOT_RUN = "could_not_run"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
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
