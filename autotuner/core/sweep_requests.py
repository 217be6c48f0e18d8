"""What callers send to start and change sweeps, gates, retunes and optimizer studies, with names to be resolved."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Any, TypeAlias

from annotated_types import Ge, Gt

from autotuner.core.cluster import Cluster
from autotuner.core.codec import to_plain
from autotuner.core.comparison import SequentialTest
from autotuner.core.convergence_gate import LossGate
from autotuner.core.documents import GivenFields, InWords, Key, Label, Named, OnlyNamed
from autotuner.core.errors import InvalidInput
from autotuner.core.fault_trace import FaultTrace
from autotuner.core.job import Job
from autotuner.core.model import TransformerSpec
from autotuner.core.named import resolved
from autotuner.core.objective import Objective
from autotuner.core.requests import GivenAxes, GivenLayout, JobRequest, PredictedJobRequest
from autotuner.core.study import OptimizerSpace, StudyBudget
from autotuner.core.sweep import Budget
from autotuner.core.trial_spec import Trainer, TrialSettings
from autotuner.core.workload import Workload

MAX_STEPS = 10_000
"""Steps under faults that a trial may run; at 20 ms each these take minutes."""

MAX_FAULTS = 256
"""Distinct states of links are predicted one after the other, for the whole table of layouts."""


def _within_limits(trace: FaultTrace) -> FaultTrace:
    """The trace, if trials can run it in a bearable time."""
    for name, found, most in (("num_steps", trace.num_steps, MAX_STEPS), ("faults", len(trace.faults), MAX_FAULTS)):
        if found > most:
            raise InvalidInput(name, found, f"a fault trace may have {most} of them at most", most)
    return trace


_AS_LINES = InWords(
    lambda text: to_plain(FaultTrace.parse(text)),
    "A line per fault: `iteration;link[,link];state`, where a link is the numbers of its two ends (`2_3`: nodes, or "
    "accelerators of a single node), and a state is seconds of one-way delay (`0.06`; `0` heals), a rate (`200mbit`), "
    "or `dead`. It lasts as long after its last fault as it took to get there.",
    max_length=1 << 14,
    examples=("7;2_3;0.06\n30;2_3;0",),
    check=_within_limits,
)

GivenFaultTrace: TypeAlias = Annotated[FaultTrace, _AS_LINES]
GivenLimits: TypeAlias = Annotated[dict[str, Any], GivenFields(Budget)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepCreate(PredictedJobRequest):
    """A sweep to start.

    Attributes:
        space: Values each axis may take; an axis left out takes the default that suits the cluster.
        seed: Same seed, same sequence of trials.
        name: For people; need not be unique.
        objective: What is maximised.
        max_parallel_trials: Trials that run at once where there is room for them.
        loss_gate: How layouts that change the mathematics earn the first rank.
        trainer: Name of a registered trainer, which then runs as the trial; null: our own decoder does.
        trial_cluster: Where trials run, written as ``cluster``: with fewer of the same accelerators. Each trial is then
            a scaled-down one that stands for a layout of the job on ``cluster``, and ranked by what is estimated of
            that; null: trials run on ``cluster``.
        fault_trace: What befalls the cluster's links in further steps of every trial, as text or as an object; layouts
            are then ranked by what they reach under it (``objective.under_faults`` is true). Null: nothing does.
    """

    space: GivenAxes = field(default_factory=dict)
    budget: Budget = field(default_factory=Budget)
    trial: TrialSettings = field(default_factory=TrialSettings)
    seed: Annotated[int, Ge(0)] = 0
    name: str = ""
    objective: Objective = field(default_factory=Objective)
    max_parallel_trials: Annotated[int, Ge(1)] = 1
    loss_gate: LossGate = field(default_factory=LossGate)
    trainer: OnlyNamed[Trainer] | None = None
    trial_cluster: Named[Cluster] | None = None
    fault_trace: GivenFaultTrace | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetChange:
    """Another budget of a sweep.

    Attributes:
        budget: Limits in the place of what they were, each for the whole sweep, what it has spent included; one that is
            left out stays.
    """

    budget: GivenLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepClone:
    """What a new sweep has otherwise than the one that it is cloned from; what is left out is as there.

    Attributes:
        model: As for a new sweep.
        cluster: As for a new sweep.
        space: Values of some axes. With another model or cluster, axes that are left out take the defaults that suit
            them.
        budget: Some limits.
        trial: Some settings.
        loss_gate: Some settings.
    """

    model: Named[TransformerSpec] | None = None
    cluster: Named[Cluster] | None = None
    workload: Workload | None = None
    space: GivenAxes = field(default_factory=dict)
    budget: GivenLimits = field(default_factory=dict)
    trial: Annotated[dict[str, Any], GivenFields(TrialSettings)] = field(default_factory=dict)
    seed: Annotated[int, Ge(0)] | None = None
    name: str | None = None
    objective: Objective | None = None
    max_parallel_trials: Annotated[int, Ge(1)] | None = None
    loss_gate: Annotated[dict[str, Any], GivenFields(LossGate)] = field(default_factory=dict)

    @property
    def is_of_same_job(self) -> bool:
        """Whether it trains the same model on the same cluster."""
        return self.model is None and self.cluster is None

    def job_like(self, job: Job) -> Job:
        """The job, but for what is said, once names are resolved; of another cluster runs told nothing."""
        return replace(
            job,
            model=job.model if self.model is None else resolved(self.model),
            cluster=job.cluster if self.cluster is None else resolved(self.cluster),
            workload=self.workload or job.workload,
            calibration=job.calibration if self.cluster is None else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GateCreate(SweepCreate):
    """A change to be gated: what it trains, with which layout, and what it is held to.

    Attributes:
        layout: What the change trains with, and all that is measured; a field left out takes its default. Null: the
            best that a sweep of ``space`` finds.
        baseline: Name of what it is held to, such as a branch; each job has its own under that name.
        sets_baseline: What is measured becomes that baseline, where the gate passes or there was none.
        test: How strictly rates are compared: they are measured again until that decides, or ``max_runs`` are spent.
        software: What is under test, such as a commit or the digest of an image.
        reuses: Take the runs of an earlier gate of the same layout, job, settings and software instead of measuring
            again. Of a registered trainer only where ``software`` says what it is.
    """

    layout: GivenLayout | None = None
    baseline: Key = "main"
    sets_baseline: bool = False
    test: SequentialTest = field(default_factory=SequentialTest)
    software: Label = ""
    reuses: bool = True

    def __post_init__(self) -> None:
        if self.layout is not None and self.space:
            raise InvalidInput("space", self.space, "must be left out when a layout is given")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetuneCreate:
    """A sweep that comes back by the clock, and challenges the layout in use.

    Attributes:
        name: Of the retune, unique.
        cron: Five fields: minute, hour, day of month, month, day of week.
        time_zone: Of the expression, as the IANA database names it.
        sweep: What every run starts, budget included.
        incumbent: The layout in use; a field left out takes its default. Null: the fastest that was measured of the
            job before, else the best that the first run finds.
        searches: Whether runs try other layouts; else they only measure the incumbent.
        test: How strictly runs are compared.
        on_new_environment: Also run when torch, the driver or the kernel of this machine has changed.
        on_new_links: Also run when a check of the stored cluster, or its description, says that links are not as they
            were in the last run. That run holds the incumbent to nothing that it reached before.
        adopts: Take a better layout for the incumbent without asking.
    """

    name: Key
    cron: str
    time_zone: str = "UTC"
    sweep: SweepCreate
    incumbent: GivenLayout | None = None
    searches: bool = True
    test: SequentialTest = field(default_factory=SequentialTest)
    on_new_environment: bool = False
    on_new_links: bool = False
    adopts: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """What becomes the incumbent.

    Attributes:
        layout: A field left out takes its default. Its next run measures what it is held to; the incumbent itself,
            named here, is from then on held to what it reaches now. Null: the better layout that the last run found.
    """

    layout: GivenLayout | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerStudyCreate(JobRequest):
    """A study to start: which optimizer, numbers, batch and data-parallel degree come to a target loss fastest.

    Attributes:
        layout: How the model is trained; a field left out takes its default. Candidates differ from it in data-parallel
            ranks alone.
        target_loss: Training is done when the mean loss over ``window_sequences`` sequences is there.
        window_sequences: Over how many sequences losses are averaged, whatever the batch.
        space: What may be tried.
        budget: When the study ends.
        prunes: Whether candidates end early that can no longer lie on the front, or whose loss lies above the others'.
        trial: How long a trial may take, and what clips its gradients; the study says how many steps it runs.
        name: For people; need not be unique.
    """

    layout: GivenLayout
    target_loss: Annotated[float, Gt(0)]
    window_sequences: Annotated[int, Ge(1)] = 64
    space: OptimizerSpace = field(default_factory=OptimizerSpace)
    budget: StudyBudget = field(default_factory=StudyBudget)
    prunes: bool = True
    trial: TrialSettings = field(default_factory=TrialSettings)
    seed: Annotated[int, Ge(0)] = 0
    name: str = ""
