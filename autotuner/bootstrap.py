"""The composition root: the one place that knows the concrete store, launcher and clock."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from uuid import uuid4

from autotuner.catalog.load import load_cluster, load_model
from autotuner.clock import SystemClock
from autotuner.costmodel.predict import predict_one
from autotuner.domain.jobs.cluster import LOCAL, SIMULATED, Cluster
from autotuner.domain.jobs.job import Job
from autotuner.domain.jobs.model import TransformerSpec
from autotuner.domain.jobs.profile import profiled
from autotuner.domain.layouts.layout import Layout
from autotuner.domain.layouts.search_space import SearchSpace
from autotuner.domain.rules.legality import RULES, Reason, Rule, reasons
from autotuner.domain.runs.prediction import Prediction
from autotuner.domain.runs.sweep import Sweep, SweepRequest
from autotuner.domain.runs.trainer import Trainer
from autotuner.errors import InvalidInput, NotFound
from autotuner.launch.detect import detect_cluster, host_hash
from autotuner.launch.engines.launcher import EngineLauncher
from autotuner.launch.engines.registration import EngineRegistration, read_engines
from autotuner.launch.exclusive import DevicePool, ExclusiveLauncher
from autotuner.launch.local import LocalLauncher
from autotuner.launch.repeating import RepeatingLauncher
from autotuner.launch.routing import RoutedLauncher
from autotuner.launch.simulated import SimulatedLauncher
from autotuner.launch.torchrun import Torchrun
from autotuner.launch.trainers.registration import Registration, read_trainers
from autotuner.launch.zygote import Forks
from autotuner.logs import configure_logs, silence_optuna
from autotuner.ports import Clock, Launcher, Names, Store
from autotuner.search.advice.advice import Advice, advice
from autotuner.search.expressible import trial_rules
from autotuner.search.ranking import PredictionTable, best_predicted
from autotuner.search.space import explain_empty, legal_layouts
from autotuner.settings import Settings

__all__ = ["App", "build"]


_PROFILE = "profile:"
"""Before the name of a profile, where a cluster's is expected."""

_NUM_REASONS = 3
"""Of an empty space; the rules that remove most come first, the others rarely matter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """The application: what REST, dashboard and CLI call.

    Attributes:
        stored_names: In the place of those that the store holds; None asks the store.
        open_store: Called once, when the store is first needed: a prediction needs none.
        trainers: What an operator registered to run as a trial, by name.
        engines: What an operator registered to run trials elsewhere, by name.
    """

    settings: Settings
    stored_names: Names | None
    open_store: Callable[[], Store]
    launcher: Launcher
    clock: Clock
    trainers: Mapping[str, Registration] = field(default_factory=dict)
    engines: Mapping[str, EngineRegistration] = field(default_factory=dict)
    _shutdown: threading.Event = field(default_factory=threading.Event, init=False)
    _workers: list[threading.Thread] = field(default_factory=list, init=False)
    _opened: list[Store] = field(default_factory=list, init=False)
    _opening: threading.Lock = field(default_factory=threading.Lock, init=False)

    def open(self) -> Store:
        """The one store of the application, opened unless it is."""
        with self._opening:
            if not self._opened:
                self._opened.append(self.open_store())
            return self._opened[0]

    @property
    def store(self) -> Store:
        """Sweeps, trials and whatever else is kept."""
        return self.open()

    @property
    def names(self) -> Names:
        """Models, clusters and profiles that were stored."""
        return self.stored_names or self.store

    # ------------------------------------------------------------------ names
    def model(self, name: str) -> TransformerSpec:
        """A stored model, else one of the catalog."""
        try:
            return self.names.get_model(name)
        except NotFound:
            return load_model(name)

    def cluster(self, name: str) -> Cluster:
        """A stored cluster, this machine (``local``), else a catalog accelerator with a count (``h100:64``).

        This machine is described by its profile, if it has one; ``profile:NAME`` insists on that of another name.
        """
        if name == "local":
            return self._as_profiled(detect_cluster())
        if name.startswith(_PROFILE):
            profile = self.names.get_profile(name.removeprefix(_PROFILE))
            return replace(profiled(detect_cluster(), profile), name=name)
        try:
            return self.names.get_cluster(name)
        except NotFound:
            return load_cluster(name)

    def trainer(self, name: str) -> Trainer:
        """The trainer that is registered under that name.

        Raises:
            NotFound: With the nearest name.
        """
        if name not in self.trainers:
            near = get_close_matches(name, self.trainers, 1, cutoff=0.0)
            raise NotFound("trainer", name, near[0] if near else None)
        return self.trainers[name].trainer

    def _as_profiled(self, cluster: Cluster) -> Cluster:
        """With the constants of the profile of that name, where it was taken on this host."""
        try:
            profile = self.names.get_profile(cluster.name)
        except NotFound:
            return cluster
        return profiled(cluster, profile) if profile.host == host_hash() else cluster

    # ------------------------------------------------------------------ predictions
    def predictions(
        self, job: Job, space: SearchSpace, *, limit: int, rules: Sequence[Rule] = RULES
    ) -> PredictionTable:
        """The best predicted layouts of the space, and how many are legal and fit.

        Raises:
            InvalidInput: The space holds no legal layout.
        """
        table = best_predicted(job, space, limit=limit, rules=rules)
        if not table.num_legal:
            raise _empty(job, space, rules, "holds no legal layout")
        return table

    def advice(self, job: Job, space: SearchSpace, table: PredictionTable, rules: Sequence[Rule] = RULES) -> Advice:
        """What the table leaves open: options that it does not search, or what would make a layout fit."""
        return advice(job, space, table, rules)

    def predict_one(self, job: Job, layout: Layout) -> Prediction | tuple[Reason, ...]:
        """The prediction of one layout, or every reason why it cannot run."""
        return reasons(layout, job) or predict_one(layout, job)

    # ------------------------------------------------------------------ sweeps
    def create_sweep(self, request: SweepRequest, idempotency_key: str | None) -> tuple[Sweep, bool]:
        """Queue a sweep; False beside it when the key had created it before.

        Raises:
            InvalidInput: The space holds no layout that a trial can run, or this service's own worker has not the
                devices. A service without one leaves the second to the workers.
            Conflict: The key was used for another request.
        """
        rules = trial_rules(request.trainer)
        if len(legal_layouts(request.job, request.space, rules)) == 0:
            raise _empty(request.job, request.space, rules, "holds no layout that a trial can run")
        if self.settings.num_workers and (refusal := self.launcher.refuses(request.job.cluster, request.trainer)):
            raise _refused(request, refusal)
        return self.store.create_sweep(request, now=self.clock.now(), idempotency_key=idempotency_key)

    # ------------------------------------------------------------------ workers
    def start_workers(self) -> None:
        """Run sweeps on background threads of this process, ``settings.num_workers`` of them."""
        for _ in range(self.settings.num_workers):
            thread = threading.Thread(target=self.work, name="autotuner-worker")
            thread.start()
            self._workers.append(thread)

    def work(self) -> None:
        """Run sweeps on this thread until ``stop_workers`` is called."""
        from autotuner.search.sweeps.worker import Worker  # noqa: PLC0415  # Optuna: a service without workers has none

        silence_optuna()
        owner = f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:6]}"
        worker = Worker(
            self.store,
            self.launcher,
            self.clock,
            owner=owner,
            lease_s=self.settings.lease_s,
            shutdown=self._shutdown,
        )
        worker.run_forever(self.settings.poll_s)

    def request_stop(self) -> None:
        """Have every worker end its trial and give its sweep back; returns at once."""
        self._shutdown.set()

    def stop_workers(self) -> None:
        """Stop the workers and wait for their threads."""
        self.request_stop()
        for thread in self._workers:
            thread.join()
        self._workers.clear()

    def close(self) -> None:
        """Stop the workers and release launcher and store."""
        self.stop_workers()
        self.launcher.close()
        for store in self._opened:
            store.close()


def _refused(request: SweepRequest, refusal: str) -> InvalidInput:
    if request.trainer is not None and request.trainer.name in refusal:
        return InvalidInput("trainer", request.trainer.name, refusal)
    return InvalidInput("cluster", request.job.cluster.name, f"cannot be tried here: {refusal}", "local")


def _empty(job: Job, space: SearchSpace, rules: Sequence[Rule], what: str) -> InvalidInput:
    broken = explain_empty(job, space, rules)[:_NUM_REASONS]
    return InvalidInput("space", "as given", f"{what}: " + "; ".join(reason.message for reason in broken))


def _local_launcher(settings: Settings, trainers: Mapping[str, Registration]) -> Launcher:
    starter = Torchrun() if settings.launch == "torchrun" else Forks()
    devices = DevicePool.of_this_machine()
    return ExclusiveLauncher(RepeatingLauncher(LocalLauncher(settings.work_dir, starter, devices, trainers)), devices)


def _launcher(
    settings: Settings, trainers: Mapping[str, Registration], engines: Mapping[str, EngineRegistration]
) -> Launcher:
    launchers: dict[str, Launcher] = {
        LOCAL: _local_launcher(settings, trainers),
        SIMULATED: RepeatingLauncher(SimulatedLauncher()),
    }
    for name, registration in engines.items():
        launchers[name] = RepeatingLauncher(EngineLauncher(registration, settings.work_dir, trainers))
    return RoutedLauncher(launchers)


def build(
    settings: Settings,
    *,
    store: Store | None = None,
    launcher: Launcher | None = None,
    clock: Clock | None = None,
    names: Names | None = None,
) -> App:
    """The application for these settings; what is passed in replaces the real thing.

    Where ``names`` are passed in, no store is opened before it is asked for; else it is opened now.
    """
    configure_logs(settings.log_level)
    trainers = read_trainers(settings.trainers) if settings.trainers else {}
    engines = read_engines(settings.engines) if settings.engines else {}

    def opened() -> Store:
        from autotuner.store.sql import open_store  # noqa: PLC0415  # SQLAlchemy: a prediction needs no database

        return open_store(settings.database_url) if store is None else store

    app = App(
        settings=settings,
        stored_names=names,
        open_store=opened,
        launcher=launcher or _launcher(settings, trainers, engines),
        clock=clock or SystemClock(),
        trainers=trainers,
        engines=engines,
    )
    if names is None:
        app.open()
    return app
