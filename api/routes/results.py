"""What came of a sweep: the answer and how sure it is, what mattered, what failed, how right predictions were."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from api.dependencies import AppOf, SweepOf
from api.documents import Document
from api.openapi import problems
from api.schemas import SweepAccuracy, SweepAnswer, SweepChoices, SweepFailures
from autotuner.search.results.accuracy import accuracy
from autotuner.search.results.answer import answer
from autotuner.search.results.failures import failures
from autotuner.search.results.grid import mattered

__all__ = ["router"]

router = APIRouter(prefix="/sweeps/{sweep_id}", tags=["sweeps"])

_Choice = Annotated[
    str | None,
    Query(description="A choice: `tp`, `pp`, `dp`, `cp`, `ep`, `mb`, `sharding` or an option by its name."),
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
