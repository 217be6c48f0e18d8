"""A sweep: how far it is, its ranking, and the trials that have no rank."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.text import Text

from autotuner.cli.views.rankings import ranking_table, reached_beside_predicted, trial_number
from autotuner.core.cluster import SIMULATED
from autotuner.core.convergence_gate import GateOutcome
from autotuner.core.run import StopReason
from autotuner.core.sweep import SweepStanding
from autotuner.core.trial import Trial, TrialState
from autotuner.report.terminal import LayoutRow, LayoutTable
from autotuner.report.words import model_in_words, plain
from autotuner.search.results.reached import RankedTrial
from autotuner.search.text.caveats import caveats_of_job
from autotuner.search.text.sentences import in_sentences
from autotuner.search.text.trials import (
    engine_in_words,
    findings_in_words,
    job_in_words,
    latest,
    unranked_in_words,
    waiting_in_words,
)


def sweep_view(
    sweep: SweepStanding,
    ranking: Sequence[RankedTrial],
    trials: Sequence[Trial],
    said: Mapping[str, str] | None = None,
) -> RenderableType:
    """One sweep: progress, trials by state, ranking, and what has no rank.

    Args:
        sweep: As the service shows it.
        ranking: What is to be shown of it, the best first.
        trials: Every trial to be shown; those with a rank, of which nothing is said, are left to the ranking, and
            complete repeats to what is compared.
        said: What was said of trials beyond that, by id: notes while they run, what their loss gates found.
    """
    again = {} if sweep.findings else _run_again(sweep, trials)
    told = {**jobs_in_words(trials, time.time()), **again, **(said or {})}
    parts: list[RenderableType] = [_headline(sweep)]
    if sweep.state in ("queued", "running"):
        bar = ProgressBar(total=1.0, completed=sweep.progress.fraction, width=60)
        parts.append(Padding(bar))  # a bar alone does not end its line
    if ranking:
        parts.append(ranking_table(ranking, sweep.objective))
    if sweep.findings:
        said_of = findings_in_words(sweep.findings, is_simulated=sweep.engine == SIMULATED)
        parts.extend(Text(f"compared: {sentence}") for sentence in said_of)
    others = [trial for trial in trials if not _is_shown(trial) or trial.id in told]
    if others:
        parts.append(_others_table(others, told))
    if caveats := caveats_of_job(sweep.request.job):
        parts.append(Text(f"Of the predictions: {in_sentences(caveats)}", style="dim"))
    return Group(*parts)


def why(trial: Trial, said: str = "") -> str:
    """Why a trial has no rank, or else what was last said of it; empty where nothing is known.

    Args:
        trial: As the service shows it.
        said: What is known beyond that.
    """
    if failure := trial.failure:
        return f"{failure.kind}: {failure.message}"
    if trial.stopped and trial.stopped.detail:
        return str(trial.stopped.detail)
    is_looked_at = trial.gate_outcome == GateOutcome.NOT_GATED and bool(said)
    return said if is_looked_at else unranked_in_words(trial) or said


def _headline(sweep: SweepStanding) -> Text:
    counts = [f"{count} {state}" for state in TrialState if (count := sweep.num_trials.get(state))]
    states = ", ".join(counts)
    trials = f"trials: {states}" if counts else "no trials yet"
    trainer = f", trained by {sweep.request.trainer.name}" if sweep.request.trainer else ""
    by = f", by {sweep.created_by}" if sweep.created_by else ""
    job = f" {model_in_words(sweep.model_size)} {_where(sweep)}{trainer}{by}: "
    text = Text.assemble((sweep.id, "bold"), job, ("waiting" if sweep.waiting else sweep.state, "bold"))
    text.append(f"; {trials}")
    if sweep.stop_reason == StopReason.COMPARED:  # what was compared has lines of its own
        text.append(f"; {sweep.stop_reason}")
    elif sweep.stop_detail:
        text.append(f"\nended ({plain(sweep.stop_reason)}): {sweep.stop_detail}")
    elif sweep.waiting:
        text.append(f"; {waiting_in_words(sweep.waiting, (), time.time())}")
    elif sweep.pause_requested:
        text.append("; it pauses as soon as its trial has stopped")
    elif sweep.state == "paused":
        text.append(f"; `autotuner resume {sweep.id}` has it go on")
    return text


def _run_again(sweep: SweepStanding, trials: Sequence[Trial]) -> dict[str, str]:
    """What trials reached that ran another again because somebody wanted it, by id."""
    objective = sweep.objective
    complete = (trial for trial in trials if trial.repeats is not None and trial.state == "complete")
    return {
        trial.id: f"trial {trial.repeats} again: {reached_beside_predicted(trial, objective)}" for trial in complete
    }


def jobs_in_words(trials: Sequence[Trial], now: float) -> dict[str, str]:
    """Return, by trial, the reason why it waits or the state of the engine job that runs it."""
    said: dict[str, str] = {}
    for trial in trials:
        if trial.waiting:
            said[trial.id] = waiting_in_words(trial.waiting, trial.jobs, now)
        elif trial.state == "running" and (job := latest(trial.jobs)):
            said[trial.id] = job_in_words(job, now)
    return said


def _where(sweep: SweepStanding) -> str:
    """The cluster of the job, and that of its trials where these are smaller; with the engine that runs them."""
    cluster = sweep.request.trial_cluster or sweep.request.job.cluster
    tried = f"{cluster.name} {engine_in_words(cluster.engine, cluster.queue)}".rstrip()
    return f"for {sweep.cluster}, tried on {tried}" if sweep.trial_cluster else f"on {tried}"


def _others_table(trials: Sequence[Trial], said: Mapping[str, str]) -> LayoutTable:
    """With the reasons of those that have one; no column where none has."""
    reasons = [why(trial, said.get(trial.id, "")) for trial in trials]
    rows = [
        LayoutRow(
            keys=(trial_number(trial.id), trial.state),
            layout=trial.label,
            cells=(reason,) if any(reasons) else (),
        )
        for trial, reason in zip(trials, reasons, strict=True)
    ]
    return LayoutTable(keys=("trial", "state"), heads=("why",) if any(reasons) else (), rows=rows)


def _is_shown(trial: Trial) -> bool:
    """Whether the ranking has it, or it repeats one of these and is told with what it is compared with."""
    return trial.state == "complete" and not unranked_in_words(trial)
