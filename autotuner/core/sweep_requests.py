"""Requests to start and change sweeps, gates, retunes and optimizer studies, in which objects are given by name."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Any, TypeAlias

from annotated_types import Ge, Gt

from autotuner.core.cluster import Cluster
from autotuner.core.codec import to_plain
from autotuner.core.comparison import SequentialTest
from autotuner.core.convergence_gate import ConvergenceGate
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
"""Most steps under faults in a trial. At 20 ms each they take minutes."""

MAX_FAULTS = 256
"""Most distinct states of links in a fault trace. Each state needs its own predictions for all layouts."""


def _within_limits(trace: FaultTrace) -> FaultTrace:
    """Return the trace if trials can run it in a reasonable time.

    Otherwise raise ``InvalidInput``.
    """
    for name, found, most in (("num_steps", trace.num_steps, MAX_STEPS), ("faults", len(trace.faults), MAX_FAULTS)):
        if found > most:
            raise InvalidInput(name, found, f"must be at most {most} in a fault trace", most)
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
    """A request to start a sweep: its job, the layouts to try, its objective, and the limits that end it."""

    space: Annotated[GivenAxes, Rare()] = field(default_factory=dict)
    """Values that each axis may take; an axis left out takes the default that suits the cluster."""
    budget: Annotated[Budget, _STOP] = field(default_factory=Budget)
    """Limits that end the sweep."""
    trial: Annotated[TrialSettings, Topic("Measuring a trial"), AsJson(_SETTING, beside_fields=True)] = field(
        default_factory=TrialSettings
    )
    """More settings of trials."""
    seed: Annotated[int, Ge(0), Rare()] = 0
    """Seed of the order of trials. The same seed gives the same sequence of trials."""
    name: str = ""
    """Name of the sweep for people; it need not be unique."""
    objective: Objective = field(default_factory=Objective)
    """Objective that the sweep maximises."""
    max_parallel_trials: Annotated[int, Ge(1), Flag("parallel"), Caption("Trials at once"), Rare()] = 1
    """Most trials that run at once if there is room for them."""
    convergence_gate: Annotated[ConvergenceGate, _GATED] = field(default_factory=ConvergenceGate)
    """Convergence gate for layouts that are not numerically equivalent."""
    trainer: Annotated[OnlyNamed[Trainer] | None, Hint("built-in decoder")] = None
    """Name of a registered trainer that runs trials; empty: the product's own decoder."""
    trial_cluster: Annotated[
        Named[Cluster] | None,
        Flag("on"),
        Caption("Run trials on"),
        Hint("the cluster itself"),
        Topic("Trials on a smaller cluster"),
    ] = None
    """Smaller cluster on which trials run, written like ``cluster``; it has fewer of the same accelerators. Each trial
    is then a proxy for a layout of the job on ``cluster``, and layouts are ranked by the estimates from their proxies.
    Null: trials run on ``cluster``."""
    fault_trace: Annotated[GivenFaultTrace | None, Topic("Injected link faults")] = None
    """Faults of the cluster's links that are injected into further steps of every trial, as text or as an object.
    Layouts are then ranked by their results under these faults (``objective.under_faults`` is true). Null: no
    faults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetChange:
    """A request to change the budget of a sweep. Limits that the request leaves out stay as they are."""

    budget: Annotated[GivenLimits, _STOP]
    """Limits that replace the present ones. Each limit holds for the whole sweep, including what it has already used. A
    limit that is left out stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepClone:
    """A request to start a sweep like an existing one. A field that is left out has the value of that sweep."""

    model: Named[TransformerSpec] | None = None
    """Model, written as for a new sweep."""
    cluster: Named[Cluster] | None = None
    """Cluster, written as for a new sweep."""
    workload: Workload | None = None
    space: Annotated[GivenAxes, Rare()] = field(default_factory=dict)
    """Values of the axes to change. With another model or cluster, axes that are left out take the defaults that suit
    them."""
    budget: Annotated[GivenLimits, _STOP] = field(default_factory=dict)
    """Limits to change; the others stay."""
    trial: Annotated[dict[str, Any], GivenFields(TrialSettings), _AS_JSON, Rare()] = field(default_factory=dict)
    """Settings of trials to change; the others stay."""
    seed: Annotated[Annotated[int, Ge(0)] | None, Rare()] = None
    """Seed of the order of trials."""
    name: str | None = None
    """Name of the sweep for people; it need not be unique."""
    objective: Objective | None = None
    """Objective that the sweep maximises."""
    max_parallel_trials: Annotated[Annotated[int, Ge(1)] | None, Flag("parallel"), Rare()] = None
    """Most trials that run at once if there is room for them."""
    convergence_gate: Annotated[dict[str, Any], GivenFields(ConvergenceGate), _GATED, Rare()] = field(
        default_factory=dict
    )
    """Settings of the convergence gate to change; the others stay."""

    @property
    def is_of_same_job(self) -> bool:
        """True if the new sweep has the same model and the same cluster as the sweep that is cloned."""
        return self.model is None and self.cluster is None

    def job_like(self, job: Job) -> Job:
        """Return the job of the new sweep: the given job with the changes of this request.

        All names in the request must have been replaced by objects before. For another cluster, calibration is dropped.

        Args:
            job: Job of the existing sweep.
        """
        return replace(
            job,
            model=job.model if self.model is None else resolved(self.model),
            cluster=job.cluster if self.cluster is None else resolved(self.cluster),
            workload=self.workload or job.workload,
            calibration=job.calibration if self.cluster is None else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GateCreate(SweepCreate):
    """A request for a performance regression gate: it measures a changed layout or software against a baseline."""

    layout: GivenLayout | None = None
    """Layout of the change, which is then the only layout that is measured. A field left out takes its default. Empty:
    the best layout that a sweep of ``space`` finds."""
    baseline: Key = "main"
    """Name of the baseline to compare with, such as a branch. Each job has its own baseline of that name."""
    sets_baseline: Annotated[bool, Flag("set-baseline")] = False
    """Make the measured runs the baseline of that name, if the gate passes or if there was no baseline."""
    test: Annotated[SequentialTest, _TEST] = field(default_factory=SequentialTest)
    """Thresholds of the comparison. Runs are repeated until the test decides or ``max_runs`` is reached."""
    software: Label = ""
    """Software under test, such as a commit or the digest of an image."""
    reuses: Annotated[bool, Flag("reuse"), Rare()] = True
    """Use the runs of an earlier gate of the same layout, job, settings and software instead of measuring again. For a
    registered trainer this needs ``software``."""

    def __post_init__(self) -> None:
        if self.layout is not None and self.space:
            rule = (
                "cannot be used together with layout, which is then the only layout compared; leave out one of the two"
            )
            raise InvalidInput("space", self.space, rule)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetuneCreate:
    """A request for a retune: a sweep that runs on a schedule and looks for better layouts than the layout in use."""

    name: Annotated[Key, Flag("retune")]
    """Unique name of the retune."""
    cron: str
    """Schedule in five fields: minute, hour, day of month, month, day of week (0 2 * * *: every day at 2:00)."""
    time_zone: str = "UTC"
    """Time zone of the schedule, as the IANA database names it."""
    sweep: SweepCreate
    """Sweep that every run starts, including its budget."""
    incumbent: Annotated[GivenLayout | None, Flag("layout")] = None
    """Layout in use. A field left out takes its default. Empty: the fastest layout that was measured for the job
    before, or the best layout that the first run finds."""
    searches: Annotated[bool, Flag("search")] = True
    """Try other layouts. If false, runs only measure the incumbent."""
    test: Annotated[SequentialTest, _TEST] = field(default_factory=SequentialTest)
    """Thresholds of the comparisons."""
    on_new_environment: Annotated[bool, Rare()] = False
    """Run also when torch, the driver or the kernel of this machine has changed."""
    on_new_links: Annotated[bool, Rare()] = False
    """Run also when the cluster's links have changed since the last run, as a check of the stored cluster or its
    description says. That run does not compare the incumbent with earlier results."""
    adopts: Annotated[bool, Flag("adopt")] = False
    """Make a better layout the incumbent without asking a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """A request to make a layout the incumbent (the layout in use) of a retune."""

    layout: GivenLayout | None = None
    """Layout to put into use; a field left out takes its default. Empty: the better layout that the last run found. The
    next run measures a new baseline. If you name the incumbent itself, its present results become the baseline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerStudyCreate(JobRequest):
    """A request for an optimizer study: a search for the optimizer settings that reach a target loss fastest."""

    layout: GivenLayout
    """Layout that the model is trained with; a field left out takes its default. Candidates may change only its number
    of data-parallel ranks."""
    target_loss: Annotated[float, Gt(0)]
    """Target loss, as the mean over ``window_sequences`` sequences. A candidate that reaches it is done."""
    window_sequences: Annotated[int, Ge(1), Rare()] = 64
    """Number of sequences over which losses are averaged, for every batch size."""
    space: Annotated[OptimizerSpace, AsJson(_OPTIMIZERS)] = field(default_factory=OptimizerSpace)
    """Optimizer settings to try."""
    budget: Annotated[StudyBudget, _STOP] = field(default_factory=StudyBudget)
    """Limits that end the study."""
    prunes: Annotated[bool, Flag("prune"), Rare()] = True
    """End a candidate early if it can no longer be on the Pareto front, or if its loss is above the others'."""
    trial: Annotated[TrialSettings, _AS_JSON, Rare()] = field(default_factory=TrialSettings)
    """Timeout of a trial, and the norm that clips its gradients; the study decides the number of steps."""
    seed: Annotated[int, Ge(0), Rare()] = 0
    """Seed that selects the candidates."""
    name: str = ""
    """Name of the study for people; it need not be unique."""
