"""Writes a sweep as an Optuna study to a file, for optuna-dashboard, Optuna's plots or a notebook."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import CategoricalDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.trial import FrozenTrial, TrialState, create_trial

from autotuner.core.codec import to_plain
from autotuner.core.errors import Conflict
from autotuner.core.objective import Objective
from autotuner.core.sweep import SweepStanding
from autotuner.core.trial import Trial

_STATES = {"complete": TrialState.COMPLETE, "pruned": TrialState.PRUNED}
_UNFINISHED = ("queued", "running", "waiting")


def write_study(file: Path, sweep: SweepStanding, trials: Sequence[Trial]) -> int:
    """Write the trials of a sweep to a file as an Optuna study, and return the number of trials written.

    The study maximises the objective of the sweep. Its parameters are the options of the layout in which the trials
    differ. Trials that wait or run are left out. A trial that repeats another trial is a separate trial of the study,
    with the number of the repeated trial as an attribute.

    Args:
        file: The SQLite file to create.
        sweep: The sweep, as the service answers it.
        trials: All trials of the sweep, as the service answers them.

    Raises:
        Conflict: The file exists already.
    """
    if file.exists():
        raise Conflict(f"{file} already exists; choose another file, or remove it")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    ended = [trial for trial in trials if trial.state not in _UNFINISHED]
    choices = _choices([to_plain(trial.layout) for trial in ended])
    study = optuna.create_study(storage=f"sqlite:///{file}", study_name=sweep.id, direction="maximize")
    for name in ("name", "model", "cluster"):
        study.set_user_attr(name, getattr(sweep, name))
    objective = sweep.objective
    with warnings.catch_warnings(action="ignore", category=ExperimentalWarning):
        study.set_metric_names([objective.noun])
    study.add_trials([_trial(trial, choices, objective) for trial in ended])
    return len(ended)


def _choices(layouts: Sequence[Mapping[str, Any]]) -> dict[str, CategoricalDistribution]:
    """Return the fields in which the layouts differ, each with its values in order."""
    values = {name: {layout.get(name) for layout in layouts} for layout in layouts[:1] for name in layout}
    return {
        name: CategoricalDistribution(sorted(found, key=lambda value: (str(type(value)), value)))
        for name, found in values.items()
        if len(found) > 1
    }


def _trial(trial: Trial, choices: Mapping[str, CategoricalDistribution], objective: Objective) -> FrozenTrial:
    metric = objective.metric.value
    reached = trial.reached
    state = _STATES.get(trial.state, TrialState.FAIL)
    layout = to_plain(trial.layout)
    facts = {
        "trial": trial.id,
        "layout": trial.label,
        f"predicted {metric}": getattr(trial.prediction, metric),
        "failure": trial.failure and trial.failure.message,
        "repeats": trial.repeats,
    }
    found = create_trial(
        state=state if reached or state is not TrialState.COMPLETE else TrialState.FAIL,
        value=objective.value(reached) if reached and state is TrialState.COMPLETE else None,
        params={name: layout.get(name) for name in choices},
        distributions=dict(choices),
        user_attrs={name: value for name, value in facts.items() if value is not None},
    )
    ended_at = trial.finished_at or trial.started_at
    if ended_at is not None:
        found.datetime_start = _local_time(trial.started_at or ended_at)
        found.datetime_complete = _local_time(ended_at)
    return found


def _local_time(epoch_s: float) -> datetime:
    """Return the time as Optuna stores it: local time without a time zone."""
    return datetime.fromtimestamp(epoch_s)  # optuna calls ``datetime.now()``
