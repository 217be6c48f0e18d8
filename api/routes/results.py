"""The results of a sweep, its trials as a table, and trials across sweeps."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Response

from autotuner.api.dependencies import AppOf, PageOf, SweepOf, TrialFilterOf, TrialId
from autotuner.api.openapi import problems
from autotuner.core.documents import MAX_INTEGER, Document, extended
from autotuner.core.listed import Listed
from autotuner.core.objective import Objective, read_metrics, read_profile, require_known
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
    Query(
        description="Option of a layout to look at: `tp`, `pp`, `dp`, `cp`, `ep`, `mb`, `sharding`, or the name "
        "of a field of a layout."
    ),
]

_Metrics = Annotated[
    str,
    Query(
        description="Metrics to compare, with commas between them: `mfu,tokens_per_joule`. Default: the metrics of the "
        "sweep's objective."
    ),
]

_Profile = Annotated[
    str,
    Query(
        description="Weight of each metric, with which one trial is chosen from the Pareto front: "
        "`mfu=2,tokens_per_dollar=1`."
    ),
]


@results_router.get("/answer", responses=problems(404, 422))
def read_answer(app: AppOf, sweep: SweepOf) -> Document[SweepAnswer]:
    """Return the recommended layout of a sweep, as far as the sweep has measured.

    The answer has the best layout with its result and the precision of this result, and the probability that it is the
    best. It also has the layouts that this layout beats, with the gain over each: the present layout, the layouts that
    follow in the ranking, and the best layout without each of its options. It also has the reasons. Each figure is
    marked as `measured`, as `estimated` from trials on fewer ranks, or as `simulated`.
    """
    kept = app.kept_trials.of(sweep.id)
    found = kept.once("answer", lambda: answer(sweep.request, kept.trials))
    return SweepAnswer(answer=found, expected_improvement=sweep.expected_improvement)


@results_router.get("/choices", responses=problems(404, 422))
def read_choices(app: AppOf, sweep: SweepOf, rows: _Choice = None, columns: _Choice = None) -> Document[SweepChoices]:
    """Return which options mattered among the ranked trials of a sweep.

    For each option, the answer has the share of the throughput differences that the option explains by itself, and the
    share that only this option explains. It also has the effects of changes of one option between otherwise equal
    layouts, and the best trial for each pair of values of two options.
    """
    kept = app.kept_trials.of(sweep.id)
    key = ("mattered", rows, columns)
    return kept.once(key, lambda: app.compute.ask(sweep_choices, sweep.request, kept.trials, rows, columns))


@results_router.get("/layers", responses=problems(404, 422))
def read_layers(app: AppOf, sweep: SweepOf) -> Document[SweepLayers]:
    """Return the gain of each layer of communication options for a sweep's job: predicted, and among its trials.

    The layers are strategy, task scheduling, collectives, flow scheduling and network. The best layout of each layer is
    searched together with the options of the layers before it; options of later layers keep their defaults.
    """
    kept = app.kept_trials.of(sweep.id)
    predicted = kept.once("layers", lambda: app.compute.search(layer_report, sweep.request.job, sweep.request.space))
    return SweepLayers(predicted=predicted, measured=measured_layers(sweep.request.objective, kept.trials))


@results_router.get("/failures", responses=problems(404, 422))
def read_failures(app: AppOf, sweep: SweepOf) -> Document[Listed[FailureGroup]]:
    """Group the failed trials of a sweep by cause, with a remedy for each group, such as a similar layout that ran.

    A group also has the options that its trials share, and the number that explains them, such as the bytes needed.
    """
    kept = app.kept_trials.of(sweep.id)
    return Listed.whole(kept.once("failures", lambda: failures(sweep.request, kept.trials)))


@results_router.get("/accuracy", responses=problems(404, 422))
def read_accuracy(app: AppOf, sweep: SweepOf) -> Document[Accuracy]:
    """Compare the predictions of a sweep with its results: each pair, the errors, and the share of intervals that held.

    An interval held if the result lies in it.
    """
    kept = app.kept_trials.of(sweep.id)
    return kept.once("accuracy", lambda: accuracy(sweep.request, kept.trials))


@results_router.get("/front", responses=problems(404, 422))
def read_front(app: AppOf, sweep: SweepOf, metrics: _Metrics = "", profile: _Profile = "") -> Document[SweepFront]:
    """List the Pareto front of a sweep: the trials that no other trial beats in every metric, with the reasons.

    A trial is on the front if no other trial is at least as good in every metric and better in one. For each trial on
    the front, the answer says in which metrics it is the best, what an improvement of another metric costs, and how
    much of the front depends on this trial. For each other trial, the answer names a trial that beats it. A profile of
    weights picks one trial of the front without another sweep.
    """
    objective = _asked(metrics, profile)
    require_known(objective, sweep.request.job.cluster, has_trace=sweep.request.fault_trace is not None)
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
            description="Conditions with spaces between them; a row must meet all of them. A condition is a column, "
            "one of `= != > < >= <=`, and a value, or a word of a layout such as `tp4`. MFU is in percent "
            "and memory in GB if the value has no unit.",
            examples=["tp=4 pp>1 recompute=none mfu>40"],
        ),
    ] = "",
    sort: Annotated[
        str,
        Query(
            max_length=100,
            description="Column by which the rows are sorted. With `-` before its name, the highest value comes first.",
            examples=["-tokens_per_s"],
        ),
    ] = "",
    columns: Annotated[
        str,
        Query(
            max_length=_LONGEST, description="Columns to return, with commas between them. Default: the usual columns."
        ),
    ] = "",
) -> TableQuery:
    return TableQuery.read(where, sort, columns)


TableQueryOf = Annotated[TableQuery, Depends(_query)]

_Rows = Annotated[
    RowsOf,
    Query(
        description="`ranked`: trials that have a rank. `untried`: layouts that no trial tried, among the 1,000 best "
        "predicted layouts."
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
    limit: Annotated[int, Query(ge=1, le=_MOST_ROWS, description="Largest number of rows to return.")] = 50,
    offset: Annotated[
        int, Query(ge=0, le=MAX_INTEGER, description="Number of rows to skip before the first returned row.")
    ] = 0,
) -> Document[TableSlice]:
    """Read a sweep's trials as a table with the requested rows, order and columns.

    The name of a column is used to select the column, to sort by it and to filter by it. The answer explains every
    column.
    """
    return TableSlice.of(table_rows(app, sweep, rows), query, limit=limit, offset=offset)


@tables_router.get(
    "/sweeps/{sweep_id}/table.csv",
    response_class=Response,
    responses={200: {"content": {"text/csv": {}}}, **problems(404, 422)},
)
def read_table_csv(app: AppOf, sweep: SweepOf, query: TableQueryOf, rows: _Rows = "ranked") -> Response:
    """Read a sweep's table as CSV, with every row that passes the filter. Values are in SI units.

    The last column is the layout.
    """
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
    """Rank the trials of all sweeps together by measured MFU, highest first, whatever their model and cluster."""
    trials, total = app.store.ranking(where=where, page=page)
    ranked = tuple(extended(RankedTrial, trial.brief, rank=rank) for rank, trial in enumerate(trials, page.offset + 1))
    return Listed(items=ranked, total=total, limit=page.limit, offset=page.offset)
