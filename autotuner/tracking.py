"""Tracking: sends the trials of a sweep to an experiment tracker as they end, and the ranking when the sweep ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from autotuner.connections import patiently, whole
from autotuner.core.codec import to_plain
from autotuner.core.errors import AutotunerError
from autotuner.core.run import RunState
from autotuner.core.sweep import SweepRequest, SweepStanding
from autotuner.core.trial import Trial, TrialState
from autotuner.report.sweep_trials import why
from autotuner.search.results.trial_table import COLUMNS, as_csv, cells_of, ranked_rows, trial_row
from autotuner.trackers import Record, Table, Tracker, TrackerUnavailable, Value

if TYPE_CHECKING:
    from autotuner.remote import Remote

_PREDICTED = (
    *("predicted_mfu", "predicted_robust_mfu", "predicted_step_time_s", "predicted_peak_bytes"),
    *("fit_probability", "imbalance", "padding_waste", "complexity"),
)
"""Columns of the table of trials that are metrics of every trial."""

_REACHED = (
    *("value", "mfu", "robust_mfu", "step_time_s", "tokens_per_s", "peak_bytes", "time_to_loss_s", "robustness"),
    *("price_per_million_tokens", "kwh_per_million_tokens", "co2_kg_per_million_tokens"),
)
"""Columns that are metrics of a trial with a result; without a result, some of them have predicted values."""

_RANKING = ("rank", "trial", "probability_best", *_REACHED, *_PREDICTED)
"""Columns of the ranking, before the layout."""

_POLL_S = 1.0
_LAST_TRIES = 2
"""Number of times in a row that a tracker may fail after the sweep has ended."""


# ---------------------------------------------------------------- following a sweep
@dataclass(frozen=True, slots=True, kw_only=True)
class Tracked:
    """The result of tracking a sweep: the runs that were sent, and where they are."""

    sweep_id: str
    place: str
    """Place of the runs, in words."""
    num_sent: int
    """Number of runs that were sent now: trials, and the sweep itself with its ranking."""
    num_trials: int
    """Number of trials of the sweep that have ended; each of them has a run."""

    def __str__(self) -> str:
        return f"{self.place}: {self.num_trials} trials of {self.sweep_id}, {self.num_sent} runs sent now"


Hear = Callable[[Tracked | AutotunerError], None]
"""A function that gets the result of tracking, and errors of the tracker."""


def track(
    client: Remote, sweep_id: str, tracker: Tracker, hear: Hear, *, stop: threading.Event | None = None
) -> Tracked:
    """Send the trials of a sweep to a tracker as they end, until the sweep ends or pauses. Then send the ranking.

    The tracker keeps what it has: a trial is sent only if the tracker does not have it, or has an older state of it.
    A tracker that does not answer is asked again while the sweep runs.

    Args:
        client: A client of the service that has the sweep.
        sweep_id: The id of the sweep.
        tracker: The place of the runs.
        hear: Function that is called when the tracker begins to fail.
        stop: Event that ends the tracking early; None: it runs to the end.

    Raises:
        TrackerUnavailable: The tracker still fails after the end of the sweep.
    """
    sending, stopped = _Sending(client, sweep_id, tracker), stop or threading.Event()
    num_failures = 0
    while True:
        sweep = patiently(lambda: client.read_sweep(sweep_id))
        is_over = sweep.state.is_finished or sweep.state is RunState.PAUSED
        try:
            sending.send_new(sweep, is_over=is_over)
            num_failures = 0
        except TrackerUnavailable as error:
            num_failures += 1
            if is_over and num_failures >= _LAST_TRIES:
                raise
            if num_failures == 1 and not is_over:
                hear(TrackerUnavailable(f"{error}; it is asked again until the sweep has ended"))
        if (is_over and not num_failures) or stopped.wait(_POLL_S):
            return sending.result()


class _Sending:
    """Sends the trials of a sweep to a tracker."""

    def __init__(self, client: Remote, sweep_id: str, tracker: Tracker) -> None:
        self._client, self._sweep_id, self._tracker = client, sweep_id, tracker
        self._digests: dict[str, str] | None = None
        """Digest of each record that the tracker has, by id; None before the tracker has answered."""
        self._handled: dict[str, Trial] = {}
        """Trials whose present state the tracker has, by id, as lists show them."""
        self._counted: Mapping[TrialState, int] | None = None
        """Number of trials in each state when all of them were sent last."""
        self._num_sent = 0

    def send_new(self, sweep: SweepStanding, *, is_over: bool) -> None:
        """Send the trials that ended since the last call, and the ranking if the sweep is over.

        Raises:
            TrackerUnavailable: The tracker failed. The next call sends the rest.
        """
        if self._digests is None:
            job = f"{sweep.model} on {sweep.cluster}"
            about = f"Sweep {sweep.name}: {job}" if sweep.name else f"Sweep: {job}"
            self._digests = dict(self._tracker.begin(sweep.id, about))
        if not is_over and sweep.num_trials == self._counted:
            return
        trials = patiently(lambda: whole(self._client.list_trials, self._sweep_id))
        ended = [trial for trial in trials if trial.state.finished]
        for trial in ended:
            known = self._handled.get(trial.id)
            if known is None or (is_over and known != trial):  # estimates of proxy trials change with each measurement
                whole_trial = patiently(partial(self._client.read_trial, trial.id))
                self._send(record_of_trial(whole_trial, sweep.request), self._digests)
                self._handled[trial.id] = trial
        self._counted = sweep.num_trials
        if is_over:
            self._send(record_of_sweep(sweep, trials), self._digests)

    def result(self) -> Tracked:
        """Return the number of runs that were sent, and where they are."""
        return Tracked(
            sweep_id=self._sweep_id, place=self._tracker.place, num_sent=self._num_sent, num_trials=len(self._handled)
        )

    def _send(self, record: Record, digests: dict[str, str]) -> None:
        if digests.get(record.id) != record.digest:
            self._tracker.send(record)
            digests[record.id] = record.digest
            self._num_sent += 1


@contextmanager
def tracked(client: Remote, sweep_id: str, trackers: Sequence[Tracker], hear: Hear) -> Iterator[None]:
    """Track a sweep while the block waits for it, in threads, so that a slow tracker does not slow the sweep.

    The block ends when the trackers have the last trial. If the block is interrupted, tracking stops, too.

    Args:
        client: A client of the service that has the sweep.
        sweep_id: The id of the sweep.
        trackers: The places of the runs; one thread for each.
        hear: Function that is called with the result of each tracker, and with its errors.
    """
    stop = threading.Event()

    def run(tracker: Tracker) -> None:
        try:
            hear(track(client, sweep_id, tracker, hear, stop=stop))
        except AutotunerError as error:
            hear(AutotunerError(f"{error}; `autotuner track {sweep_id} --to {tracker.target}` sends the rest"))

    threads = [threading.Thread(target=run, args=(tracker,), daemon=True) for tracker in trackers]
    for thread in threads:
        thread.start()
    try:
        yield
    except KeyboardInterrupt:
        stop.set()
        raise
    finally:
        for thread in threads:
            thread.join(timeout=_POLL_S if stop.is_set() else None)


# ---------------------------------------------------------------- records
def record_of_trial(trial: Trial, request: SweepRequest) -> Record:
    """Return the record of an ended trial: its layout and job, its measurement beside the prediction, and its end.

    Args:
        trial: The trial, with its steps.
        request: The request of its sweep.
    """
    is_complete = trial.state is TrialState.COMPLETE
    return Record(
        id=trial.id,
        sweep_id=trial.sweep_id,
        kind="trial",
        name=f"{trial.number + 1} {trial.label}",
        params={**_job(request), "layout": trial.label, **_flat(to_plain(trial.layout))},
        metrics=_metrics(trial, request),
        tags=_tags(trial),
        steps=[{"step/time_s": step.step_time_s, "step/loss": step.loss, "step/mfu": step.mfu} for step in trial.steps],
        ended="finished" if is_complete else "failed" if trial.state is TrialState.FAILED else "killed",
        started_at=trial.started_at,
        finished_at=trial.finished_at,
    )


def record_of_sweep(sweep: SweepStanding, trials: Sequence[Trial]) -> Record:
    """Return the record of a sweep with its ranking.

    Args:
        sweep: The sweep.
        trials: All its trials.
    """
    rows = ranked_rows(sweep.request, trials)
    columns = [COLUMNS[name] for name in _RANKING]
    cells = cells_of(columns)
    ranking = Table(
        name="ranking",
        columns=[*(name for name, _ in cells), "layout"],
        rows=[[*(value(row) for _, value in cells), str(row.layout)] for row in rows],
        csv=as_csv(rows, columns),
    )
    best = {"best_value": sweep.best_value, "best_mfu": sweep.best_mfu, "best_tokens_per_s": sweep.best_tokens_per_s}
    counts = {f"num_{state}": float(number) for state, number in sweep.num_trials.items()}
    return Record(
        id=sweep.id,
        sweep_id=sweep.id,
        kind="sweep",
        name=sweep.name or sweep.id,
        params=_job(sweep.request),
        metrics=_known(best) | counts,
        tags={
            "sweep": sweep.id,
            "status": sweep.state.value,
            "source": sweep.best_source,
            **({"best_trial": sweep.best_trial_id} if sweep.best_trial_id else {}),
            **({"reason": sweep.stop_detail} if sweep.stop_detail else {}),
        },
        ended="failed" if sweep.state is RunState.FAILED else "finished",
        started_at=sweep.started_at,
        finished_at=sweep.finished_at,
        tables=[ranking],
    )


def _job(request: SweepRequest) -> dict[str, Value]:
    job, trial = request.job, request.trial
    return {
        "model": job.model.name,
        "cluster": job.cluster.name,
        "accelerator": job.cluster.accelerator.name,
        "trial_cluster": None if request.trial_cluster is None else request.trial_cluster.name,
        "num_devices": job.cluster.world_size,
        "global_batch_size": job.workload.global_batch_size,
        "seq_len": job.workload.seq_len,
        "stack": job.stack.name,
        "trainer": None if request.trainer is None else request.trainer.name,
        "objective": request.objective.noun,
        "seed": request.seed,
        "warmup_steps": trial.warmup_steps,
        "measured_steps": trial.measured_steps,
    }


def _flat(layout: Mapping[str, object]) -> dict[str, Value]:
    """Return the options of a layout as parameters; lists and the like become text."""
    return {
        name: value if value is None or isinstance(value, (str, int, float)) else str(value)
        for name, value in layout.items()
    }


def _metrics(trial: Trial, request: SweepRequest) -> dict[str, float]:
    row, reached, num_devices = trial_row(request, trial), trial.reached, request.job.cluster.world_size
    names = (*_PREDICTED, *(_REACHED if reached else ()))
    found = {name: value(row) for name, value in cells_of(COLUMNS[name] for name in names)}
    found["predicted_tokens_per_s_per_device"] = trial.prediction.tokens_per_s / num_devices
    if reached is not None:
        found["tokens_per_s_per_device"] = reached.tokens_per_s / num_devices
    if trial.started_at and trial.finished_at:
        found["duration_s"] = trial.finished_at - trial.started_at
    return _known(found)


def _known(values: Mapping[str, Value]) -> dict[str, float]:
    """Return the values that are known, and no interval of a value that is not known."""
    unknown = {f"{name}_error" for name, value in values.items() if value is None}
    return {name: float(value) for name, value in values.items() if value is not None and name not in unknown}


def _tags(trial: Trial) -> dict[str, str]:
    failure, reached = trial.failure, trial.reached
    tags = {
        "sweep": trial.sweep_id,
        "trial": trial.id,
        "status": trial.state.value,
        "source": None if reached is None else reached.source,
        "failure": None if failure is None else failure.kind.value,
        "reason": why(trial) or None,
        "gate": None if trial.gate_outcome is None else trial.gate_outcome.value,
        "repeats": None if trial.repeats is None else str(trial.repeats),
        "proxy_layout": None if trial.proxy is None else str(trial.ran),
    }
    return {name: text for name, text in tags.items() if text}
