"""MemoryStore: the Store port in dictionaries, for tests and for a sweep that need not outlive its process."""

# ruff: noqa: B008, D102  # Page and TrialFilter are frozen; the port documents every method

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import RLock
from typing import TypeVar

from autotuner.domain.cluster import Cluster
from autotuner.domain.layout import Layout
from autotuner.domain.model import TransformerSpec
from autotuner.domain.prediction import Prediction
from autotuner.domain.profile import DeviceProfile
from autotuner.domain.sweep import Event, StopReason, Sweep, SweepRequest, SweepState
from autotuner.domain.trial import Outcome, StepReport, Trial, TrialState
from autotuner.errors import NotFound
from autotuner.ports import Page, TrialFilter
from autotuner.store import transitions
from autotuner.store.identity import check_name, name_taken, new_sweep_id, no_such_name

__all__ = ["MemoryStore"]

Named = TypeVar("Named", TransformerSpec, Cluster, DeviceProfile)
Value = TypeVar("Value")


class MemoryStore:
    """The Store port in dictionaries.

    One lock makes every method one transaction; a method writes only after everything that can be refused was checked.
    """

    def __init__(self, *, new_id: Callable[[], str] = new_sweep_id) -> None:
        self._new_id = new_id
        self._lock = RLock()
        self._sweeps: dict[str, Sweep] = {}
        self._sweep_of_key: dict[str, str] = {}
        self._trials: dict[str, Trial] = {}
        self._events: dict[str, list[Event]] = {}
        self._models: dict[str, TransformerSpec] = {}
        self._clusters: dict[str, Cluster] = {}
        self._profiles: dict[str, DeviceProfile] = {}

    # ------------------------------------------------------------------ sweeps
    def create_sweep(
        self, request: SweepRequest, *, now: float, idempotency_key: str | None = None
    ) -> tuple[Sweep, bool]:
        with self._lock:
            if idempotency_key is not None and idempotency_key in self._sweep_of_key:
                stored = self._sweeps[self._sweep_of_key[idempotency_key]]
                return transitions.same_request(stored, request), False
            sweep = Sweep(id=self._new_id(), request=request, state=SweepState.QUEUED, created_at=now)
            self._sweeps[sweep.id] = sweep
            self._events[sweep.id] = []
            if idempotency_key is not None:
                self._sweep_of_key[idempotency_key] = sweep.id
            self._write_event(sweep.id, "sweep.created", transitions.sweep_facts(sweep), now)
            return sweep, True

    def get_sweep(self, sweep_id: str) -> Sweep:
        with self._lock:
            return _find(self._sweeps, "sweep", sweep_id)

    def list_sweeps(self, *, state: SweepState | None = None, page: Page = Page()) -> tuple[Sequence[Sweep], int]:
        with self._lock:
            found = [sweep for sweep in self._sweeps.values() if state in (None, sweep.state)]
        found.sort(key=_age, reverse=True)
        return _window(found, page), len(found)

    def request_cancel(self, sweep_id: str, *, now: float) -> Sweep:
        with self._lock:
            before = self.get_sweep(sweep_id)
            sweep = self._sweeps[sweep_id] = transitions.cancel(before, now=now)
            if sweep.state is not before.state:
                self._end_trials(sweep_id, now)
                self._write_event(sweep_id, "sweep.finished", transitions.sweep_facts(sweep), now)
            return sweep

    def claim_sweep(self, *, owner: str, now: float, lease_s: float) -> Sweep | None:
        with self._lock:
            free = [sweep for sweep in self._sweeps.values() if transitions.claimable(sweep, now)]
            if not free:
                return None
            before = min(free, key=_age)
            sweep = self._sweeps[before.id] = transitions.claim(before, owner=owner, now=now, lease_s=lease_s)
            for trial in self._trials_of(sweep.id, TrialState.RUNNING):
                self._save_trial(transitions.interrupt(trial), "trial.interrupted", now)
            kind = "sweep.started" if before.state is SweepState.QUEUED else "sweep.resumed"
            self._write_event(sweep.id, kind, transitions.sweep_facts(sweep), now)
            return sweep

    def renew_lease(self, sweep_id: str, *, owner: str, now: float, lease_s: float) -> Sweep:
        with self._lock:
            held = self._held(sweep_id, owner)
            self._sweeps[sweep_id] = sweep = transitions.renew(held, now=now, lease_s=lease_s)
            return sweep

    def release_sweep(self, sweep_id: str, *, owner: str, now: float) -> None:
        with self._lock:
            self._sweeps[sweep_id] = transitions.release(self._held(sweep_id, owner), now=now)

    def finish_sweep(
        self, sweep_id: str, *, owner: str, now: float, state: SweepState, reason: StopReason, detail: str
    ) -> Sweep:
        with self._lock:
            held = self._held(sweep_id, owner)
            sweep = transitions.finish_sweep(held, now=now, state=state, reason=reason, detail=detail)
            self._sweeps[sweep_id] = sweep
            self._end_trials(sweep_id, now)
            self._write_event(sweep_id, "sweep.finished", transitions.sweep_facts(sweep), now)
            return sweep

    def _end_trials(self, sweep_id: str, now: float) -> None:
        for trial in self._trials_of(sweep_id, TrialState.QUEUED, TrialState.RUNNING):
            self._trials[trial.id] = transitions.cancel_trial(trial, now=now)

    # ------------------------------------------------------------------ trials
    def add_trial(self, sweep_id: str, *, owner: str, number: int, layout: Layout, prediction: Prediction) -> Trial:
        with self._lock:
            self._held(sweep_id, owner)
            trial = transitions.new_trial(sweep_id, number, layout, prediction)
            if trial.id in self._trials:
                raise transitions.number_taken(trial)
            self._trials[trial.id] = trial
            return trial

    def start_trial(self, trial_id: str, *, owner: str, now: float) -> Trial:
        with self._lock:
            trial = transitions.start_trial(self._held_trial(trial_id, owner), now=now)
            return self._save_trial(trial, "trial.started", now)

    def add_step(self, trial_id: str, step: StepReport, *, owner: str, now: float) -> None:
        with self._lock:
            trial = self._held_trial(trial_id, owner)
            transitions.check_running(trial_id, trial.state)
            if any(known.step == step.step for known in trial.steps):
                raise transitions.step_taken(trial_id, step)
            in_order = sorted((*trial.steps, step), key=lambda report: report.step)
            self._trials[trial_id] = replace(trial, steps=tuple(in_order))
            self._write_event(trial.sweep_id, "trial.step", transitions.step_facts(trial_id, trial.number, step), now)

    def finish_trial(self, trial_id: str, outcome: Outcome, *, owner: str, now: float) -> Trial:
        with self._lock:
            trial = transitions.finish_trial(self._held_trial(trial_id, owner), outcome, now=now)
            return self._save_trial(trial, "trial.finished" if trial.state.finished else "trial.interrupted", now)

    def get_trial(self, trial_id: str) -> Trial:
        with self._lock:
            return _find(self._trials, "trial", trial_id)

    def list_trials(
        self, sweep_id: str, *, where: TrialFilter = TrialFilter(), page: Page = Page()
    ) -> tuple[Sequence[Trial], int]:
        with self._lock:
            self.get_sweep(sweep_id)
            found = [trial for trial in self._trials_of(sweep_id) if _passes(where, trial)]
        return [replace(trial, steps=()) for trial in _window(found, page)], len(found)

    def ranking(
        self, sweep_id: str | None = None, *, where: TrialFilter = TrialFilter(), page: Page = Page()
    ) -> tuple[Sequence[Trial], int]:
        with self._lock:
            if sweep_id is not None:
                self.get_sweep(sweep_id)
            trials = list(self._trials.values())
        ranked = [
            (-trial.measurement.mfu, trial.id, replace(trial, steps=()))
            for trial in trials
            if trial.measurement is not None and sweep_id in (None, trial.sweep_id) and _passes(where, trial)
            if not trial.layout.is_emulated
        ]
        ranked.sort(key=lambda row: row[:2])
        return [trial for _, _, trial in _window(ranked, page)], len(ranked)

    # ------------------------------------------------------------------ events
    def events(self, sweep_id: str, *, after: int = 0, limit: int = 500) -> Sequence[Event]:
        with self._lock:
            log = _find(self._events, "sweep", sweep_id)
            return [event for event in log if event.sequence > after][:limit]

    # ------------------------------------------------------------------ names
    def save_model(self, model: TransformerSpec) -> None:
        with self._lock:
            _save_named(self._models, "model", model)

    def get_model(self, name: str) -> TransformerSpec:
        with self._lock:
            return _find_named(self._models, "model", name)

    def list_models(self) -> Sequence[TransformerSpec]:
        with self._lock:
            return [self._models[name] for name in sorted(self._models)]

    def save_cluster(self, cluster: Cluster) -> None:
        with self._lock:
            _save_named(self._clusters, "cluster", cluster)

    def get_cluster(self, name: str) -> Cluster:
        with self._lock:
            return _find_named(self._clusters, "cluster", name)

    def list_clusters(self) -> Sequence[Cluster]:
        with self._lock:
            return [self._clusters[name] for name in sorted(self._clusters)]

    def save_profile(self, profile: DeviceProfile) -> None:
        check_name("profile.name", profile.name)
        with self._lock:
            self._profiles[profile.name] = profile

    def get_profile(self, name: str) -> DeviceProfile:
        with self._lock:
            return _find_named(self._profiles, "profile", name)

    def list_profiles(self) -> Sequence[DeviceProfile]:
        with self._lock:
            return [self._profiles[name] for name in sorted(self._profiles)]

    # ------------------------------------------------------------------ health
    def check(self) -> str:
        return "memory"

    def close(self) -> None:
        """Nothing to release."""

    # ------------------------------------------------------------------ inside one transaction
    def _held(self, sweep_id: str, owner: str) -> Sweep:
        sweep = self.get_sweep(sweep_id)
        transitions.check_lease(sweep.id, sweep.owner, owner)
        return sweep

    def _held_trial(self, trial_id: str, owner: str) -> Trial:
        trial = self.get_trial(trial_id)
        self._held(trial.sweep_id, owner)
        return trial

    def _trials_of(self, sweep_id: str, *states: TrialState) -> list[Trial]:
        trials = [t for t in self._trials.values() if t.sweep_id == sweep_id and (not states or t.state in states)]
        return sorted(trials, key=lambda trial: trial.number)

    def _save_trial(self, trial: Trial, event_kind: str, now: float) -> Trial:
        self._trials[trial.id] = trial
        self._write_event(trial.sweep_id, event_kind, transitions.trial_facts(trial), now)
        return trial

    def _write_event(self, sweep_id: str, kind: str, data: dict[str, object], now: float) -> None:
        log = self._events[sweep_id]
        log.append(Event(sweep_id=sweep_id, sequence=len(log) + 1, at=now, kind=kind, data=data))


def _age(sweep: Sweep) -> tuple[float, str]:
    return sweep.created_at, sweep.id


def _window(found: list[Value], page: Page) -> list[Value]:
    return found[page.offset : page.offset + page.limit]


def _passes(where: TrialFilter, trial: Trial) -> bool:
    return (
        where.state in (None, trial.state)
        and where.tensor_parallel_degree in (None, trial.layout.tensor_parallel_degree)
        and where.pipeline_parallel_degree in (None, trial.layout.pipeline_parallel_degree)
        and where.micro_batch_size in (None, trial.layout.micro_batch_size)
    )


def _find(shelf: dict[str, Value], kind: str, key: str) -> Value:
    if key not in shelf:
        raise NotFound(kind, key)
    return shelf[key]


def _find_named(shelf: dict[str, Named], kind: str, name: str) -> Named:
    if name not in shelf:
        raise no_such_name(kind, name, shelf)
    return shelf[name]


def _save_named(shelf: dict[str, Named], kind: str, value: Named) -> None:
    check_name(f"{kind}.name", value.name)
    if shelf.setdefault(value.name, value) != value:
        raise name_taken(kind, value.name)
