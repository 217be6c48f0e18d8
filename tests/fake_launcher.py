"""A launcher whose trials end as a test says, and a worker that runs sweeps with it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from autotuner.core.cluster import Cluster
from autotuner.core.measurement import Measurement, PhaseTimes, StepReport
from autotuner.core.trial import Stopped, TrialFailure
from autotuner.core.trial_spec import Trainer, TrialSpec
from autotuner.launch.contract import Launcher, TrialWatcher
from autotuner.runs.clock import Clock
from autotuner.runs.sweep_trials import sweep_kind
from autotuner.runs.worker import Worker
from autotuner.store.sql import Store


def plain_measurement(spec: TrialSpec, *, step_time_s: float = 1.0) -> Measurement:
    """A measurement that is consistent with the trial's model, workload and step time."""
    tokens_per_s = spec.workload.tokens_per_step / step_time_s
    model_flop_per_s = spec.model.model_flop_per_token(spec.workload.seq_len) * tokens_per_s
    peak_flop_per_s = (spec.reference_flop_per_s or 100e9) * spec.layout.world_size
    return Measurement(
        step_time_s=step_time_s,
        step_time_spread_s=0.0,
        num_steps=spec.settings.measured_steps,
        tokens_per_s=tokens_per_s,
        model_flop_per_s=model_flop_per_s,
        mfu=model_flop_per_s / peak_flop_per_s,
        hfu=model_flop_per_s / peak_flop_per_s,
        peak_flop_per_s=peak_flop_per_s,
        peak_source="fake",
        peak_bytes=(1_000_000,) * spec.layout.world_size,
        phases=PhaseTimes(forward_backward_s=step_time_s, gradient_sync_s=0.0, optimizer_s=0.0),
        losses=(1.0,) * (spec.settings.warmup_steps + spec.settings.measured_steps),
        foreign_cpu_share=0.0,
        environment={"launcher": "fake"},
    )


class FakeLauncher:
    """Reports the steps of whatever outcome ``behaviour`` invents for a trial, asking for a stop before each.

    Args:
        behaviour: What comes of a trial.
        capacity: How many trials may run at once, whatever their size.

    Attributes:
        specs: Every trial it was asked to run, in order.
    """

    def __init__(
        self,
        behaviour: Callable[[TrialSpec], Measurement | TrialFailure] = plain_measurement,
        *,
        capacity: int = 1,
    ) -> None:
        self._behaviour = behaviour
        self._capacity = capacity
        self.specs: list[TrialSpec] = []

    def refuses(self, cluster: Cluster, trainer: Trainer | None = None) -> str | None:
        """Never a reason: every cluster can be pretended."""
        del cluster, trainer
        return None

    def capacity(self, cluster: Cluster) -> int:
        """The number that the constructor was told."""
        del cluster
        return self._capacity

    def run(self, spec: TrialSpec, watcher: TrialWatcher) -> Measurement | TrialFailure | Stopped:
        """Pretend to run the trial; every step takes no time."""
        self.specs.append(spec)
        outcome = self._behaviour(spec)
        if isinstance(outcome, Measurement):
            for step, loss in enumerate(outcome.losses):
                if stopped := watcher.stop_requested():
                    return stopped
                watcher.on_step(_report(spec, outcome, step, loss))
                for event in outcome.link_events:
                    if event.step == step:
                        watcher.on_link_event(event)
        return watcher.stop_requested() or outcome

    def close(self) -> None:
        """Release nothing: nothing is kept."""


def _report(spec: TrialSpec, measurement: Measurement, step: int, loss: float) -> StepReport:
    return StepReport(
        step=step,
        is_warmup=step < spec.settings.warmup_steps,
        step_time_s=measurement.step_time_s,
        loss=loss,
        tokens_per_s=measurement.tokens_per_s,
        mfu=measurement.mfu,
    )


def sweep_worker(
    store: Store,
    launcher: Launcher,
    clock: Clock,
    *,
    owner: str,
    lease_s: float,
    shutdown: threading.Event | None = None,
) -> Worker:
    """Return a worker of sweeps, as the service puts it together."""
    kinds, shutdown = {"sweep": sweep_kind(store, launcher)}, shutdown or threading.Event()
    return Worker(store.runs, kinds, clock, owner=owner, lease_s=lease_s, shutdown=shutdown)
