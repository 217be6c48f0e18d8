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
from autotuner.core.value import AsJson, Caption, Flag, Hint, Rare, Topic
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

_SETTING, _OPTIMIZERS = '{"num_runs": 2}', '{"optimizers": ["adamw"], "global_batch_sizes": [64, 256]}'
_AS_JSON = AsJson(_SETTING)
_STOP, _GATED, _TEST = Topic("When to stop"), Topic("Convergence gate"), Topic("Statistical test")


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepCreate(PredictedJobRequest):
    """A sweep to start."""

    space: Annotated[GivenAxes, Rare()] = field(default_factory=dict)
    """Values each axis may take; an axis left out takes the default that suits the cluster."""
    budget: Annotated[Budget, _STOP] = field(default_factory=Budget)
    """When to stop."""
    trial: Annotated[TrialSettings, Topic("Measuring a trial"), AsJson(_SETTING, beside_fields=True)] = field(
        default_factory=TrialSettings
    )
    """More settings of trials."""
    seed: Annotated[int, Ge(0), Rare()] = 0
    """Seed of the order of trials: same seed, same sequence of trials."""
    name: str = ""
    """Name for people; need not be unique."""
    objective: Objective = field(default_factory=Objective)
    """What is maximised."""
    max_parallel_trials: Annotated[int, Ge(1), Flag("parallel"), Caption("Trials at once"), Rare()] = 1
    """Trials that run at once where there is room for them."""
    loss_gate: Annotated[LossGate, _GATED] = field(default_factory=LossGate)
    """How layouts that change the mathematics earn the first rank."""
    trainer: Annotated[OnlyNamed[Trainer] | None, Hint("our own decoder")] = None
    """Name of a registered trainer, which then runs as the trial; empty: our own decoder does."""
    trial_cluster: Annotated[
        Named[Cluster] | None,
        Flag("on"),
        Caption("Run trials on"),
        Hint("the cluster itself"),
        Topic("Trials on a smaller cluster"),
    ] = None
    """Smaller cluster where trials run, written as ``cluster``: with fewer of the same accelerators. Each trial is then
    a scaled-down one that stands for a layout of the job on ``cluster``, and ranked by what is estimated of that; null:
    trials run on ``cluster``."""
    fault_trace: Annotated[GivenFaultTrace | None, Topic("Injected link faults")] = None
    """Faults of the cluster's links in further steps of every trial, as text or as an object; layouts are then ranked
    by what they reach under them (``objective.under_faults`` is true). Null: nothing befalls links."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetChange:
    """Another budget of a sweep."""

    budget: Annotated[GivenLimits, _STOP]
    """Limits in the place of what they were, each for the whole sweep, what it has spent included; one that is left out
    stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepClone:
    """What a new sweep has otherwise than the one that it is cloned from; what is left out is as there."""

    model: Named[TransformerSpec] | None = None
    """Other model, as for a new sweep."""
    cluster: Named[Cluster] | None = None
    """Other cluster, as for a new sweep."""
    workload: Workload | None = None
    space: Annotated[GivenAxes, Rare()] = field(default_factory=dict)
    """Values of some axes. With another model or cluster, axes that are left out take the defaults that suit them."""
    budget: Annotated[GivenLimits, _STOP] = field(default_factory=dict)
    """Some limits."""
    trial: Annotated[dict[str, Any], GivenFields(TrialSettings), _AS_JSON, Rare()] = field(default_factory=dict)
    """Some settings of trials."""
    seed: Annotated[Annotated[int, Ge(0)] | None, Rare()] = None
    """Seed of the order of trials."""
    name: str | None = None
    """Name for people; need not be unique."""
    objective: Objective | None = None
    """What is maximised."""
    max_parallel_trials: Annotated[Annotated[int, Ge(1)] | None, Flag("parallel"), Rare()] = None
    """Trials that run at once where there is room for them."""
    loss_gate: Annotated[dict[str, Any], GivenFields(LossGate), _GATED, Rare()] = field(default_factory=dict)
    """Some settings."""

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
    """A change to be gated: what it trains, with which layout, and what it is held to."""

    layout: GivenLayout | None = None
    """Layout of the change, and all that is measured; empty: the best that a sweep of ``space`` finds. A field left out
    takes its default."""
    baseline: Key = "main"
    """Name of the baseline that it is held to, such as a branch; each job has its own under that name."""
    sets_baseline: Annotated[bool, Flag("set-baseline")] = False
    """Whether what is measured becomes that baseline, where the gate passes or there was none."""
    test: Annotated[SequentialTest, _TEST] = field(default_factory=SequentialTest)
    """How strictly rates are compared: they are measured again until that decides, or ``max_runs`` are spent."""
    software: Label = ""
    """What is under test, such as a commit or the digest of an image."""
    reuses: Annotated[bool, Flag("reuse"), Rare()] = True
    """Whether to take the runs of an earlier gate of the same layout, job, settings and software instead of measuring
    again. Of a registered trainer only where ``software`` says what it is."""

    def __post_init__(self) -> None:
        if self.layout is not None and self.space:
            raise InvalidInput("space", self.space, "must be left out when a layout is given")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetuneCreate:
    """A sweep that comes back by the clock, and challenges the layout in use."""

    name: Annotated[Key, Flag("retune")]
    """Name of the retune, unique."""
    cron: str
    """Schedule in five fields: minute, hour, day of month, month, day of week (0 2 * * *: every day at 2:00)."""
    time_zone: str = "UTC"
    """Time zone of the schedule, as the IANA database names it."""
    sweep: SweepCreate
    """What every run starts, budget included."""
    incumbent: Annotated[GivenLayout | None, Flag("layout")] = None
    """The layout in use; empty: the fastest that was measured of the job before, else the best that the first run
    finds. A field left out takes its default."""
    searches: Annotated[bool, Flag("search")] = True
    """Whether runs try other layouts; else they only measure the incumbent."""
    test: Annotated[SequentialTest, _TEST] = field(default_factory=SequentialTest)
    """How strictly runs are compared."""
    on_new_environment: Annotated[bool, Rare()] = False
    """Also run when torch, the driver or the kernel of this machine has changed."""
    on_new_links: Annotated[bool, Rare()] = False
    """Also run when a check of the stored cluster, or its description, says that links are not as they were in the last
    run. That run holds the incumbent to nothing that it reached before."""
    adopts: Annotated[bool, Flag("adopt")] = False
    """Whether to take a better layout for the incumbent without asking."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """What becomes the incumbent."""

    layout: GivenLayout | None = None
    """Layout to put into use; empty: the better layout that the last run found. A field left out takes its default. Its
    next run measures what it is held to; the incumbent itself, named here, is from then on held to what it reaches
    now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerStudyCreate(JobRequest):
    """A study to start: which optimizer, numbers, batch and data-parallel degree come to a target loss fastest."""

    layout: GivenLayout
    """Layout that the model is trained with; a field left out takes its default. Candidates differ from it in
    data-parallel ranks alone."""
    target_loss: Annotated[float, Gt(0)]
    """Loss at which training is done, as the mean over ``window_sequences`` sequences."""
    window_sequences: Annotated[int, Ge(1), Rare()] = 64
    """Over how many sequences losses are averaged, whatever the batch."""
    space: Annotated[OptimizerSpace, AsJson(_OPTIMIZERS)] = field(default_factory=OptimizerSpace)
    """Settings to try."""
    budget: Annotated[StudyBudget, _STOP] = field(default_factory=StudyBudget)
    """When the study ends."""
    prunes: Annotated[bool, Flag("prune"), Rare()] = True
    """Whether candidates end early that can no longer lie on the front, or whose loss lies above the others'."""
    trial: Annotated[TrialSettings, _AS_JSON, Rare()] = field(default_factory=TrialSettings)
    """How long a trial may take, and what clips its gradients; the study says how many steps it runs."""
    seed: Annotated[int, Ge(0), Rare()] = 0
    """Seed of the candidates."""
    name: str = ""
    """Name for people; need not be unique."""
