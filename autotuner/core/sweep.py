"""Sweep: the request for trials of many layouts, its budget, and changes that people made while it ran."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from autotuner.core.amounts import read_minutes, read_share, written_minutes, written_share
from autotuner.core.choices import GradientClip
from autotuner.core.cluster import SIMULATED, Cluster
from autotuner.core.codec import content_key, without_defaults
from autotuner.core.comparison import Challenge, ChallengeFindings
from autotuner.core.convergence_gate import ConvergenceGate
from autotuner.core.errors import InvalidInput
from autotuner.core.fault_trace import FaultTrace, at_worst, require_links
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.model import ModelSize
from autotuner.core.objective import Objective, require_known
from autotuner.core.prediction import Prediction
from autotuner.core.run import Lease, Run, RunState, StopReason, SweepEnd
from autotuner.core.space import SearchSpace
from autotuner.core.trial import ProxyTrial, Trial, TrialState, Waiting
from autotuner.core.trial_spec import Trainer, TrialSettings
from autotuner.core.value import (
    Caption,
    Count,
    CountFromZero,
    Flag,
    Hint,
    NonNegative,
    Positive,
    Share,
    Typed,
    derived,
    value,
)


@value
class Rerun:
    """A request to run a trial of a sweep again, until ``num_runs`` trials of the same layout have finished."""

    number: CountFromZero
    """Number of the trial to run again."""
    num_runs: Count
    """Number of finished trials of the same layout that there will be after this rerun."""


@value
class Interventions:
    """The changes that people made to a sweep after they requested it, such as pauses and reruns."""

    idle_since: float | None = None
    """Time since when the sweep has been idle, in epoch seconds: paused, ended, or waiting to continue; None: it is not
    idle."""
    idle_s: float = 0.0
    """Seconds that the sweep was idle before. The time budget does not count them."""
    num_reopened: int = 0
    """Number of times the sweep was continued after an end."""
    reruns: tuple[Rerun, ...] = ()
    """Trials that a person asked to run again, whether they have run or not."""
    ended: SweepEnd | None = None
    """Earlier end of the sweep's search, if it was reopened only to run trials again; None: the sweep searches."""

    def worked_s(self, started_at: float | None, until: float) -> float:
        """Return the seconds that a sweep has worked so far, without pauses.

        The times between an end of the sweep and its reopening do not count either.

        Args:
            started_at: Start of the sweep in epoch seconds; None: it has not started.
            until: Present time, or the end of the sweep, in epoch seconds.
        """
        if started_at is None:
            return 0.0
        end = until if self.idle_since is None else min(until, self.idle_since)
        return max(0.0, end - started_at - self.idle_s)


@value
class ExpectedImprovement:
    """An estimate of the improvement that more trials would bring to a sweep.

    The sweep makes it anew each time that its search chooses a trial, and at its end.
    """

    num_candidates: CountFromZero
    """Number of legal layouts that the sweep may try. Each of them is predicted."""
    num_fitting: CountFromZero
    """Number of these layouts that are predicted to fit in memory."""
    expected_gain: NonNegative | None
    """Expected relative improvement, by one more trial, of the best value or of the Pareto front's hypervolume; 0 if no
    trial is worthwhile; None before the first measurement."""


def job_key(request: SweepRequest) -> str:
    """Return the content key (a hash) of a sweep's training job. Equal jobs have equal keys.

    Model, workload, hardware, trainer and software stack are part of the key. Search space, budget, trial settings and
    versions are not part of the key. Constants of predictions and measured peaks are not part either, because a new
    profile or a busier hour changes them, but not the job. The name of a cluster is part of the key, because two
    clusters of one kind are not equally fast. Values at their defaults are left out, so that a new field of a later
    release does not change the keys of older jobs.
    """
    job, few = request.job, request.trial_cluster
    hardware = [_hardware(job.cluster), None if few is None else _hardware(few)]
    model = {name: value for name, value in without_defaults(job.model).items() if name != "name"}
    about = [model, without_defaults(job.workload), *hardware, without_defaults(request.trainer)]
    return content_key(*about, job.stack.name)


def _hardware(cluster: Cluster) -> dict[str, Any]:
    """Return the properties of a cluster that stay the same when the cluster is measured again."""
    return {
        "name": cluster.name,
        "accelerator": cluster.accelerator.name,
        "num_nodes": cluster.num_nodes,
        "accelerators_per_node": cluster.accelerators_per_node,
        "intra_node_link": cluster.intra_node_link.name,
        "inter_node_link": cluster.inter_node_link.name,
        "engine": cluster.engine,
        "queue": cluster.queue,
    }


_NO_LIMIT, _AS_SHARE = Hint("no limit"), Typed(read_share, written_share)


@value
class Budget:
    """The limits of a sweep. The sweep ends when it reaches the first of these limits.

    Trials are ended when the limit of time or of accelerator-hours is reached.
    """

    num_trials: Count = 20
    """Most trials of the sweep, however they end."""
    wall_clock_s: Annotated[
        Positive | None,
        Flag("minutes"),
        Typed(read_minutes, written_minutes, "in minutes"),
        Caption("Wall-clock time"),
        _NO_LIMIT,
    ] = None
    """Most wall-clock time, from the start of the first trial."""
    accelerator_hours: Annotated[Positive | None, _NO_LIMIT] = None
    """Most accelerator-hours of trials and convergence gates together."""
    patience: Annotated[Count | None, Caption("Patience, trials"), _NO_LIMIT] = None
    """Number of trials in a row without a gain of 1 % after which the sweep stops; None: it never stops for this
    reason."""
    prune_below: Annotated[Share, _AS_SHARE, Caption("Prune trials below")] = 0.5
    """End a trial early if its measured steps stay below this share of the best value so far (0: never)."""
    min_gain: Annotated[Share, _AS_SHARE, Caption("Stop below gain of")] = 0.01
    """Stop the sweep if no untried layout is expected to improve the best value by this share (0: never)."""


@value
class SweepRequest:
    """A complete request for a sweep, in which every name was replaced by the object that it names."""

    job: Job
    space: SearchSpace = field(default_factory=SearchSpace)
    budget: Budget = field(default_factory=Budget)
    trial: TrialSettings = field(default_factory=TrialSettings)
    seed: CountFromZero = 0
    name: str = ""
    objective: Objective = field(default_factory=Objective)
    """Objective that the sweep maximises."""
    max_parallel_trials: Count = 1
    """Most trials that run at once, if the launcher has room for them. With more, a sweep ends sooner, but each trial
    is chosen with fewer results known."""
    convergence_gate: ConvergenceGate = field(default_factory=ConvergenceGate)
    """Convergence gate for layouts that are not numerically equivalent."""
    trainer: Trainer | None = None
    """Trainer that runs trials; None: the product's own decoder."""
    trial_cluster: Cluster | None = None
    """Smaller cluster on which trials run. Each trial is then a proxy for a layout of the job on its own cluster. None:
    trials run on the job's own cluster."""
    challenge: Challenge | None = None
    """Layouts that are measured repeatedly during the search, to be compared with each other; None: none."""
    uses_history: bool = True
    """Learn from stored trials of earlier sweeps, of this job and of other jobs on similar hardware."""
    fault_trace: FaultTrace | None = None
    """Faults of the cluster's links that are injected into further steps of every trial. Layouts are ranked by their
    results under these faults. None: no faults."""

    def __post_init__(self) -> None:
        if self.trial_cluster is not None:
            _require_part(self.trial_cluster, self.job.cluster, self.challenge)
        if self.trainer is not None and self.trial.proxy_layers_per_stage:
            rule = "must be left out, because a registered trainer always trains its whole model"
            raise InvalidInput("trial.proxy_layers_per_stage", list(self.trial.proxy_layers_per_stage), rule, "[]")
        _require_norm(self.trial, self.space, self.challenge)
        if self.fault_trace is not None:
            require_links(self.fault_trace, self.job.cluster)
            _require_whole_decoder(self)
        elif self.objective.under_faults:
            raise InvalidInput(
                "objective.under_faults", True, "needs a fault_trace for the simulation of faults", False
            )
        require_known(self.objective, self.job.cluster, has_trace=self.fault_trace is not None)

    @property
    def trial_job(self) -> Job:
        """The job of the sweep, with the memory per rank limited to the sweep's memory budget for trials, if any."""
        return replace(self.job, cluster=self._within_budget(self.job.cluster))

    @property
    def legal_job(self) -> Job:
        """The job that decides which layouts are legal: the trials' job, with the worst injected fault of each link."""
        return at_worst(self.trial_job, self.fault_trace)

    @property
    def runs_on(self) -> Cluster:
        """The cluster that trials run on: the trial cluster if there is one, otherwise the cluster of the job."""
        return self.trial_cluster or self.job.cluster

    @property
    def trial_timeout_s(self) -> float:
        """The most seconds that a trial may take from its launch to its last report.

        The time for steps under the sweep's fault trace (injected link faults) is included.
        """
        num_steps = 0 if self.fault_trace is None else self.fault_trace.num_steps
        return self.trial.timeout_s + num_steps * self.trial.faulty_step_timeout_s

    def job_of(self, proxy: ProxyTrial | None) -> Job:
        """Return the job that a trial runs.

        Args:
            proxy: The trial's proxy trial (a small trial that stands for a layout of the sweep's job); None: the trial
                runs the sweep's own job.
        """
        return self.job if proxy is None or self.trial_cluster is None else proxy.job(self.job, self.trial_cluster)

    @property
    def small_cluster(self) -> Cluster | None:
        """The cluster of proxy trials, with the memory per rank limited to the sweep's memory budget.

        A proxy trial is a small trial that stands for a full-size layout. None means that the sweep has no proxy
        trials.
        """
        return None if self.trial_cluster is None else self._within_budget(self.trial_cluster)

    def _within_budget(self, cluster: Cluster) -> Cluster:
        memory_bytes = min(cluster.accelerator.memory_bytes, self.trial.memory_budget_bytes or math.inf)
        return replace(cluster, accelerator=replace(cluster.accelerator, memory_bytes=int(memory_bytes)))


def _require_part(few: Cluster, many: Cluster, challenge: Challenge | None) -> None:
    """Check that trials on the smaller cluster can be proxies for layouts on the larger one.

    Raises:
        InvalidInput: The trial cluster does not have fewer ranks, or it has other accelerators; or ``challenge`` is
            given. Repeated proxy trials cannot compare two layouts at full size, because the error of the cost model
            stays.
    """
    if few.accelerator.name != many.accelerator.name:
        rule = f"must have the same accelerators as the cluster that the sweep is for, {many.accelerator.name}"
        raise InvalidInput("trial_cluster", few.accelerator.name, rule, many.accelerator.name)
    if few.world_size >= many.world_size:
        rule = f"must have fewer accelerators than the cluster that the sweep is for, which has {many.world_size}"
        raise InvalidInput("trial_cluster", few.world_size, rule, many.world_size // 2 or None)
    if challenge is not None:
        rule = (
            "cannot be used in a comparison with an incumbent (layout in use) or a baseline, because estimates from a "
            f"smaller cluster do not become more certain with more runs; to compare layouts on {few.name}, use it as "
            "the cluster"
        )
        raise InvalidInput("trial_cluster", few.name, rule)


def _require_norm(trial: TrialSettings, space: SearchSpace, challenge: Challenge | None) -> None:
    """Check that trials set a gradient norm if a layout may clip gradients early.

    Raises:
        InvalidInput: The space or the challenge has a layout that clips before the reduction, but trials set no norm.
    """
    incumbent = challenge.incumbent if challenge else None
    values = space.values("gradient_clip")
    clips = [one for one in GradientClip if values is None or one in values]
    try:
        trial.require_norm([*clips, incumbent.gradient_clip] if incumbent else clips)
    except InvalidInput as error:
        raise error.under("trial") from error


def _require_whole_decoder(request: SweepRequest) -> None:
    """Check that trials can inject faults: they must run the whole job with the product's own decoder.

    Raises:
        InvalidInput: A registered trainer runs the trials, or they run only a part of the job.
    """
    trace = str(request.fault_trace)
    if request.trainer is not None:
        rule = (
            f"cannot be used together with the trainer {request.trainer.name}, because only the product's own trial "
            "job can slow its links down; leave out one of the two"
        )
        raise InvalidInput("fault_trace", trace, rule)
    if request.challenge is not None:
        rule = (
            "cannot be used in a comparison with an incumbent (layout in use) or a baseline, because such a "
            "comparison needs the real links, without injected faults"
        )
        raise InvalidInput("fault_trace", trace, rule)
    if request.trial_cluster is not None:
        rule = (
            f"cannot be used together with a trial_cluster, because {request.trial_cluster.name} has other links than "
            "the cluster that the sweep is for; leave out one of the two"
        )
        raise InvalidInput("fault_trace", trace, rule)
    if request.trial.proxy_layers_per_stage:
        rule = (
            "cannot be used together with proxy_layers_per_stage, because with fewer layers a stage hides less of the "
            "delay; leave out one of the two"
        )
        raise InvalidInput("fault_trace", trace, rule)


@value
class Demand:
    """The parts of a sweep's request that people may change while the sweep runs: its budget and its reruns."""

    budget: Budget
    reruns: tuple[Rerun, ...] = ()
    """Trials that a person asked to run again, whether they have run or not."""
    ended: SweepEnd | None = None
    """Earlier end of the search, if nothing but reruns is requested; None: the sweep searches."""


@value
class SweepResult:
    """The reason why a sweep ended, as a word. The run of the sweep has it as a sentence."""

    reason: StopReason
    expected_improvement: ExpectedImprovement | None = None
    """Improvement that further trials promised at the end of the search. None: the sweep did not search, or it is
    unknown."""


@value
class SweepRun(Run):
    """The durable run (background work that survives restarts) of a sweep.

    ``request`` never changes. ``demand`` has the parts of it that people may change, with their present values.
    """

    kind: Literal["sweep"] = "sweep"
    request: SweepRequest
    demand: Demand
    result: SweepResult | None = None
    """Result of the sweep; None until it is finished."""


@value
class Sweep:
    """A sweep as it is stored: its request, its state, and the changes that people and workers made to it."""

    id: str
    request: SweepRequest
    """Request with its present values, such as a budget that was changed."""
    state: RunState
    created_at: float
    started_at: float | None = None
    finished_at: float | None = None
    cancel_requested: bool = False
    stop_reason: StopReason | None = None
    stop_detail: str = ""
    """Reason of the end with its numbers, as a sentence."""
    created_by: str = ""
    """Name of the caller who requested the sweep; empty if the service has no login."""
    pause_requested: bool = False
    """True if the sweep shall pause: its worker releases it, and no worker takes it until a person resumes it."""
    lease: Lease | None = None
    """Lease of the worker that holds the sweep; None if no worker holds it."""
    interventions: Interventions = field(default_factory=Interventions)
    """Changes that people made after the sweep was requested."""
    expected_improvement: ExpectedImprovement | None = None
    """Improvement that further trials promise, as of the last chosen trial or the end; None before the first trial, and
    in records older than this field."""

    @property
    def owner(self) -> str | None:
        """The name of the worker that runs the sweep; None if no worker does."""
        return None if self.lease is None else self.lease.owner

    @property
    def demand(self) -> Demand:
        """The parts of the request that people may change, with their present values."""
        changed = self.interventions
        return Demand(budget=self.request.budget, reruns=changed.reruns, ended=changed.ended)


@value
class BestSoFar:
    """A trial that was better than all trials before it, with the value of the objective that it reached."""

    number: int
    value: float
    """Value of the objective that the trial reached."""


@value
class Progress:
    """The parts of its budget that a sweep has used so far: number of trials, time and accelerator-hours."""

    fraction: float
    """Used share of the budget that is nearest to its end, 0..1; 1 for a finished sweep."""
    num_trials: int
    """Number of trials that ran, without repeats of the same layout."""
    elapsed_s: float
    """Seconds from the start of the sweep until now or its end, without pauses and without the time between an end and
    a reopening."""
    accelerator_hours: float
    """Accelerator-hours of all trials and convergence gates so far: run time x ranks."""
    remaining_s: float | None = None
    """Seconds until the first budget is used up, at the present rate; None if the sweep does not run or has used
    nothing yet. A sweep may end sooner if no gain is expected."""

    @classmethod
    def of(
        cls, budget: Budget, state: RunState, *, num_trials: int, elapsed_s: float, accelerator_hours: float
    ) -> Progress:
        """Return the progress of a sweep.

        Args:
            budget: Limits of the sweep.
            state: State of the sweep.
            num_trials: Number of trials that ran, without repeats.
            elapsed_s: Seconds that the sweep worked, without pauses.
            accelerator_hours: Accelerator-hours of all trials and convergence gates so far.
        """
        shares = [num_trials / budget.num_trials]
        if budget.wall_clock_s is not None:
            shares.append(elapsed_s / budget.wall_clock_s)
        if budget.accelerator_hours is not None:
            shares.append(accelerator_hours / budget.accelerator_hours)
        spent = min(1.0, max(shares))
        return cls(
            fraction=1.0 if state.is_finished else spent,
            num_trials=num_trials,
            elapsed_s=elapsed_s,
            accelerator_hours=accelerator_hours,
            remaining_s=elapsed_s * (1 - spent) / spent if state is RunState.RUNNING and spent > 0 else None,
        )


@value
class SweepOverview:
    """A sweep as it is shown in a list. The store computes its numbers without reading its trials."""

    id: str
    name: str
    model: str
    """Name of the model."""
    cluster: str
    """Name of the cluster."""
    trial_cluster: str | None
    """Name of the smaller cluster that trials run on; None if they run on the job's own cluster. With a smaller
    cluster, the best value and MFU are estimates."""
    engine: str
    """Name of the engine that runs the trials; ``local``: the machine that runs the sweep."""
    state: RunState
    created_at: float
    """Time when the sweep was created, in epoch seconds. The next two times are in epoch seconds too."""
    started_at: float | None
    finished_at: float | None
    cancel_requested: bool
    """True if a person cancelled the sweep. A running trial is then being stopped."""
    pause_requested: bool = False
    """True if a person paused the sweep. A running trial is then being stopped."""
    stop_reason: StopReason | None
    """Reason why the sweep ended; None until it is finished."""
    stop_detail: str
    """Reason of the end with its numbers, as a sentence."""
    created_by: str = ""
    """Name of the caller who requested the sweep; empty if the service has no login."""
    num_reopened: int = 0
    """Number of times the sweep was continued after an end."""
    waiting: Waiting | None = None
    """Reason why no worker works on the sweep although its state is ``running``, such as a dead worker, and since when;
    None otherwise. It is only a hint for people, because it compares the clocks of two machines. Workers take over a
    sweep by their own clocks (``LeaseWatch``)."""
    budget: Budget
    objective: Objective
    progress: Progress
    num_trials: Mapping[TrialState, int]
    """Number of trials in each state; states without trials are left out."""
    num_repeats: int = 0
    """Number of finished trials that ran a layout again. No budget counts them."""
    best_value: float | None
    """Value of the objective for the best trial; None until there is one."""
    best_mfu: float | None
    """MFU of the best trial."""
    best_trial_id: str | None = None
    """Id of the best trial."""
    best_tokens_per_s: float | None = None
    """Tokens per second of the whole job in the best trial."""
    best_relative_error: float | None = None
    """Half of the 95 % interval of the best trial's step time, as a share of the step time; None if it is not known."""
    best_so_far: tuple[BestSoFar, ...] = ()
    """Trials that were better than all trials with lower numbers, with their values."""
    tags: tuple[str, ...] = ()
    """Tags of the comments on the sweep and on its trials, in alphabetical order. A tag in upper and in lower case is
    one tag."""

    @property
    @derived
    def best_source(self) -> Literal["measured", "estimated", "simulated"]:
        """The word that tells where the sweep's results come from: ``measured``, ``estimated`` or ``simulated``.

        Results are estimated if trials ran on a smaller cluster than the cluster of the job.
        """
        if self.trial_cluster is not None:
            return "estimated"
        return "simulated" if self.engine == SIMULATED else "measured"


@value
class SweepStanding(SweepOverview):
    """A sweep with its complete request and its results so far, such as its best trial."""

    request: SweepRequest
    """Request with its present values: every name resolved, every default filled in, and the speed of the hardware that
    was learnt from earlier trials."""
    best: Trial | None
    """Best trial; None until there is one."""
    findings: ChallengeFindings | None = None
    """Results so far of the runs that the sweep compares; None without a challenge."""
    interventions: Interventions = field(default_factory=Interventions)
    """Changes that people made after the sweep was requested."""

    @property
    @derived
    def model_size(self) -> ModelSize:
        """The size of the model that the sweep is for."""
        return ModelSize.of(self.request.job.model)


EVENT_KINDS: Mapping[str, str] = {
    "sweep.created": "The sweep is stored and queued.",
    "sweep.started": "A worker runs the sweep.",
    "sweep.resumed": "Another worker took the sweep over, or a worker runs it again after a pause.",
    "sweep.paused": "The sweep is paused, and its trial is ended.",
    "sweep.queued": "The sweep is queued again, after a pause or after its end.",
    "sweep.changed": "Its `budget` changed, or trials are to run again (`reruns`).",
    "sweep.estimated": "The step times at full size that proxy trials predict, by trial. It follows each measurement.",
    "sweep.finished": "The sweep ended. Events follow it only if the sweep is opened again.",
    "trial.started": "A trial starts.",
    "trial.step": "A step of the trial ended. It carries the measured `step_time_s` and `mfu`.",
    "trial.link_event": "A running pipeline found a slow link or rank (`kind`, `stages`, `delay_s`), or was planned "
    "anew (`warm_up`, `delegated`, `cost_s`).",
    "trial.note": "A sentence for the people who watch, such as the reason why a layout is tried that may not fit.",
    "trial.waiting": "The trial waits for devices. Waiting takes no accelerator-hours.",
    "trial.resumed": "The trial has its devices and goes on.",
    "trial.job": "The job of an engine that runs the trial changed (`engine`, `handle`, `phase`, `detail` and times).",
    "trial.gated": "The convergence gate of the trial ended, with its `outcome` and `detail`.",
    "trial.finished": "The trial ended, with its `state`, and with a `stop_reason` if it was stopped.",
    "trial.interrupted": "The service or a worker ended during the trial. The trial will run again.",
}
"""Kinds of events of a sweep, with their meanings."""


@value
class Event:
    """One event of a sweep, such as the start of a trial. The events of a sweep are numbered in order."""

    sweep_id: str
    sequence: int
    """Number of the event. It grows from event to event of one sweep, so that a reader can resume after the last event
    it has seen."""
    at: float
    kind: str
    """Kind of the event, one of ``EVENT_KINDS``."""
    data: dict[str, object]
    """Facts of the event: ids, states and numbers, so that readers need no further request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTrial:
    """An instruction of the search to run a trial of a layout."""

    number: int
    layout: Layout
    prediction: Prediction
    stored: Trial | None = None
    """Interrupted trial that is tried again; None for a new trial."""
    proxy: ProxyTrial | None = None
    """Proxy trial that runs instead, if trials run on fewer ranks than the job."""
    repeats: int | None = None
    """Number of the trial whose layout this trial runs again for a comparison; None: the layout has not run before."""
    expected_improvement: ExpectedImprovement | None = None
    """Improvement that trials promised when the search chose the layout; None if the search did not choose it."""
    note: str = ""
    """Remark about the choice of the layout, for people who follow the sweep; empty if there is none."""
