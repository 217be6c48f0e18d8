"""What came of a sweep: the answer and how sure it is, what mattered, what failed, how right predictions were."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from api.dependencies import AppOf, SweepOf
from api.openapi import problems
from api.schemas import SweepAccuracy, SweepAnswer, SweepChoices, SweepFailures, SweepFront, SweepLayers
from autotuner.core.documents import Document
from autotuner.core.objective import Objective, read_metrics, read_profile, require_told
from autotuner.search.explain.layers import layer_report, measured_layers
from autotuner.search.results.accuracy import accuracy
from autotuner.search.results.answer import answer
from autotuner.search.results.failures import failures
from autotuner.search.results.front import sweep_front
from autotuner.search.results.grid import mattered

router = APIRouter(prefix="/sweeps/{sweep_id}", tags=["sweeps"])

_Choice = Annotated[
    str | None,
    Query(description="A choice: `tp`, `pp`, `dp`, `cp`, `ep`, `mb`, `sharding` or an option by its name."),
]

_Metrics = Annotated[
    str,
    Query(description="What counts, with commas between: `mfu,tokens_per_joule`. Left out: what the sweep looks for."),
]

_Profile = Annotated[
    str,
    Query(description="How much metrics count where one trial is named: `mfu=2,tokens_per_dollar=1`."),
]


@router.get("/answer", responses=problems(404, 422))
def read_answer(app: AppOf, sweep: SweepOf) -> Document[SweepAnswer]:
    """Say what to train with, by what the sweep has measured so far.

    The best layout with what it reached and how well that is known, how sure it is that it is the best, what it beats
    and by how much (what runs today, the next ranks, the best without each of its choices), and why. A figure is
    `measured`, `estimated` from trials on fewer ranks, or `simulated`, and says so.
    """
    kept, prospects = app.kept_trials.of(sweep.id), sweep.prospects
    found = kept.once(("answer", prospects), lambda: answer(sweep.request, kept.trials, prospects))
    return SweepAnswer(answer=found, prospects=prospects)


@router.get("/choices", responses=problems(404, 422))
def read_choices(app: AppOf, sweep: SweepOf, rows: _Choice = None, columns: _Choice = None) -> Document[SweepChoices]:
    """State which choices mattered among the ranked trials of a sweep.

    How much of the differences in throughput each choice explains, by itself and beyond the others; what single changes
    did to otherwise equal layouts; and the best of every pair of values of two choices.
    """
    kept = app.kept_trials.of(sweep.id)
    key = ("mattered", rows, columns)
    found, grid = kept.once(key, lambda: app.asides.ask(mattered, sweep.request, kept.trials, rows, columns))
    return SweepChoices(choices=found, grid=grid)


@router.get("/layers", responses=problems(404, 422))
def read_layers(app: AppOf, sweep: SweepOf) -> Document[SweepLayers]:
    """What each layer of communication gives to a sweep's job: predicted, and measured by its trials.

    Strategy alone, with task scheduling, with collectives, flow scheduling and network: each layer's best is found with
    the options of all before it, and of later ones at their defaults.
    """
    kept = app.kept_trials.of(sweep.id)
    predicted = kept.once("layers", lambda: app.asides.search(layer_report, sweep.request.job, sweep.request.space))
    return SweepLayers(predicted=predicted, measured=measured_layers(sweep.request.objective, kept.trials))


@router.get("/failures", responses=problems(404, 422))
def read_failures(app: AppOf, sweep: SweepOf) -> Document[SweepFailures]:
    """Group a sweep's trials that died by cause: what they share, the number that decided, the nearest way out."""
    kept = app.kept_trials.of(sweep.id)
    return SweepFailures(items=kept.once("failures", lambda: failures(sweep.request, kept.trials)))


@router.get("/accuracy", responses=problems(404, 422))
def read_accuracy(app: AppOf, sweep: SweepOf) -> Document[SweepAccuracy]:
    """Hold the predictions of a sweep to what its trials reached: each pair, how many kept their interval, errors."""
    kept = app.kept_trials.of(sweep.id)
    return kept.once("accuracy", lambda: accuracy(sweep.request, kept.trials))


@router.get("/front", responses=problems(404, 422))
def read_front(app: AppOf, sweep: SweepOf, metrics: _Metrics = "", profile: _Profile = "") -> Document[SweepFront]:
    """List the trials of a sweep that no other beats in everything, and why each is among them.

    A trial is on the front where none is as good by every metric and better by one. Each says what it is the best in,
    what more of anything else costs, and how much of the front stands and falls with it; all others say what beats
    them. A profile names one of them without another sweep.
    """
    objective = _asked(metrics, profile)
    require_told(objective, sweep.request.job.cluster, has_trace=sweep.request.fault_trace is not None)
    kept = app.kept_trials.of(sweep.id)
    if objective == Objective():
        return kept.once("front", lambda: sweep_front(sweep.request, kept.trials))
    return sweep_front(sweep.request, kept.trials, objective.front, objective.profile)


def _asked(metrics: str, profile: str) -> Objective:
    return Objective(front=read_metrics(metrics, "metrics"), profile=read_profile(profile, "profile"))
