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
from autotuner.search.sweeps.history import all_trials

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
    trials = list(all_trials(app.store, sweep.id))
    found = app.asides.ask(answer, sweep.request, trials, sweep.prospects)
    return SweepAnswer(answer=found, prospects=sweep.prospects)


@router.get("/choices", responses=problems(404, 422))
def read_choices(app: AppOf, sweep: SweepOf, rows: _Choice = None, columns: _Choice = None) -> Document[SweepChoices]:
    """State which choices mattered among the ranked trials of a sweep.

    How much of the differences in throughput each choice explains, by itself and beyond the others; what single changes
    did to otherwise equal layouts; and the best of every pair of values of two choices.
    """
    trials = list(all_trials(app.store, sweep.id))
    found, grid = app.asides.ask(mattered, sweep.request, trials, rows, columns)
    return SweepChoices(choices=found, grid=grid)


@router.get("/failures", responses=problems(404, 422))
def read_failures(app: AppOf, sweep: SweepOf) -> Document[SweepFailures]:
    """Group a sweep's trials that died by cause: what they share, the number that decided, the nearest way out."""
    return SweepFailures(items=app.asides.ask(failures, sweep.request, list(all_trials(app.store, sweep.id))))


@router.get("/accuracy", responses=problems(404, 422))
def read_accuracy(app: AppOf, sweep: SweepOf) -> Document[SweepAccuracy]:
    """Hold the predictions of a sweep to what its trials reached: each pair, how many kept their interval, errors."""
    return app.asides.ask(accuracy, sweep.request, list(all_trials(app.store, sweep.id)))
