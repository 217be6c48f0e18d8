"""Sweep: the request for trials of many layouts, its budget, and what an operator changed on the way."""

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
from autotuner.core.convergence_gate import LossGate
from autotuner.core.errors import InvalidInput
from autotuner.core.fault_trace import FaultTrace, at_worst, require_links
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.model import ModelSize
from autotuner.core.objective import Objective, require_told
from autotuner.core.prediction import Prediction
from autotuner.core.run import Lease, Run, RunState, StopReason, SweepEnd
from autotuner.core.space import SearchSpace
from autotuner.core.trial import ScaledTrial, Trial, TrialState, Waiting
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
    """A trial that is to be run again."""

    number: CountFromZero
    """The trial's."""
    num_runs: Count
    """How many trials of its layout there will then be that have ended, this one and all others of it."""


@value
class Interventions:
    """What people changed of a sweep since they asked for it."""

    idle_since: float | None = None
    """Since when it is paused, or waits after a pause or an end, though it had begun; None: it is not."""
    idle_s: float = 0.0
    """Seconds that it lay idle so before; the budget of time does not count them."""
    num_reopened: int = 0
    """How often it went on after an end."""
    reruns: tuple[Rerun, ...] = ()
    """Trials that were to be run again, whether they have been or not."""
    ended: SweepEnd | None = None
    """How its search ended, where it was reopened only to run trials again; None: it searches."""

    def worked_s(self, started_at: float | None, until: float) -> float:
        """Seconds since its start in which it did not lie idle."""
        if started_at is None:
            return 0.0
        end = until if self.idle_since is None else min(until, self.idle_since)
        return max(0.0, end - started_at - self.idle_s)


@value
class Prospects:
    """What is left to search, as of the last trial that was chosen or of the end."""

    num_candidates: CountFromZero
    """Legal layouts that the sweep may try, each of them predicted."""
    num_fitting: CountFromZero
    """Those of them that are predicted to fit in memory."""
    expected_gain: NonNegative | None
    """By which fraction one more trial is expected to raise the best value, or the hypervolume of the front; 0 where
    none is worth its while; None before anything was measured."""


def job_key(request: SweepRequest) -> str:
    """Content key of what trains, on what, by what; space, budget, trial settings and versions have no part in it.

    Constants of predictions have none either, nor measured peaks: a new profile or a busier hour changes these and not
    the job. The name of a cluster has, since two of one kind are not equally fast. What is as it is by default has
    none, so that a field of a later release leaves the keys of older jobs as they are.
    """
    job, few = request.job, request.trial_cluster
    hardware = [_hardware(job.cluster), None if few is None else _hardware(few)]
    model = {name: value for name, value in without_defaults(job.model).items() if name != "name"}
    about = [model, without_defaults(job.workload), *hardware, without_defaults(request.trainer)]
    return content_key(*about, job.stack.name)


def _hardware(cluster: Cluster) -> dict[str, Any]:
    """What of a cluster stays as it is when it is measured again."""
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
    """When to stop; the first limit ends the sweep, time and accelerator-hours also in the middle of a trial."""

    num_trials: Count = 20
    """Largest number of trials, however they end."""
    wall_clock_s: Annotated[
        Positive | None, Flag("minutes"), Typed(read_minutes, written_minutes, "in minutes"), Caption("Time"), _NO_LIMIT
    ] = None
    """Wall clock, from the first trial's start."""
    accelerator_hours: Annotated[Positive | None, _NO_LIMIT] = None
    """Accelerator-hours of trials and convergence gates together."""
    patience: Annotated[Count | None, Caption("Trials without a better one"), _NO_LIMIT] = None
    """Stop after so many trials in a row that did not beat the best by 1 %; None: never."""
    prune_below: Annotated[Share, _AS_SHARE, Caption("End trials below")] = 0.5
    """End a trial early whose measured steps stay below this fraction of the best value so far (0: never)."""
    min_gain: Annotated[Share, _AS_SHARE, Caption("Stop below a gain of")] = 0.01
    """Stop when no untried layout is expected to improve the best value by this fraction (0: never)."""


@value
class SweepRequest:
    """What a caller asks for, with every name resolved."""

    job: Job
    space: SearchSpace = field(default_factory=SearchSpace)
    budget: Budget = field(default_factory=Budget)
    trial: TrialSettings = field(default_factory=TrialSettings)
    seed: CountFromZero = 0
    name: str = ""
    objective: Objective = field(default_factory=Objective)
    """What is maximised."""
    max_parallel_trials: Count = 1
    """Trials that run at once where the launcher has room for them; more end a sweep sooner, and each is chosen knowing
    less."""
    loss_gate: LossGate = field(default_factory=LossGate)
    """How layouts that change the mathematics earn the first rank."""
    trainer: Trainer | None = None
    """What runs as a trial; None: our own decoder."""
    trial_cluster: Cluster | None = None
    """Where trials run, on fewer ranks than the job has, of which each stands for a layout of the job; None: on the
    job's own cluster."""
    challenge: Challenge | None = None
    """What is measured again and again beside the search, to be compared; None: nothing is."""
    uses_history: bool = True
    """Whether trials that were stored before, of this job and of others on such hardware, teach it."""
    fault_trace: FaultTrace | None = None
    """What befalls the cluster's links in further steps of every trial; layouts are ranked by what they reach under it.
    None: nothing does."""

    def __post_init__(self) -> None:
        if self.trial_cluster is not None:
            _require_part(self.trial_cluster, self.job.cluster, self.challenge)
        if self.trainer is not None and self.trial.proxy_layers_per_stage:
            rule = "must be left out: a registered trainer trains the model that its operator gave it, whole"
            raise InvalidInput("trial.proxy_layers_per_stage", list(self.trial.proxy_layers_per_stage), rule, "[]")
        _require_norm(self.trial, self.space, self.challenge)
        if self.fault_trace is not None:
            require_links(self.fault_trace, self.job.cluster)
            _require_whole_decoder(self)
        elif self.objective.under_faults:
            raise InvalidInput("objective.under_faults", True, "needs a fault_trace that layouts run under", False)
        require_told(self.objective, self.job.cluster, has_trace=self.fault_trace is not None)

    @property
    def trial_job(self) -> Job:
        """The job as a trial meets it: a rank has the accelerator's memory, or the trial's own budget if it is less."""
        return replace(self.job, cluster=self._within_budget(self.job.cluster))

    @property
    def legal_job(self) -> Job:
        """The job whose rules layouts must keep: the trial's, on links as they are at their worst under the trace."""
        return at_worst(self.trial_job, self.fault_trace)

    @property
    def runs_on(self) -> Cluster:
        """The cluster that trials run on."""
        return self.trial_cluster or self.job.cluster

    @property
    def trial_timeout_s(self) -> float:
        """Wall clock of a trial from launch to the last report, the steps of the fault trace included."""
        num_steps = 0 if self.fault_trace is None else self.fault_trace.num_steps
        return self.trial.timeout_s + num_steps * self.trial.faulty_step_timeout_s

    def job_of(self, scaled: ScaledTrial | None) -> Job:
        """What a trial runs, as a job: its own, or that of the proxy trial that stands for its layout."""
        return self.job if scaled is None or self.trial_cluster is None else scaled.job(self.job, self.trial_cluster)

    @property
    def small_cluster(self) -> Cluster | None:
        """Where trials run that stand for layouts of a larger job, with the memory that a rank of theirs may use."""
        return None if self.trial_cluster is None else self._within_budget(self.trial_cluster)

    def _within_budget(self, cluster: Cluster) -> Cluster:
        memory_bytes = min(cluster.accelerator.memory_bytes, self.trial.memory_budget_bytes or math.inf)
        return replace(cluster, accelerator=replace(cluster.accelerator, memory_bytes=int(memory_bytes)))


def _require_part(few: Cluster, many: Cluster, challenge: Challenge | None) -> None:
    """Return if trials on one cluster can stand for layouts of the other.

    Raises:
        InvalidInput: It has no fewer ranks, or other accelerators; or layouts are to be compared, and what proxy trials
            say of two of them at full size is off by what the model is off, however often they run.
    """
    if few.accelerator.name != many.accelerator.name:
        rule = f"must have the accelerators of the cluster that the sweep is for, {many.accelerator.name}"
        raise InvalidInput("trial_cluster", few.accelerator.name, rule, many.accelerator.name)
    if few.world_size >= many.world_size:
        rule = f"must have fewer accelerators than the {many.world_size} that the sweep is for"
        raise InvalidInput("trial_cluster", few.world_size, rule, many.world_size // 2 or None)
    if challenge is not None:
        rule = (
            "must be left out where an incumbent or a baseline is compared: proxy trials tell estimates, and running "
            f"them again makes these no surer; take {few.name} for the cluster itself to compare layouts there"
        )
        raise InvalidInput("trial_cluster", few.name, rule)


def _require_norm(trial: TrialSettings, space: SearchSpace, challenge: Challenge | None) -> None:
    """Return if trials can clip gradients in every way that may be tried.

    Raises:
        InvalidInput: One is before their reduction, and trials clip to no norm.
    """
    incumbent = challenge.incumbent if challenge else None
    values = space.values("gradient_clip")
    clips = [one for one in GradientClip if values is None or one in values]
    try:
        trial.require_norm([*clips, incumbent.gradient_clip] if incumbent else clips)
    except InvalidInput as error:
        raise error.under("trial") from error


def _require_whole_decoder(request: SweepRequest) -> None:
    """Return if trials run what they are asked of, by our own decoder, whose sends and collectives can be slowed down.

    Raises:
        InvalidInput: A registered trainer runs, or less than the job.
    """
    trace = str(request.fault_trace)
    if request.trainer is not None:
        rule = f"must be left out: only our own decoder's links can be slowed down, not those of {request.trainer.name}"
        raise InvalidInput("fault_trace", trace, rule)
    if request.challenge is not None:
        rule = "must be left out where an incumbent or a baseline is compared: these runs are of links as they are"
        raise InvalidInput("fault_trace", trace, rule)
    if request.trial_cluster is not None:
        rule = f"must be left out: {request.trial_cluster.name} has other links than the cluster that the sweep is for"
        raise InvalidInput("fault_trace", trace, rule)
    if request.trial.proxy_layers_per_stage:
        rule = "must be left out where few layers run: how much delay a stage hides depends on how long it computes"
        raise InvalidInput("fault_trace", trace, rule)


@value
class Demand:
    """What is asked of a sweep that people may change while it runs."""

    budget: Budget
    reruns: tuple[Rerun, ...] = ()
    """Trials to be run again, whether they have been or not."""
    ended: SweepEnd | None = None
    """How its search ended, where nothing but these is asked for; None: it searches."""


@value
class SweepResult:
    """Why a sweep ended, beside the sentence that its run holds."""

    reason: StopReason
    prospects: Prospects | None = None
    """What its search expected of going on. None: it did not search, or that is not known."""


@value
class SweepRun(Run):
    """The run of a sweep: where it stands, what was asked for first, and what is asked of it now."""

    kind: Literal["sweep"] = "sweep"
    request: SweepRequest
    demand: Demand
    result: SweepResult | None = None
    """None until it is finished."""


@value
class Sweep:
    """A sweep as it is stored."""

    id: str
    request: SweepRequest
    """As it runs: with the budget that it has now."""
    state: RunState
    created_at: float
    started_at: float | None = None
    finished_at: float | None = None
    cancel_requested: bool = False
    stop_reason: StopReason | None = None
    stop_detail: str = ""
    """The reason with its numbers, as a sentence."""
    created_by: str = ""
    """Name of the caller who asked for it; empty where the service asks nobody."""
    pause_requested: bool = False
    """Its worker is to give it back, and nobody takes it until somebody asks for it again."""
    lease: Lease | None = None
    """Of the worker that holds it, while one does."""
    interventions: Interventions = field(default_factory=Interventions)
    """What people changed of it since they asked for it."""
    prospects: Prospects | None = None
    """What its search expects of going on, as of the last trial that it chose or of its end; None before, and in
    records older than this field."""

    @property
    def owner(self) -> str | None:
        """Return the name of the worker that holds it."""
        return None if self.lease is None else self.lease.owner

    @property
    def demand(self) -> Demand:
        """What is asked of it now."""
        changed = self.interventions
        return Demand(budget=self.request.budget, reruns=changed.reruns, ended=changed.ended)


@value
class BestSoFar:
    """A trial that was better than all of lower numbers: from its number on, the best that a sweep knew."""

    number: int
    value: float
    """What the objective says of it."""


@value
class Progress:
    """How much of each budget of a sweep is spent."""

    fraction: float
    """The budget nearest its end, 0..1; 1 for a finished sweep."""
    num_trials: int
    """Trials that ran, but for repeats."""
    elapsed_s: float
    """Since the sweep started, until now or its end, but for when it was paused or finished before."""
    accelerator_hours: float
    """Of all trials and loss gates until now: run time x ranks."""
    remaining_s: float | None = None
    """Until the budget nearest its end is spent, if it goes on to be spent as fast as until now; None where the sweep
    does not run, or has spent nothing yet. A sweep ends sooner where nothing is left to gain."""

    @classmethod
    def of(
        cls, budget: Budget, state: RunState, *, num_trials: int, elapsed_s: float, accelerator_hours: float
    ) -> Progress:
        """Return how far a sweep is that spent so much."""
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
    """A sweep as a list of sweeps shows it: counted and summed where it is stored, without reading its trials."""

    id: str
    name: str
    model: str
    """Name of the model."""
    cluster: str
    """Name of the cluster."""
    trial_cluster: str | None
    """Name of the smaller cluster that trials run on; None where that is the job's own. With one, the best value and
    MFU are estimates."""
    engine: str
    """Name of the engine that runs its trials; ``local``: the machine that runs the sweep."""
    state: RunState
    created_at: float
    """Epoch seconds, as are the next two."""
    started_at: float | None
    finished_at: float | None
    cancel_requested: bool
    """The end was asked for; a running trial is being stopped."""
    pause_requested: bool = False
    """A pause was asked for; a running trial is being stopped."""
    stop_reason: StopReason | None
    """None until the sweep is finished."""
    stop_detail: str
    """The reason with its numbers, as a sentence."""
    created_by: str = ""
    """Name of the caller who asked for it; empty where the service asks nobody."""
    num_reopened: int = 0
    """How often it went on after an end."""
    waiting: Waiting | None = None
    """Why nobody works on it though its state is ``running``, and since when: its worker died, say. None where somebody
    does. A hint for people, since it compares two clocks: workers take a sweep over by their own (``LeaseWatch``)."""
    budget: Budget
    objective: Objective
    progress: Progress
    num_trials: Mapping[TrialState, int]
    """Trials by state; states without any are left out."""
    num_repeats: int = 0
    """Those among them that ran a layout again and came to an end, which no budget counts."""
    best_value: float | None
    """What the trial ranked first reached of the objective; None until there is one."""
    best_mfu: float | None
    """MFU of that trial."""
    best_trial_id: str | None = None
    """Its id."""
    best_tokens_per_s: float | None = None
    """Tokens per second of the whole job in that trial."""
    best_relative_error: float | None = None
    """Half the 95 % interval of its step time, as a share of it; None where it is not known."""
    best_so_far: tuple[BestSoFar, ...] = ()
    """Trials that were better than all of lower numbers, with what each reached of the objective."""

    @property
    @derived
    def best_source(self) -> Literal["measured", "estimated", "simulated"]:
        """What the figures of its trials are called: estimates where these ran on a smaller cluster."""
        if self.trial_cluster is not None:
            return "estimated"
        return "simulated" if self.engine == SIMULATED else "measured"


@value
class SweepStanding(SweepOverview):
    """A sweep with everything that was asked of it, and what is known of it now."""

    request: SweepRequest
    """As it runs: every name resolved, every default filled in, with what earlier trials taught of its job's speed."""
    best: Trial | None
    """The trial ranked first; None until there is one."""
    findings: ChallengeFindings | None = None
    """What the runs say that it compares, until now; None where it challenges nothing."""
    interventions: Interventions = field(default_factory=Interventions)
    """What people changed of it since they asked for it."""

    @property
    @derived
    def model_size(self) -> ModelSize:
        """How large the model is."""
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
"""The kinds of events of a sweep, with their meanings."""


@value
class Event:
    """Something that happened to a sweep, in the order it happened."""

    sweep_id: str
    sequence: int
    """Grows by at least 1 from event to event of one sweep; a reader resumes behind the last one seen."""
    at: float
    kind: str
    """One of ``EVENT_KINDS``."""
    data: dict[str, object]
    """Facts for a reader that does not want to ask again: ids, states, numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTrial:
    """Try this layout."""

    number: int
    layout: Layout
    prediction: Prediction
    stored: Trial | None = None
    """The interrupted trial to try again, or None for a new one."""
    scaled: ScaledTrial | None = None
    """What runs in its place, where trials have fewer ranks than their job."""
    repeats: int | None = None
    """Number of the trial whose layout it runs again, to be compared; None: it is the first of its layout."""
    prospects: Prospects | None = None
    """What the search expected when it chose the layout; None where it did not."""
    note: str = ""
    """What who follows should know of the choice; empty where there is nothing special."""
