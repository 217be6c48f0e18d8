"""A live service for tests: a real server on a free port, over a store that tests drive as a worker would."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp

from autotuner.api.edge.connections import Bounds, server_config
from autotuner.api.events import LiveEvents
from autotuner.api.main import create_app
from autotuner.core.convergence_gate import GateOutcome, GateResult
from autotuner.core.layout import Layout
from autotuner.core.run import Lease, RunState, StopReason
from autotuner.core.sweep import RunTrial, Sweep, SweepRequest
from autotuner.core.trial import EngineJob, Outcome, Trial
from autotuner.runs.clock import Clock
from autotuner.service.build import App, build
from autotuner.service.settings import Settings
from autotuner.store.sql import Store, memory_store
from tests.builders import cpu_layout, estimate, measurement, prediction, proxy_trial, step_report, sweep_request
from tests.contracts.acts import claim_sweep, finish_sweep, lease_of
from tests.fake_launcher import FakeLauncher

NOW = 1_760_000_000.0


@dataclass(frozen=True)
class FixedClock:
    """A clock that stands still."""

    at: float = NOW

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        raise AssertionError(f"nothing here waits, least of all {seconds} s")


def app_on(store: Store, clock: Clock | None = None, **settings: Any) -> App:
    """An application without workers on that store."""
    # "testserver" is what the clients of Starlette and schemathesis call it
    changed: dict[str, Any] = {"num_workers": 0, "hosts": "testserver"} | settings
    return build(Settings(**changed), store=store, launcher=FakeLauncher(), clock=clock or FixedClock())


@cache
def openapi_document() -> dict[str, Any]:
    """The description of a service without a login; to make it takes seconds."""
    return create_app(app_on(memory_store())).openapi()


@contextmanager
def serve(app: App, bounds: Bounds | None = None) -> Iterator[str]:
    """The address of a server for ``app`` while the context lasts."""
    with serve_asgi(create_app(app), bounds) as address:
        yield address


@contextmanager
def serve_asgi(api: ASGIApp, bounds: Bounds | None = None) -> Iterator[str]:
    """The address of a server for any application while the context lasts."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = server_config(api, bounds, log_config=None, timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@dataclass(frozen=True, kw_only=True)
class PlainService:
    """A service without a login that many tests share: to start one takes longer than most of them."""

    api: FastAPI
    address: str

    def on(self, store: Store) -> str:
        """Its address, on that store from now on."""
        state = self.api.state
        state.autotuner = app_on(store)
        state.live_events = LiveEvents(lambda: state.autotuner.store)
        return self.address


@contextmanager
def serve_plain() -> Iterator[PlainService]:
    """A service for tests that bring their own stores, while the context lasts."""
    api = create_app(app_on(memory_store()))
    with serve_asgi(api) as address:
        yield PlainService(api=api, address=address)


def gate_result(**changes: Any) -> GateResult:
    """A convergence gate that was passed, of one seed and two steps."""
    value = GateResult(
        outcome=GateOutcome.PASSED,
        detail="after 2 steps the candidate's loss differs by +0.10 ± 0.20 % from the loss of the reference: "
        "within the tolerance of 2 %",
        reference=cpu_layout(),
        candidate_losses=((5.5, 5.4),),
        reference_losses=((5.5, 5.4),),
        excess=0.001,
        noise=0.002,
        tolerance=0.02,
    )
    return replace(value, **changes)


@dataclass(frozen=True, kw_only=True)
class StoreDriver:
    """Writes to a store what a worker would, one call per thing that happens."""

    store: Store
    owner: str = "driver"

    def lease(self, run_id: str) -> Lease:
        """What this worker holds a sweep or a trial by."""
        return lease_of(self.store, run_id, self.owner)

    def sweep(self, request: SweepRequest | None = None) -> Sweep:
        """A running sweep."""
        sweep, _ = self.store.create_sweep(request or sweep_request(), now=NOW)
        claimed = claim_sweep(self.store, owner=self.owner, now=NOW, lease_s=3600)
        assert claimed is not None
        assert claimed.id == sweep.id
        return claimed

    def queued(self, sweep: Sweep, number: int, layout: Layout | None = None, **predicted: Any) -> Trial:
        """A trial that waits."""
        return self.store.add_trial(
            RunTrial(
                number=number,
                layout=layout or cpu_layout(tensor_parallel_degree=2),
                prediction=prediction(**predicted),
            ),
            lease=self.lease(sweep.id),
        )

    def start(self, sweep: Sweep, number: int, layout: Layout | None = None, **predicted: Any) -> Trial:
        """A trial that has just begun, with that prediction."""
        trial = self.queued(sweep, number, layout, **predicted)
        return self.store.start_trial(trial.id, lease=self.lease(trial.id), now=NOW + number)

    def running(self, sweep: Sweep, number: int, layout: Layout | None = None, num_steps: int = 1) -> Trial:
        """A trial that has reported some steps."""
        trial = self.start(sweep, number, layout)
        for step in range(num_steps):
            self.step(trial, step)
        return trial

    def step(self, trial: Trial, step: int) -> None:
        """One more step of a running trial."""
        self.store.add_step(trial.id, step_report(step), lease=self.lease(trial.id), now=NOW)

    def placed(self, trial: Trial, *jobs: EngineJob) -> Trial:
        """A running trial that engines were given those jobs for."""
        for job in jobs:
            trial = self.store.set_job(trial.id, job, lease=self.lease(trial.id), now=NOW)
        return trial

    def ended(self, sweep: Sweep, number: int, outcome: Outcome | None = None, layout: Layout | None = None) -> Trial:
        """A trial that came to that end."""
        return self.end(self.running(sweep, number, layout), outcome)

    def end(self, trial: Trial, outcome: Outcome | None = None) -> Trial:
        """The end of a running trial; complete unless said otherwise."""
        return self.store.finish_trial(trial.id, outcome or measurement(), lease=self.lease(trial.id), now=NOW + 30)

    def estimated(self, sweep: Sweep, number: int) -> Trial:
        """A trial that ran on two of eight ranks, and what is estimated of its layout."""
        layout = cpu_layout(tensor_parallel_degree=2, data_parallel_replicate_degree=4)
        trial = self.store.add_trial(
            RunTrial(
                number=number,
                layout=layout,
                prediction=prediction(),
                proxy=proxy_trial(),
            ),
            lease=self.lease(sweep.id),
        )
        self.end(
            self.store.start_trial(trial.id, lease=self.lease(trial.id), now=NOW),
            measurement(mfu=0.9),
        )
        (told,) = self.store.set_estimates(sweep.id, {trial.id: estimate()}, lease=self.lease(sweep.id), now=NOW + 31)
        return told

    def gated(self, trial: Trial, result: GateResult) -> Trial:
        """What a convergence gate found of a complete trial."""
        return self.store.add_gate(trial.id, result, lease=self.lease(trial.id), now=NOW + 45)

    def finish(self, sweep: Sweep) -> Sweep:
        """The end of the sweep, its budget spent."""
        return finish_sweep(
            self.store,
            sweep.id,
            owner=self.owner,
            now=NOW + 60,
            state=RunState.COMPLETE,
            reason=StopReason.TRIAL_BUDGET,
            detail="4 of 4 trials ran",
        )
