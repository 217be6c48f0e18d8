"""Real trials through the real launcher, and ways to disturb them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from autotuner.core.measurement import FinishedRun, LinkEvent, Measurement, StepReport
from autotuner.core.trial import EngineJob, Outcome, Stopped, TrialFailure
from autotuner.core.trial_spec import TrialSettings, TrialSpec
from autotuner.launch.contract import ATTEMPT_ID
from autotuner.launch.engines.launcher import job_name
from tests.builders import cpu_layout, tiny_job, tiny_model
from tests.patience import PATIENCE_S

ENDLESS = TrialSettings(
    warmup_steps=0, max_warmup_steps=0, measured_steps=1_000_000, max_measured_steps=1_000_000, timeout_s=PATIENCE_S
)
"""More steps than any test waits for."""

SHORT = TrialSettings(
    warmup_steps=1, max_warmup_steps=1, measured_steps=2, max_measured_steps=2, profiled_steps=0, timeout_s=PATIENCE_S
)
"""Three steps and no more, however they scatter."""


def spec(trial_id: str, settings: TrialSettings | None = None, **changes: Any) -> TrialSpec:
    """Two replicas of the tiny model, with a peak given so that none is measured.

    Its id begins with this process's, so that tests beside this one never take its ranks for theirs.
    """
    base = TrialSpec(
        trial_id=f"{os.getpid()}-{trial_id}",
        model=tiny_model(num_layers=2),
        workload=tiny_job().workload,
        layout=cpu_layout(data_parallel_replicate_degree=2, micro_batch_size=4),
        device="cpu",
        settings=settings or SHORT,
        reference_flop_per_s=1e11,
    )
    return replace(base, **changes)


def too_large(trial_id: str) -> TrialSpec:
    """A model whose weights alone take more than twice the memory that each rank may have."""
    settings = replace(SHORT, memory_budget_bytes=40_000_000)
    return spec(trial_id, settings, model=tiny_model(num_layers=8, hidden_size=512, ffn_size=2048))


class Watcher:
    """Collects steps; does something at the first; asks for a stop when told to."""

    def __init__(self, *, at_first_step: Callable[[], object] | None = None, stop_after: int | None = None) -> None:
        self.steps: list[StepReport] = []
        self.link_events: list[LinkEvent] = []
        self.notes: list[str] = []
        self.jobs: list[EngineJob] = []
        self.waits: list[str | None] = []
        self.runs: list[FinishedRun] = []
        self._at_first_step = at_first_step
        self._stop_after = stop_after

    def on_step(self, step: StepReport) -> None:
        self.steps.append(step)
        if len(self.steps) == 1 and self._at_first_step:
            self._at_first_step()

    def on_link_event(self, event: LinkEvent) -> None:
        self.link_events.append(event)

    def on_note(self, note: str) -> None:
        self.notes.append(note)

    def on_wait(self, reason: str | None) -> None:
        self.waits.append(reason)

    def on_run(self, run: FinishedRun) -> None:
        self.runs.append(run)

    def on_job(self, job: EngineJob) -> None:
        self.jobs.append(job)

    def stop_requested(self) -> Stopped | None:
        if self._stop_after is not None and len(self.steps) >= self._stop_after:
            return Stopped(reason="cancelled")
        return None


def measured(outcome: Outcome) -> Measurement:
    """The measurement that the trial came to."""
    assert isinstance(outcome, Measurement), outcome
    return outcome


def failed(outcome: Outcome) -> TrialFailure:
    """How the trial died."""
    assert isinstance(outcome, TrialFailure), outcome
    return outcome


def interrupted(outcome: object) -> str:
    """Why the trial has to be tried again, which says nothing of the trial itself."""
    assert isinstance(outcome, Stopped), outcome
    assert outcome.reason == "infrastructure"
    return outcome.detail


def left_over(trial_id: str) -> list[psutil.Process]:
    """Live processes of a trial of this process, by the name it was given or the id it has, whoever started them."""
    own = (trial_id, f"{os.getpid()}-{trial_id}")
    ids = (*own, *(job_name(one, 0, 0).removesuffix("-0-0") for one in own))  # as a job of an engine is called
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(ATTEMPT_ID, "").startswith(ids) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def ranks_of(trial_id: str) -> dict[int, psutil.Process]:
    """The trial's ranks, by rank: each prints to ``<rank>/stdout.log``, an agent elsewhere."""
    logs = {Path(os.readlink(f"/proc/{process.pid}/fd/1")): process for process in left_over(trial_id)}
    return {int(log.parent.name): process for log, process in logs.items() if log.name == "stdout.log"}


def disturb(trial_id: str, rank: int, number: signal.Signals) -> Callable[[], None]:
    """Sends a signal to one rank."""
    return lambda: ranks_of(trial_id)[rank].send_signal(number)
