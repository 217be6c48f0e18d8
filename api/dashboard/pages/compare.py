"""The page that compares two to four layouts: of trials, the best of sweeps, explored ones, or a user's own flags."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Form, Query, Request, Response

from autotuner.api.dashboard.render import page
from autotuner.api.dependencies import AppOf
from autotuner.api.edge.auth import needs
from autotuner.api.layout_candidates import asked_about
from autotuner.core.access import Scope
from autotuner.core.sweep import SweepOverview
from autotuner.core.trial import Trial
from autotuner.report.comparison import comparison_report
from autotuner.search.results.layout_comparison import LETTERS, side_by_side
from autotuner.service.build import App
from autotuner.store.options import Page

router = APIRouter(include_in_schema=False, default_response_class=Response)

_NUM_OFFERED = 8

_MOST_CHARACTERS = 1_000_000

_Of = Annotated[list[str], Query(max_length=8)]
_Flags = Annotated[str, Form(max_length=_MOST_CHARACTERS)]


@router.get("/compare")
def compare_page(request: Request, app: AppOf, of: _Of = []) -> Response:  # noqa: B006  # nobody changes it
    """Show how two to four layouts differ, which one is faster and why; below two, offer layouts to choose."""
    return _page(request, app, of)


@router.post("/compare", openapi_extra=needs(Scope.READ))
def compare_with_flags(
    request: Request,
    app: AppOf,
    of: Annotated[list[str], Form(max_length=8)] = [],  # noqa: B006  # nobody changes it
    flags: _Flags = "",
) -> Response:
    """Compare the layouts named in ``of`` with the layout in a trainer's configuration (``flags``).

    A form posts the configuration, because it is too long for the address of a page.
    """
    return _page(request, app, of, flags)


def _page(request: Request, app: App, of: Sequence[str], flags: str = "") -> Response:
    found = asked_about(app, of, flags)
    asked = found.asked
    report = comparison_report(side_by_side(asked), asked) if len(asked) > 1 else None  # of four: milliseconds
    sweeps = [] if asked else _sweeps(app)
    first = asked[0].trial if asked else None
    return page(
        request,
        "compare.html",
        candidates=asked,
        sweep=app.store.get_sweep(first.sweep_id) if first else None,
        problems=found.problems,
        flags=flags,
        report=report,
        address=_address([one.of for one in asked]),
        without=_without([one.of for one in asked]),
        has_room=len(asked) < len(LETTERS),
        sweeps=sweeps,
        preselected=_of_one_model(sweeps),
        trials=_trials(app, first) if first and len(asked) == 1 else [],
    )


def _address(of: Sequence[str]) -> str:
    """Return the address of the page that compares these candidates, relative to the service."""
    return f"/compare?{urlencode([('of', one) for one in of])}"


def _without(of: Sequence[str]) -> dict[str, str]:
    """Return, by letter, the address of the page without each candidate.

    Empty for two candidates, which must both stay.
    """
    without = {
        letter: _address([one for one in of if one is not out]) for letter, out in zip(LETTERS, of, strict=False)
    }
    return without if len(of) > 2 else {}


def _sweeps(app: App) -> list[SweepOverview]:
    """Return the newest sweeps that measured something."""
    found, _ = app.store.list_overviews(now=app.clock.now(), page=Page(limit=3 * _NUM_OFFERED))
    return [sweep for sweep in found if sweep.best_trial_id][:_NUM_OFFERED]


def _of_one_model(sweeps: Sequence[SweepOverview]) -> tuple[str, ...]:
    """Return the ids of the newest two sweeps of the same model; empty if there are none."""
    for newer in sweeps:
        for older in sweeps:
            if older is not newer and older.model == newer.model:
                return newer.id, older.id
    return ()


def _trials(app: App, beside: Trial) -> list[Trial]:
    """Return the best trials of a trial's sweep, without the trial itself."""
    ranked, _ = app.store.ranking(beside.sweep_id, page=Page(limit=_NUM_OFFERED + 1))
    return [trial for trial in ranked if trial.id != beside.id][:_NUM_OFFERED]
