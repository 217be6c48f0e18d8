"""The page that asks for a sweep: a form that says at once what the sweep would search, and starts it."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from starlette.responses import RedirectResponse

from api.dashboard.new_sweep.checked import Checked, Complaint, checked, complaint_of, read
from api.dashboard.new_sweep.given import CATALOG, Given
from api.dashboard.new_sweep.inputs import AXES, BUDGET, GENERAL, INPUTS, LOSS_GATE, TRIAL, WORKLOAD
from api.dashboard.new_sweep.said import Said, said
from api.dashboard.render import page
from api.dashboard.views.new_sweep import Choices, job_facts, outfalls, summary
from api.dependencies import AppOf, CallerOf
from api.edge.auth import needs
from autotuner.core.access import Caller, Scope
from autotuner.core.cluster import SIMULATED
from autotuner.core.errors import Busy, Conflict, InvalidInput, NotFound, QuotaExceeded, TooCostly
from autotuner.core.layout import Layout
from autotuner.core.rules.legality import reasons
from autotuner.core.stack import Stack
from autotuner.core.sweep import SweepRequest
from autotuner.launch.simulation import SCENARIOS
from autotuner.report.link_faults import slow_links
from autotuner.search.space.trainers import trial_rules
from autotuner.service.build import App

router = APIRouter(include_in_schema=False, default_response_class=Response)

_Part = Annotated[Literal["answer", "remedies"] | None, Query()]
"""The answer at once, or with what would help where nothing fits."""

_STACK = Stack().name
"""Software that our own decoder runs."""

_STRIP = 400
"""Pixels of a fault trace beside the form."""

_ONCE = "once"
"""Input with what a page's form has for itself, so that sending it twice starts one sweep."""


async def _given(request: Request) -> Given:
    form = await request.form()
    return Given.of_pairs(((name, text) for name, text in form.multi_items() if isinstance(text, str)), is_form=True)


_GivenOf = Annotated[Given, Depends(_given)]


@router.get("/new")
def new_sweep_page(request: Request, app: AppOf, caller: CallerOf, clone: str | None = None) -> Response:
    """The form: as another sweep was asked for, as an address says, or for a job that everybody knows."""
    notes: tuple[str, ...] = ()
    try:
        given, notes = _first(request, app, clone)
    except (InvalidInput, NotFound) as error:
        given, wrong = Given.of_query((), app), complaint_of(error)
        return _page(request, app, caller, checked(given, app).having(wrong))
    return _page(request, app, caller, checked(given, app), notes=notes)


def _first(request: Request, app: App, clone: str | None) -> tuple[Given, tuple[str, ...]]:
    """What the form shows first, and what to know of it."""
    if clone is not None:
        original = app.store.get_sweep(clone).request
        return Given.of_request(original, app), _not_cloned(original)
    given = Given.of_query(request.query_params.multi_items(), app)
    words, stack = request.query_params.get("layout"), request.query_params.get("stack", _STACK)
    notes: tuple[str, ...] = (
        () if stack == _STACK else (f"Trials run PyTorch itself, or a trainer that is picked here, not {stack}.",)
    )
    given, where = _placed(given, app)
    notes += where
    found = read(given, app) if words else None
    if words is None or found is None or found.request is None:
        return given, notes
    return given.holding(words, found.request.space), (*notes, _held(words, found.request))


def _placed(given: Given, app: App) -> tuple[Given, tuple[str, ...]]:
    """Choose simulated trials where this machine cannot run them and the address says nothing of it."""
    if given.text("cluster.from") != CATALOG or given.text("cluster.engine"):
        return given, ()
    found = read(given, app)
    refusal = None if found.request is None else app.refusal(found.request)
    if refusal is None or refusal.field != "cluster":
        return given, ()
    simulated = f"{SIMULATED}/{next(iter(SCENARIOS))}"
    why = refusal.rule.removeprefix("cannot be tried here: ")
    note = f"Trials are simulated, since {why}. Choose under “Trials run on” who runs real ones."
    return Given(values={**given.values, "cluster.engine": (simulated,)}), (note,)


def _held(words: str, request: SweepRequest) -> str:
    """Whether a trial can run the layout that somebody comes from, whose values the space holds."""
    if broken := reasons(Layout.parse(words), request.job, trial_rules(request.trainer)):
        return f"No trial can run the layout you come from, {words}: {broken[0].message}. The space holds its values."
    return f"The space holds the layout you come from, {words}."


def _not_cloned(original: SweepRequest) -> tuple[str, ...]:
    notes = []
    if original.job.calibration is not None:
        notes.append("Runs that were sent with the original as measured are not taken over; send them by REST.")
    if original.challenge is not None:
        notes.append("What the original compared its layouts with is not taken over.")
    return tuple(notes)


@router.post("/new/check", openapi_extra=needs(Scope.READ))
def check_new_sweep(request: Request, app: AppOf, caller: CallerOf, given: _GivenOf, part: _Part = None) -> Response:
    """What comes of the form as it stands; as a part, only what changes of the page."""
    found = checked(given, app, with_remedies=part != "answer")
    if part is None:
        return _page(request, app, caller, found)
    return page(request, "new/_part.html", **_answer(request, caller, found, is_whole=part == "remedies"))


@router.post("/new")
def start_new_sweep(request: Request, app: AppOf, caller: CallerOf, given: _GivenOf) -> Response:
    """Queue the sweep and show it; or the form again, with why not."""
    found = read(given, app)
    if found.request is None:
        return _refused(request, app, caller, checked(given, app))
    try:
        run, _ = app.start(found.request, key=_key(given, found.body), caller=caller)
    except QuotaExceeded as error:
        answer = _refused(request, app, caller, checked(given, app), error)
        answer.status_code = HTTPStatus.TOO_MANY_REQUESTS
        return answer
    except (InvalidInput, NotFound, Conflict, TooCostly, Busy) as error:
        return _refused(request, app, caller, checked(given, app), error)
    where = f"{request.scope.get('root_path', '')}/sweeps/{run.id}"
    return RedirectResponse(where, HTTPStatus.SEE_OTHER)


def _refused(request: Request, app: App, caller: Caller, found: Checked, error: Exception | None = None) -> Response:
    """The form as it was sent, with what is wrong."""
    if error is not None:
        wrong = complaint_of(error) if isinstance(error, InvalidInput | NotFound) else Complaint(at="", text=str(error))
        found = found if wrong in found.complaints else found.having(wrong)
    return _page(request, app, caller, found, is_refused=True)


def _key(given: Given, body: Mapping[str, Any]) -> str:
    """The same for a form that is sent twice, and another once something in it changed."""
    text = given.text(_ONCE) + json.dumps(body, sort_keys=True)
    return f"form-{hashlib.sha256(text.encode('utf-8', 'backslashreplace')).hexdigest()}"


def _page(
    request: Request,
    app: App,
    caller: Caller,
    found: Checked,
    *,
    notes: tuple[str, ...] = (),
    is_refused: bool = False,
) -> Response:
    status = HTTPStatus.UNPROCESSABLE_ENTITY if is_refused else HTTPStatus.OK
    return page(
        request,
        "new/page.html",
        status=status,
        choices=Choices.of(app, found.given),
        inputs=INPUTS,
        groups={"workload": WORKLOAD, "budget": BUDGET, "trial": TRIAL, "loss_gate": LOSS_GATE, "general": GENERAL},
        once=found.given.text(_ONCE) or secrets.token_urlsafe(),
        notes=notes,
        is_refused=is_refused,
        **_answer(request, caller, found),
    )


def _answer(request: Request, caller: Caller, found: Checked, *, is_whole: bool = True) -> dict[str, Any]:
    """What of the page changes with the form."""
    preview = found.preview
    model, cluster = ("", "") if found.shown is None else job_facts(found.shown)
    return {
        "found": found,
        "is_whole": is_whole,
        "given": found.given,
        "preview": preview,
        "summary": summary(found.complaints, preview),
        "outfalls": () if preview is None else outfalls(preview),
        "limit_bytes": None if found.shown is None else found.shown.trial_job.cluster.accelerator.memory_bytes,
        "model_facts": model,
        "cluster_facts": cluster,
        "links": None if found.shown is None else slow_links(found.shown, _STRIP),
        "axes": AXES,
        "suits": _suits(found),
        "may_run": caller.scope.covers(Scope.RUN),
        "said": _said(request, caller, found),
    }


def _suits(found: Checked) -> dict[str, str]:
    """What is searched of each axis for which nobody chose values."""
    if found.shown is None:
        return {}
    return {name: axis.in_words(found.shown.space.values(name)) for name, axis in AXES.items()}


def _said(request: Request, caller: Caller, found: Checked) -> Said | None:
    if found.request is None:
        return None
    service = str(request.base_url).rstrip("/")
    return said(found.body, found.request, service, asks=bool(caller.name))
