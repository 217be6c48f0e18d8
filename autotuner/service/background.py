"""Background: the threads of a service that work beside its requests, until they are asked to stop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field

import structlog

from autotuner.core.health import SIGN_S
from autotuner.launch.contract import Launcher
from autotuner.launch.engines.launcher import EngineLauncher
from autotuner.launch.this_machine import software_of_this_machine
from autotuner.runs.check_run import check_kind
from autotuner.runs.clock import Clock
from autotuner.runs.delivery import delivery_kind
from autotuner.runs.gate_run import gate_kind
from autotuner.runs.kind import Kind
from autotuner.runs.retune_clock import RetuneScheduler
from autotuner.runs.retune_run import retune_kind
from autotuner.runs.study_run import study_kind
from autotuner.runs.sweep_trials import sweep_kind
from autotuner.runs.worker import Heartbeats, Worker, forever, new_owner
from autotuner.service.observing import silence_optuna
from autotuner.service.settings import Settings
from autotuner.service.webhooks import Webhooks
from autotuner.store.sql import Store

_log = structlog.get_logger(__name__)

_THINNING_POLL_S = 3600.0
"""Seconds between two removals of old records; retention periods are in days, so this need not be short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Background:
    """The background threads of the service: they work on runs, start retunes, post to webhooks, delete old records."""

    settings: Settings
    open_store: Callable[[], Store]
    """Function that returns the application's store, and opens it on the first call."""
    launcher: Launcher
    clock: Clock
    engine_launchers: Mapping[str, EngineLauncher]
    """Launchers of the registered engines, by name."""
    webhooks: Callable[[], Webhooks]
    """Function that returns the sender of announcements to webhooks."""
    _shutdown: threading.Event = field(default_factory=threading.Event, init=False)
    _threads: list[threading.Thread] = field(default_factory=list, init=False)

    def start(self) -> None:
        """Start the workers: ``settings.num_workers`` threads, each of which runs the method ``work``."""
        for _ in range(self.settings.num_workers):
            self._run(self.work, "autotuner-worker")

    def work(self) -> None:
        """Work on sweeps in this thread until a stop is requested. Other background work runs in further threads."""
        silence_optuna()
        store, owner = self.open_store(), new_owner()
        self.start_checks()
        self._start_lane(study_kind(store.optimizer_studies, self.launcher), "studies")
        self._start_lane(delivery_kind(self.webhooks().post, store.announcements.get_webhook), "deliveries")
        self._start_lane(gate_kind(store), "gates")
        self._start_lane(retune_kind(store), "retune-runs")
        if self.settings.starts_retunes:
            self._forever(RetuneScheduler(store, self.clock, software_of_this_machine).step, "retunes")
        self._forever(self._thin, "thinning", poll_s=_THINNING_POLL_S)
        self._start_heartbeats(owner)
        worker = self._worker(sweep_kind(store, self.launcher), owner)
        forever(worker.run_once, poll_s=self.settings.poll_s, shutdown=self._shutdown, name="worker")

    def start_checks(self) -> None:
        """Start a thread that runs cluster checks: small trials, and measurements of devices and links."""
        self._start_lane(check_kind(self.open_store(), self.engine_launchers), "checks")

    def _start_heartbeats(self, owner: str) -> None:
        """Start a thread that sends heartbeats for the worker with this name, and reports its stop at the end."""
        heartbeats = Heartbeats(self.open_store().health, self.clock, name=owner)

        def tell_until_stopped() -> None:
            forever(heartbeats.tell, poll_s=SIGN_S, shutdown=self._shutdown, name="heartbeats")
            heartbeats.end()

        self._run(tell_until_stopped, "autotuner-heartbeats")

    def _thin(self) -> object:
        """Remove some old records; return None if there are none."""
        done = self.open_store().retention.step(self.settings.ages, now=self.clock.now())
        if done is not None:
            _log.info("thinned", **asdict(done))
        return done

    def _start_lane(self, kind: Kind, name: str) -> None:
        """Start a thread that carries out all runs of one kind, so that no kind waits for another."""
        self._forever(self._worker(kind, new_owner()).run_once, name)

    def _worker(self, kind: Kind, owner: str) -> Worker:
        return Worker(
            self.open_store().runs,
            {kind.name: kind},
            self.clock,
            owner=owner,
            lease_s=self.settings.lease_s,
            shutdown=self._shutdown,
        )

    def request_stop(self) -> None:
        """Ask every worker to end its running trial and to give its sweep back to the queue; do not wait for that."""
        self._shutdown.set()

    def stop(self) -> None:
        """Stop all background threads, and wait until all have ended."""
        self.request_stop()
        while self._threads:
            self._threads.pop(0).join()

    def _forever(self, step: Callable[[], object], name: str, poll_s: float | None = None) -> None:
        poll_s = self.settings.poll_s if poll_s is None else poll_s
        self._run(lambda: forever(step, poll_s=poll_s, shutdown=self._shutdown, name=name), f"autotuner-{name}")

    def _run(self, target: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=target, name=name)
        thread.start()
        self._threads.append(thread)
