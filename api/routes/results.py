"""The results of a sweep, its trials as a table, and trials across sweeps."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Response

from autotuner.api.dependencies import AppOf, PageOf, SweepOf, TrialFilterOf, TrialId
from autotuner.api.openapi import problems
from autotuner.core.documents import MAX_INTEGER, Document, extended
from autotuner.core.listed import Listed
from autotuner.core.objective import Objective, read_metrics, read_profile, require_told
from autotuner.core.sweep import Sweep
from autotuner.search.explain.layers import SweepLayers, layer_report, measured_layers
from autotuner.search.results.failures import FailureGroup, failures
from autotuner.search.results.reached import RankedTrial, standings
from autotuner.search.results.sensitivity import SweepChoices, sweep_choices
from autotuner.search.results.sweep_answer import Accuracy, SweepAnswer, accuracy, answer
from autotuner.search.results.sweep_front import SweepFront, sweep_front
from autotuner.search.results.trial_query import TableQuery, TableSlice
from autotuner.search.results.trial_table import TableRow, as_csv
from autotuner.service.build import App

# Results of a sweep: the answer and its certainty, sensitivities, failures, and the accuracy of predictions.

results_router = APIRouter(prefix="/sweeps/{sweep_id}", tags=["sweeps"])

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


@results_router.get("/answer", responses=problems(404, 422))
def read_answer(app: AppOf, sweep: SweepOf) -> Document[SweepAnswer]:
    """Say what to train with, by what the sweep has measured so far.

    The best layout with what it reached and how well that is known, how sure it is that it is the best, what it beats
    and by how much (what runs today, the next ranks, the best without each of its choices), and why. A figure is
    `measured`, `estimated` from trials on fewer ranks, or `simulated`, and says so.
    """
    kept = app.kept_trials.of(sweep.id)
    found = kept.once("answer", lambda: answer(sweep.request, kept.trials))
    return SweepAnswer(answer=found, prospects=sweep.prospects)


@results_router.get("/choices", responses=problems(404, 422))
def read_choices(app: AppOf, sweep: SweepOf, rows: _Choice = None, columns: _Choice = None) -> Document[SweepChoices]:
    """State which choices mattered among the ranked trials of a sweep.

    How much of the differences in throughput each choice explains, by itself and beyond the others; what single changes
    did to otherwise equal layouts; and the best of every pair of values of two choices.
    """
    kept = app.kept_trials.of(sweep.id)
    key = ("mattered", rows, columns)
    return kept.once(key, lambda: app.asides.ask(sweep_choices, sweep.request, kept.trials, rows, columns))


@results_router.get("/layers", responses=problems(404, 422))
def read_layers(app: AppOf, sweep: SweepOf) -> Document[SweepLayers]:
    """Return the gain of each communication layer for a sweep's job: predicted, and measured by its trials.

    Strategy alone, with task scheduling, with collectives, flow scheduling and network: each layer's best is found with
    the options of all before it, and of later ones at their defaults.
    """
    kept = app.kept_trials.of(sweep.id)
    predicted = kept.once("layers", lambda: app.asides.search(layer_report, sweep.request.job, sweep.request.space))
    return SweepLayers(predicted=predicted, measured=measured_layers(sweep.request.objective, kept.trials))


@results_router.get("/failures", responses=problems(404, 422))
def read_failures(app: AppOf, sweep: SweepOf) -> Document[Listed[FailureGroup]]:
    """Group a sweep's trials that died by cause: what they share, the number that decided, the nearest way out."""
    kept = app.kept_trials.of(sweep.id)
    return Listed.whole(kept.once("failures", lambda: failures(sweep.request, kept.trials)))


@results_router.get("/accuracy", responses=problems(404, 422))
def read_accuracy(app: AppOf, sweep: SweepOf) -> Document[Accuracy]:
    """Hold the predictions of a sweep to what its trials reached: each pair, how many kept their interval, errors."""
    kept = app.kept_trials.of(sweep.id)
    return kept.once("accuracy", lambda: accuracy(sweep.request, kept.trials))


@results_router.get("/front", responses=problems(404, 422))
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


# The trials of a sweep as a table: sorted, filtered, with the columns that somebody wants, as JSON and as CSV.

tables_router = APIRouter(tags=["sweeps"])

_MOST_ROWS = 10_000

_LONGEST = 2000

RowsOf = Literal["ranked", "untried"]
"""Rows of a table: trials with a rank, or the best predicted layouts that no trial has tried."""


async def _query(
    where: Annotated[
        str,
        Query(
            max_length=_LONGEST,
            description="Conditions, all of which a row meets: a column, one of `= != > < >= <=`, and a value. MFU is "
            "in percent and memory in GB, unless a number says another unit; words of a layout (`tp4`) do, too.",
            examples=["tp=4 pp>1 recompute=none mfu>40"],
        ),
    ] = "",
    sort: Annotated[
        str,
        Query(max_length=100, description="A column; `-` before it: the highest first.", examples=["-tokens_per_s"]),
    ] = "",
    columns: Annotated[
        str,
        Query(max_length=_LONGEST, description="Columns with commas between them; else the usual ones."),
    ] = "",
) -> TableQuery:
    return TableQuery.read(where, sort, columns)


TableQueryOf = Annotated[TableQuery, Depends(_query)]

_Rows = Annotated[
    RowsOf,
    Query(
        description="`ranked`: trials that have a rank. `untried`: of the 1,000 best layouts by prediction those "
        "that no trial tried."
    ),
]


def table_rows(app: App, sweep: Sweep, rows: RowsOf) -> tuple[TableRow, ...]:
    """Return the rows of a sweep's table, the best first: its ranked trials, or predicted layouts that never ran."""
    trials = app.kept_trials.of(sweep.id)
    if rows == "untried":
        return app.sweep_tables.untried(app.informed(sweep), trials)
    return app.sweep_tables.ranked(sweep, trials)


@tables_router.get("/sweeps/{sweep_id}/table", responses=problems(404, 422))
def read_table(
    app: AppOf,
    sweep: SweepOf,
    query: TableQueryOf,
    rows: _Rows = "ranked",
    limit: Annotated[int, Query(ge=1, le=_MOST_ROWS, description="Rows on the page.")] = 50,
    offset: Annotated[int, Query(ge=0, le=MAX_INTEGER, description="Rows to skip.")] = 0,
) -> Document[TableSlice]:
    """Read a sweep's trials as a table: the rows, the order and the columns that are asked for.

    Every column has a name by which it is chosen, sorted by and compared with; the answer tells what each means.
    """
    return TableSlice.of(table_rows(app, sweep, rows), query, limit=limit, offset=offset)


@tables_router.get(
    "/sweeps/{sweep_id}/table.csv",
    response_class=Response,
    responses={200: {"content": {"text/csv": {}}}, **problems(404, 422)},
)
def read_table_csv(app: AppOf, sweep: SweepOf, query: TableQueryOf, rows: _Rows = "ranked") -> Response:
    """Read the same table as CSV, every row that meets the conditions: SI units, the layout in words last."""
    written = as_csv(query.rows(table_rows(app, sweep, rows)), query.columns)
    headers = {"Content-Disposition": f'attachment; filename="{sweep.id}.csv"'}
    return Response(written, media_type="text/csv", headers=headers)


# Trials across sweeps: one by its id, and the ranking of all.

trials_router = APIRouter(tags=["trials"])


@trials_router.get("/trials/{trial_id}", responses=problems(404, 422))
def read_trial(app: AppOf, trial_id: TrialId) -> Document[RankedTrial]:
    """Read a trial: layout, prediction, measurement or failure, convergence gate, every step, and its rank."""
    trial = app.store.get_trial(trial_id)
    known = standings(app.store.ranked_times(trial.sweep_id))
    return RankedTrial.of_sweep(trial, app.store.get_sweep(trial.sweep_id).request, known)


@trials_router.get("/ranking", responses=problems(422))
def rank_all(app: AppOf, where: TrialFilterOf, page: PageOf) -> Document[Listed[RankedTrial]]:
    """Rank the trials of all sweeps by measured MFU, highest first."""
    trials, total = app.store.ranking(where=where, page=page)
    ranked = tuple(extended(RankedTrial, trial.brief, rank=rank) for rank, trial in enumerate(trials, page.offset + 1))
    return Listed(items=ranked, total=total, limit=page.limit, offset=page.offset)
