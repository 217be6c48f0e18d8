"""The composition root: the only module that knows the concrete store, launchers and clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from importlib.metadata import version
from typing import Any, TypeAlias

from autotuner.catalog.hardware import load_accelerator
from autotuner.catalog.models import models
from autotuner.core.access import NOBODY_ASKED, Caller
from autotuner.core.cluster import LOCAL, SIMULATED, Cluster
from autotuner.core.cluster_check import ClusterCheck, check_engine
from autotuner.core.documents import extended, violation
from autotuner.core.errors import Conflict, InvalidInput, NotAllowed, NotFound
from autotuner.core.health import EngineStanding, WorkerStanding
from autotuner.core.model import TransformerSpec
from autotuner.core.named import KINDS, Described, StoredNames
from autotuner.core.profile import DeviceProfile
from autotuner.core.run import Run, Stop
from autotuner.core.study import StudyRun
from autotuner.core.sweep import Sweep, SweepRequest, SweepStanding
from autotuner.core.sweep_requests import GateCreate, OptimizerStudyCreate, SweepCreate
from autotuner.core.trial_spec import Trainer, TrainerOffer
from autotuner.core.upkeep import GateRun, RegressionGateRequest, Retune, RetuneRequest
from autotuner.door import Autotuner, is_this_machine
from autotuner.launch.contract import Launcher
from autotuner.launch.devices import DevicePool
from autotuner.launch.engines.launcher import EngineLauncher
from autotuner.launch.engines.registration import (
    EngineRegistration,
    ask_engines,
    check_engine_named,
    read_engines,
)
from autotuner.launch.forks import Forks
from autotuner.launch.launchers import Launchers
from autotuner.launch.local import LocalLauncher
from autotuner.launch.node_processes import NodeProcesses
from autotuner.launch.simulated import SimulatedLauncher
from autotuner.launch.this_machine import software_of_this_machine
from autotuner.launch.trainers.registration import RegisteredTrainer, read_trainers
from autotuner.runs.challenge import findings
from autotuner.runs.clock import Clock, SystemClock
from autotuner.runs.gate_run import ask_gate, baseline_of
from autotuner.runs.retuning import Retuning
from autotuner.search.compute import ComputeService, Inline
from autotuner.search.planning.optimizer_study import starts_of, with_trials
from autotuner.search.planning.request import PlanRequest
from autotuner.search.preview import Previews, SweepPreview, require_layouts, require_modest
from autotuner.search.results.sweep_tables import SweepTables
from autotuner.search.space.trainers import offered_by
from autotuner.search.upkeep.gate import gate_sweep
from autotuner.service.authentication import Tokens
from autotuner.service.background import Background
from autotuner.service.compute import ComputePool, Limits
from autotuner.service.networks import read_networks
from autotuner.service.observing import configure_logs
from autotuner.service.plans import Plans
from autotuner.service.posting import WEBHOOK_ALLOW, Poster
from autotuner.service.settings import Settings
from autotuner.service.webhooks import Webhooks
from autotuner.store.cache import KeptTrials
from autotuner.store.options import Page
from autotuner.store.sql import Store, open_store

Startable: TypeAlias = SweepCreate | SweepRequest | OptimizerStudyCreate | GateCreate | ClusterCheck | PlanRequest
"""Requests that start a run that callers can read and stop."""

_UNHELD = dict.fromkeys(("gate", "retune"), "cancelled while no worker ran it")
"""Reason that a run gets, by kind, when it is cancelled while no worker holds it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class App(Autotuner):
    """The whole application: it answers the questions of the REST API, the dashboard and the commands."""

    settings: Settings
    launcher: Launcher
    clock: Clock
    trainers: Mapping[str, RegisteredTrainer] = field(default_factory=dict)
    """Trainers that an operator registered to run as a trial, by name."""
    engines: Mapping[str, EngineRegistration] = field(default_factory=dict)
    """Engines that an operator registered to run trials elsewhere, by name."""
    engine_launchers: Mapping[str, EngineLauncher] = field(default_factory=dict)
    """Launchers of the registered engines, by name; ``launcher`` combines them."""
    poster: Poster = field(default_factory=Poster)
    """Sends announcements to the URLs of webhooks."""

    # ------------------------------------------------------------------ names
    def save(self, described: Described, caller: Caller) -> Described:
        """Store a caller's model or cluster under its name, so that all callers can use it, and return it.

        Raises:
            InvalidInput: The name of the cluster means this machine, or its engine or queue is not registered. A
                service that runs no trials and has no registered engines does not check the engine and the queue.
            Conflict: The name already belongs to the catalog (such as ``h100:64``), or something different is stored
                under it.
        """
        name = described.name
        if isinstance(described, Cluster):
            if is_this_machine(name):
                raise InvalidInput("name", name, "is the name of this machine; choose another name for the cluster")
            self._check_engine(described)
        if _is_catalogued(described):
            said = f"{name} is already a {KINDS[type(described)]} of the catalog"
            raise Conflict(f"{said}; choose another name, such as my-{name.replace(':', '-')}")
        self.store.descriptions.save(described, created_by=caller.name)
        return described

    def remove(self, cls: type[Described], name: str, caller: Caller) -> Described:
        """Delete the stored model, cluster or profile ``name`` and return it; ``cls`` selects the type.

        With a cluster, its checks and measurements are deleted.

        Raises:
            NotOwner: Another caller stored it, and this caller is not an admin.
            Conflict: A check of the cluster is not finished.
        """
        described = self.store.descriptions.get(cls, name)
        caller.require_own(KINDS[cls], name, self.store.descriptions.owner(cls, name))
        self.store.descriptions.remove(cls, name)
        return described

    def _check_engine(self, cluster: Cluster) -> None:
        if self.settings.num_workers or self.settings.engines:
            check_engine_named(cluster, self.engines)

    def engine_standings(self) -> list[EngineStanding]:
        """Return all engines that a cluster may name, each with its state.

        The request to the engines may take seconds.
        """
        return ask_engines(self.engines, {name: one.engine for name, one in self.engine_launchers.items()})

    def worker_standings(self) -> list[WorkerStanding]:
        """Return the workers that sent a heartbeat within the last day, latest first, each with its present sweep."""
        now = self.clock.now()
        held = {lease.owner: lease.run_id for lease in self.store.runs.leases(["sweep"])}
        found = self.store.health.workers()
        return [extended(WorkerStanding, one, is_alive=one.is_alive(now), sweep_id=held.get(one.name)) for one in found]

    def trainer_offers(self) -> list[TrainerOffer]:
        """Return the settings that a sweep may choose for each registered trainer, in the order of registration."""
        return [offered_by(one.trainer) for one in self.trainers.values()]

    def trainer(self, name: str) -> Trainer:
        """Return the trainer that is registered under that name.

        Raises:
            NotFound: No trainer has that name. The error suggests the most similar name.
        """
        if name not in self.trainers:
            near = get_close_matches(name, self.trainers, 1, cutoff=0.0)
            raise NotFound("trainer", name, near[0] if near else None)
        return self.trainers[name].trainer

    @property
    def kept_trials(self) -> KeptTrials:
        """Return the cache of sweeps' trials, which saves most requests from reading the trials from the database."""
        return self._once("kept trials", lambda: KeptTrials(self.store))

    @property
    def sweep_tables(self) -> SweepTables:
        """Return the cache of the tables of sweeps: their trials, and layouts that were predicted but not tried."""
        return self._once("sweep tables", lambda: SweepTables(self.compute))

    # ------------------------------------------------------------------ predictions
    def informed(self, sweep: Sweep) -> Sweep:
        """Return the sweep with its predictions corrected by the trials that had ended before the sweep was created."""
        return self.calibration_cache.informed(sweep)

    def standing(self, sweep: Sweep) -> SweepStanding:
        """Return a sweep as callers see it now: with its state, its request, its best trial and its findings.

        Raises:
            NotFound: The sweep is not stored any more.
        """
        sweep = self.informed(sweep)
        best, _ = self.store.ranking(sweep.id, page=Page(limit=1))
        return extended(
            SweepStanding,
            self.store.overview(sweep.id, now=self.clock.now()),
            request=sweep.request,
            best=best[0].brief if best else None,
            findings=findings(sweep.request, self.store.all_trials(sweep.id)) if sweep.request.challenge else None,
            interventions=sweep.interventions,
        )

    def preview(self, request: SweepRequest, *, with_remedies: bool = True) -> SweepPreview:
        """Return a preview of the sweep: the layouts that the sweep would search. The sweep is not started.

        If no layout fits in memory, the preview suggests remedies, such as more devices. The remedies take the longest
        time to compute; with ``with_remedies`` False, they are left out.

        Raises:
            InvalidInput: The search space has no layout that a trial can run, or a number is too large.
        """
        require_modest(request)
        known = request
        if request.uses_history:
            trainer = None if request.trainer is None else request.trainer.name
            known = replace(request, job=self.calibrated(request.job, trainer))
        found = self._once("previews", lambda: Previews(self.compute)).of(known, with_remedies=with_remedies)
        refused = self.refusal(request)
        return replace(found, refusal=None if refused is None else violation(refused))

    # ------------------------------------------------------------------ durable runs
    def start(self, request: Startable, *, key: str | None = None, caller: Caller = NOBODY_ASKED) -> tuple[Run, bool]:
        """Queue a run for the request and return it with True, or return the run of an earlier equal call with False.

        Args:
            request: The request. Its type decides the kind of the run. Names of models and clusters in it are replaced
                by their descriptions.
            key: Idempotency key of the caller for a sweep or a study: a second call with the same key creates no second
                run. None: no key.
            caller: The caller. Sweeps, including the sweeps of gates, are checked against the caller's quota.

        Raises:
            InvalidInput: The run would certainly fail. Either the search space has no layout that a trial can run, or
                the cluster names no engine or an unknown engine, or there are no clusters to compare, or this service's
                own worker lacks the devices. A service without a worker cannot check the devices.
            Conflict: The key was used for a different request, or another check of the cluster is not finished.
            NotOwner: A gate would replace another caller's baseline.
            QuotaExceeded: The run would use more than the rest of the caller's quota.
        """
        store, now, is_new = self.store, self.clock.now(), True
        match request:
            case PlanRequest():
                return self.plans.ask(self.resolve(request))
            case ClusterCheck(cluster=cluster, request=how):
                check_engine(cluster)
                self._check_engine(cluster)
                return store.descriptions.create_check(cluster.name, how, now=now, created_by=caller.name), True
            case OptimizerStudyCreate():
                study = self.study(request)
                starts_of(study)
                self._require_devices(study.job.cluster)
                return store.optimizer_studies.create(study, now=now, idempotency_key=key, caller=caller)
            case GateCreate():
                return self._ask_gate(self.gate(request), caller), True
        asked = self.sweep(request, self.require_runnable) if isinstance(request, SweepCreate) else request
        self.require_runnable(asked)
        sweep, is_new = store.create_sweep(asked, now=now, idempotency_key=key, caller=caller)
        return store.runs.get("sweep", sweep.id), is_new

    def read(self, run_id: str, wait_s: float = 0.0) -> Run:
        """Return a run as it is stored now. If it is a plan, wait up to ``wait_s`` seconds until the plan is computed.

        Raises:
            NotFound: No run that callers may read has that id.
            InvalidInput: The run is a plan, and the question that it should answer has no answer.
        """
        kind = self.store.runs.identify(run_id).kind
        if kind == "plan":
            return self.plans.read(run_id, wait_s)
        run = self.store.runs.get(kind, run_id)
        return with_trials(run, self.store.optimizer_studies.trials(run_id)) if isinstance(run, StudyRun) else run

    def stop(self, run_id: str, how: Stop = Stop.CANCEL, *, caller: Caller) -> None:
        """Cancel or pause a run: at once, or through the worker that executes it. A finished run stays unchanged.

        Raises:
            NotFound: No run that callers may read has that id.
            NotOwner: Another caller created the run, and this caller is not an admin.
            NotAllowed: The caller's scope is too small for this kind of run.
            Conflict: The run should be paused, but it is finished or cannot be paused.
        """
        kind, now = self.require_own(run_id, caller), self.clock.now()
        if how is Stop.PAUSE:
            self.store.runs.pause(kind, run_id, now=now)
        elif kind == "sweep":
            self.store.request_cancel(run_id, now=now)
        else:
            self.store.runs.cancel(kind, run_id, _UNHELD.get(kind, "cancelled before it began"), now=now)

    def resume(self, run_id: str, *, caller: Caller) -> None:
        """Continue a paused run, which is then queued for a worker. Errors are those of ``stop``."""
        kind = self.require_own(run_id, caller)
        self.store.runs.resume(kind, run_id, now=self.clock.now())

    def change(self, sweep_id: str, limits: Mapping[str, Any], *, caller: Caller) -> None:
        """Change limits of a sweep's budget. A finished sweep continues with the new limits.

        It also raises the errors of ``stop``.

        Raises:
            InvalidInput: A finished sweep would end again at once.
            QuotaExceeded: The additional use exceeds the rest of the caller's quota.
        """
        self.require_own(sweep_id, caller)
        self.store.control.change_budget(sweep_id, limits, now=self.clock.now(), caller=caller)

    def rerun(self, trial_id: str, *, caller: Caller) -> str:
        """Run a trial again, and return the id of its sweep. A finished sweep continues for this trial.

        Errors are those of ``change``.
        """
        sweep_id = self.store.get_trial(trial_id).sweep_id
        self.require_own(sweep_id, caller)
        self.store.control.rerun(trial_id, now=self.clock.now(), caller=caller)
        return sweep_id

    def require_own(self, run_id: str, caller: Caller) -> str:
        """Return the kind of a run if the caller may stop the run; otherwise raise the same errors as ``stop``.

        The caller must have created the run, or the retune that the run belongs to, or be an admin.
        """
        run = self.store.runs.identify(run_id)
        if not caller.scope.covers(run.scope):
            raise NotAllowed(run.scope.value, caller.scope.value)
        owner = self.store.retunes.get(run.subject).created_by if run.kind == "retune" else run.created_by
        caller.require_own(run.noun, run_id, owner)
        return run.kind

    @property
    def plans(self) -> Plans:
        """Return the object that queues, reads and computes plans (comparisons of clusters) in this process."""
        return self._once("plans", lambda: Plans(self.store.runs, self.compute, self.clock, self.settings.lease_s))

    # ------------------------------------------------------------------ what can be started
    def require_runnable(self, request: SweepRequest) -> None:
        """Raise an error if no trial of the sweep could run, so that the sweep must not be queued.

        Raises:
            InvalidInput: The search space has no layout that a trial can run. Or trials run on a smaller cluster than
                the job, and none of the layouts can be imitated there. Or ``refusal`` returns a reason.
        """
        self.compute.search(require_layouts, request)
        if (refusal := self.refusal(request)) is not None:
            raise refusal

    def refusal(self, request: SweepRequest) -> InvalidInput | None:
        """Return the reason why this service's own worker cannot run the sweep's trials, or None.

        It is None if the worker can run them, or if this service has no worker.
        """
        if not self.settings.num_workers:
            return None
        said = self.launcher.refuses(request.runs_on, request.trainer)
        return _refused(request, said) if said else None

    def _require_devices(self, cluster: Cluster) -> None:
        if self.settings.num_workers and (said := self.launcher.refuses(cluster)):
            raise InvalidInput("cluster", cluster.name, f"cannot run trials here: {said}", LOCAL)

    def _ask_gate(self, request: RegressionGateRequest, caller: Caller) -> GateRun:
        """Queue the sweep of a gate, or finish the gate with the result of an earlier gate with the same content."""
        baseline_of(self.store, request, caller)  # refuse callers without the right before any work
        self.require_runnable(gate_sweep(request, None))
        software = {"autotuner": version("parallelism-autotuner"), **software_of_this_machine()}
        return ask_gate(self.store, request, software, now=self.clock.now(), caller=caller)

    # ------------------------------------------------------------------ once a layout is in use
    @property
    def retuning(self) -> Retuning:
        """Return the object that adds, changes and runs retunes (searches for better layouts on a schedule)."""
        return Retuning(self.store, self.clock)

    def create_retune(self, request: RetuneRequest, caller: Caller) -> Retune:
        """Store a retune of the caller: a search for a better layout that starts again on a schedule.

        Errors are those of ``Retuning.add`` and ``require_runnable``.
        """
        try:
            self.require_runnable(request.template)
        except InvalidInput as error:
            raise error.under("sweep") from error
        return self.retuning.add(request, caller)

    @property
    def tokens(self) -> Tokens:
        """Return the object that creates and revokes the API tokens with which callers authenticate themselves."""
        return Tokens(store=self.store.access, clock=self.clock)

    @property
    def webhooks(self) -> Webhooks:
        """Return the object that manages webhooks: URLs to which the service posts announcements of outcomes."""
        return Webhooks(
            store=self.store.announcements,
            poster=self.poster,
            clock=self.clock,
            allowed=read_networks(self.settings.webhook_allow, WEBHOOK_ALLOW),
            public_url=self.settings.public_url,
        )

    def rest(self) -> None:
        """Stop all background work and all computations, and wait until they have ended. The store stays open."""
        self.background.stop()
        plans: Plans | None = self._made.get("plans")
        if plans is not None:
            plans.request_stop()
        self.compute.close()
        if plans is not None:
            plans.close()

    def close(self) -> None:
        """Stop all background work, and close the launcher and the store."""
        self.rest()
        self.launcher.close()
        Autotuner.close(self)  # a slotted dataclass is created twice, so ``super()`` fails

    @property
    def background(self) -> Background:
        """Return the background threads, which work on runs and post announcements of their outcomes."""
        return self._once(
            "background",
            lambda: Background(
                settings=self.settings,
                open_store=lambda: self.store,
                launcher=self.launcher,
                clock=self.clock,
                engine_launchers=self.engine_launchers,
                webhooks=lambda: self.webhooks,
            ),
        )


def _is_catalogued(described: TransformerSpec | Cluster | DeviceProfile) -> bool:
    """Return True if the name belongs to a model of the catalog, or starts with the name of one of its accelerators."""
    if not isinstance(described, Cluster):
        return described.name.lower() in models()
    try:
        load_accelerator(described.name.partition("@")[0].partition(":")[0])
    except NotFound:
        return False
    return True


def _refused(request: SweepRequest, refusal: str) -> InvalidInput:
    if request.trainer is not None and request.trainer.name in refusal:
        return InvalidInput("trainer", request.trainer.name, refusal)
    field = "cluster" if request.trial_cluster is None else "trial_cluster"
    return InvalidInput(field, request.runs_on.name, f"cannot run trials here: {refusal}", "local")


def _launcher(
    settings: Settings, trainers: Mapping[str, RegisteredTrainer], engines: Mapping[str, EngineLauncher]
) -> Launcher:
    starter = NodeProcesses() if settings.launch == "torchrun" else Forks()
    devices = DevicePool.of_this_machine()
    local = LocalLauncher(settings.work_dir, starter, devices, trainers)
    return Launchers({LOCAL: local, SIMULATED: SimulatedLauncher(), **engines}, devices)


def _compute(settings: Settings) -> ComputeService:
    if not settings.compute_processes:
        return Inline()
    limits = Limits(seconds=settings.aside_s, memory_bytes=settings.aside_memory_bytes)
    return ComputePool(settings.compute_processes, limits)


def build(
    settings: Settings,
    *,
    store: Store | None = None,
    launcher: Launcher | None = None,
    clock: Clock | None = None,
    names: StoredNames | None = None,
) -> App:
    """Return the application for these settings.

    Each other argument replaces a part of the application, for example in a test; None: the part is built from the
    settings. If ``names`` is given, the store is opened when it is first needed; otherwise it is opened now.
    """
    configure_logs(settings.log_level)
    trainers = read_trainers(settings.trainers) if settings.trainers else {}
    engines = read_engines(settings.engines) if settings.engines else {}
    launchers = {name: EngineLauncher(one, trainers) for name, one in engines.items()}

    app = App(
        settings=settings,
        stored_names=names,
        open_store=lambda: open_store(settings.database_url) if store is None else store,
        launcher=launcher or _launcher(settings, trainers, launchers),
        clock=clock or SystemClock(),
        trainers=trainers,
        engines=engines,
        engine_launchers=launchers,
        poster=Poster(read_networks(settings.webhook_allow, WEBHOOK_ALLOW)),
        compute=_compute(settings),
    )
    if names is None:
        _ = app.store
    return app
