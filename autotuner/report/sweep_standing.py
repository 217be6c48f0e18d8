"""The report of a sweep's state: its trials by state, its ranking, its comparison, and trials without a rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from autotuner.core.objective import Objective
from autotuner.core.prediction import TrialEstimate
from autotuner.core.run import RunState, StopReason
from autotuner.core.sweep import SweepStanding
from autotuner.core.trial import Trial, TrialState
from autotuner.report.caveats import caveats_in_words
from autotuner.report.engine_jobs import engine_in_words, waiting_in_words
from autotuner.report.ranking import ranking_report, value_unit
from autotuner.report.report import Lines, Report, Section, predicted
from autotuner.report.sweep_trials import compared, stands, trials_table
from autotuner.report.trial_facts import unranked_in_words
from autotuner.report.words import estimate_in_words, model_in_words, plain, quantity
from autotuner.search.caveats import caveats_of_job
from autotuner.search.results.trial_table import ranked_rows


def sweep_report(
    sweep: SweepStanding,
    trials: Sequence[Trial],
    now: float,
    *,
    said: Mapping[str, str] | None = None,
    most: int | None = None,
) -> Report:
    """Return the report of a sweep's present state: its ranking, and its trials without a rank.

    Args:
        sweep: The sweep with its present state.
        trials: Trials to show; the caller may leave out queued trials.
        now: Present time in epoch seconds.
        said: Further notes on trials by the trial's id, such as results of convergence gates; None: none.
        most: Largest number of rows of the ranking; None: all.
    """
    source, rows = sweep.best_source, ranked_rows(sweep.request, trials)[:most]
    again = {} if sweep.findings else _run_again(trials, sweep.objective)
    remarks = {**_under_way(trials, now), **again, **(said or {})}
    sections = []
    if rows:
        found = ranking_report(sweep.request, rows, source)
        sections += [replace(one, title=found.headline) for one in found.sections]
    if sweep.findings and (section := compared(sweep.request, sweep.findings, (), source)):
        sections.append(section)
    if others := [one for one in trials if not _is_shown(one) or one.id in remarks]:
        sections.append(Section(title="Trials without a rank", blocks=(trials_table(others, remarks),)))
    if caveats := caveats_in_words(caveats_of_job(sweep.request.job)):
        sections.append(Section(title="About the predictions", blocks=(Lines(items=caveats, is_quiet=True),)))
    return Report(headline="; ".join(_headline(sweep, now)), sections=sections)


def _headline(sweep: SweepStanding, now: float) -> Iterator[str]:
    counts = [f"{count} {state}" for state in TrialState if (count := sweep.num_trials.get(state))]
    trainer = f", trained by {sweep.request.trainer.name}" if sweep.request.trainer else ""
    by = f", by {sweep.created_by}" if sweep.created_by else ""
    state = "waiting" if sweep.waiting else sweep.state
    yield f"{sweep.id} {model_in_words(sweep.model_size)} {_where(sweep)}{trainer}{by}: {state}"
    yield f"trials: {', '.join(counts)}" if counts else "no trials yet"
    if sweep.stop_reason is StopReason.COMPARED:  # the comparison has its own section
        yield sweep.stop_reason
    elif sweep.stop_detail:
        yield f"ended ({plain(sweep.stop_reason)}): {sweep.stop_detail}"
    elif sweep.waiting:
        yield waiting_in_words(sweep.waiting, (), now)
    elif sweep.pause_requested:
        yield "it pauses as soon as its running trial has stopped"
    elif sweep.state is RunState.PAUSED:
        yield f"`autotuner resume {sweep.id}` continues it"


def _where(sweep: SweepStanding) -> str:
    """Return the cluster of the job, the smaller cluster of its trials if there is one, and the engine."""
    cluster = sweep.request.trial_cluster or sweep.request.job.cluster
    tried = f"{cluster.name} {engine_in_words(cluster.engine, cluster.queue)}".rstrip()
    return f"for {sweep.cluster}, tried on {tried}" if sweep.trial_cluster else f"on {tried}"


def _run_again(trials: Sequence[Trial], objective: Objective) -> dict[str, str]:
    """Return, by trial id, the results of trials that ran again because a user wanted it."""
    complete = (one for one in trials if one.repeats is not None and one.state is TrialState.COMPLETE)
    return {one.id: f"trial {one.repeats} again: {reached_beside_predicted(one, objective)}" for one in complete}


def _under_way(trials: Sequence[Trial], now: float) -> dict[str, str]:
    """Return, by trial id, why a trial waits or the state of its engine job."""
    started = (one for one in trials if one.waiting or (one.state is TrialState.RUNNING and one.jobs))
    return {one.id: stands(one, now) for one in started}


def _is_shown(trial: Trial) -> bool:
    """Return True if the ranking shows the trial, or the comparison shows it as a repeat."""
    return trial.state is TrialState.COMPLETE and not unranked_in_words(trial)


def reached_beside_predicted(trial: Trial, objective: Objective) -> str:
    """Describe the reached and the predicted value of a trial: ``MFU 43.0 % measured, 47.0 ± 5.6 % predicted``.

    Args:
        trial: A trial with a result.
        objective: Objective of the sweep, which defines the value.
    """
    reached, prediction, unit = trial.reached, trial.prediction, value_unit(objective)
    assert reached is not None, "it has a result"
    estimate = reached if isinstance(reached, TrialEstimate) else None
    robust_s = prediction.robust_step_s if objective.under_faults else None
    speed = 1.0 if robust_s is None else prediction.step_time_s / robust_s
    rates = replace(prediction, mfu=prediction.mfu * speed, tokens_per_s=prediction.tokens_per_s * speed)
    error = prediction.relative_error if objective.is_speed else None
    highest = prediction.highest_mfu if unit == "share" else None
    half = estimate.full_size.relative_error if estimate and objective.is_speed else None
    found = quantity(predicted(objective.value(reached), unit, half))
    expected = quantity(predicted(objective.value_of(rates, reached.resource_cost), unit, error, highest))
    is_simulated = trial.ran_measurement is not None and trial.ran_measurement.is_simulated
    how: str = reached.source
    if estimate:
        how = f"{estimate_in_words(estimate)}{', simulated' if is_simulated else ''}"
    return f"{objective.noun} {found} {how}, {expected} predicted"
