"""The page for a new sweep: a form that shows at once what the sweep would search, and starts it."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from starlette.responses import RedirectResponse

from autotuner.api.dashboard.elsewhere import elsewhere
from autotuner.api.dashboard.forms import Asked, SentOf, errors_of, group_inputs, names_of
from autotuner.api.dashboard.render import page, service_of
from autotuner.api.dashboard.sweep_form import AXES, CATALOG, INPUTS, OWN, Form, group_of
from autotuner.api.dependencies import AppOf, CallerOf
from autotuner.api.edge.auth import needs
from autotuner.catalog.hardware import accelerators
from autotuner.core import documents
from autotuner.core.access import Caller, Scope
from autotuner.core.cluster import LOCAL, SIMULATED
from autotuner.core.errors import AutotunerError, Busy, Conflict, InvalidInput, NotFound, QuotaExceeded, TooCostly
from autotuner.core.layout import Layout
from autotuner.core.rules.legality import reasons
from autotuner.core.stack import Stack
from autotuner.core.sweep import SweepRequest
from autotuner.core.sweep_requests import SweepCreate
from autotuner.launch.simulation import SCENARIOS
from autotuner.report.report import Report
from autotuner.report.sweep_preview import sweep_preview_report
from autotuner.search.space.trainers import trial_rules
from autotuner.service.build import App

router = APIRouter(include_in_schema=False, default_response_class=Response)

_Part = Annotated[Literal["answer", "remedies"] | None, Query()]
"""Part of the page: the form with a quick answer, or with the remedies if no layout fits."""

_STACK = Stack().name
"""Software stack that our own decoder uses."""

_ONCE = "once"
"""Hidden input with a random value for each form, so that sending a form twice starts one sweep."""

_NOT_SEARCHED = frozenset({"budget", "trial", "seed", "name", "objective", "max_parallel_trials"})
"""Fields that do not change which layouts a sweep searches, except for the memory limit of its trials."""

_REFUSALS = (InvalidInput, NotFound, TooCostly, Busy)

_LABELS = {one.name: one.label for one in INPUTS} | {one.path: one.option.label for one in AXES.values()}


# ---------------------------------------------------------------- reading a form
@dataclass(frozen=True, slots=True, kw_only=True)
class _Checked:
    """The result of reading a form: its request, or its errors."""

    form: Form
    document: Mapping[str, Any] = field(default_factory=dict)
    """Body of ``POST /sweeps``; empty if a text cannot be read."""
    errors: Mapping[str, str] = field(default_factory=dict)
    """Errors by the name of the input; errors about no single input have the empty name."""
    request: SweepRequest | None = None
    """The request; None if something is wrong."""
    shown: SweepRequest | None = None
    """Request of the preview: the whole request, or the request without wrong parts that do not change the search."""
    report: Report | None = None
    """Report of the preview; None if the form has errors, or if the answer would take too long."""
    is_whole: bool = True
    """True if the report is complete; False while parts of it are still computed."""
    notes: tuple[str, ...] = ()
    """Notes about the values with which the form is first shown."""

    def refused(self, error: AutotunerError) -> _Checked:
        """Return a copy with one more error."""
        return replace(self, errors={**errors_of(INPUTS, error, others=OWN), **self.errors})


def _read(form: Form, app: App) -> _Checked:
    """Return the sweep that the form requests, or its errors."""
    found = _Checked(form=form)
    try:
        document = form.document()
        found = replace(found, document=document)
        request = app.sweep(documents.read(SweepCreate, document))
    except _REFUSALS as error:
        return replace(found.refused(error), shown=_search_without(form, app, error))
    return replace(found, request=request, shown=request)


def _search_without(form: Form, app: App, error: AutotunerError) -> SweepRequest | None:
    """Return the request without the wrong fields, if these do not change the search; else None."""
    wrong = {one.field.partition(".")[0] for one in error.complaints} if isinstance(error, InvalidInput) else {""}
    if not wrong <= _NOT_SEARCHED:
        return None
    try:
        return app.sweep(documents.read(SweepCreate, form.document(without=wrong)))
    except _REFUSALS:
        return None


def _check(form: Form, app: App, *, is_whole: bool = True) -> _Checked:
    """Return the request or the errors of a form with a preview; nothing is started.

    With ``is_whole`` False, remedies for a job that does not fit are left for a later request.
    """
    found = _read(form, app)
    if found.shown is None:
        return found
    try:
        preview = app.preview(found.shown, with_remedies=is_whole)
    except _REFUSALS as error:
        return found.refused(error)
    looks_on = not is_whole and preview.predicted.shortfall is not None
    report = sweep_preview_report(found.shown, preview, looks_on=looks_on)
    found = replace(found, report=report, is_whole=not looks_on)
    if (refusal := preview.refusal) is None:
        return found
    hint = ". Choose an engine or a simulation under “Trials run on”"
    rule = f"{refusal.rule}{hint if refusal.field == 'cluster' else ''}"
    return found.refused(InvalidInput(refusal.field, refusal.value, rule, refusal.nearest))


# ---------------------------------------------------------------- the page
def _read_form(sent: SentOf) -> Form:
    return Form.of_pairs(sent)


_GivenOf = Annotated[Form, Depends(_read_form)]


@router.get("/new")
def new_sweep_page(request: Request, app: AppOf, caller: CallerOf, clone: str | None = None) -> Response:
    """Show the form for a new sweep.

    Its fields come from an existing sweep (``clone``), from the query parameters, or from a well-known example job.
    """
    try:
        form, notes = _first(request, app, clone)
    except (InvalidInput, NotFound) as error:
        return _page(request, app, caller, _check(Form.of_query((), app), app).refused(error))
    return _page(request, app, caller, replace(_check(form, app), notes=notes))


def _first(request: Request, app: App, clone: str | None) -> tuple[Form, tuple[str, ...]]:
    """Return the form as it is first shown, and notes about it."""
    if clone is not None:
        original = app.store.get_sweep(clone).request
        return Form.of_request(original, app), _clone_notes(original)
    form = Form.of_query(request.query_params.multi_items(), app)
    words, stack = request.query_params.get("layout"), request.query_params.get("stack", _STACK)
    notes: tuple[str, ...] = (
        () if stack == _STACK else (f"Trials run PyTorch itself, or a trainer that is picked here, not {stack}.",)
    )
    form, where = _place_trials(form, app)
    notes += where
    asked = _read(form, app).request if words else None
    if words is None or asked is None:
        return form, notes
    return form.holding(words, asked.space), (*notes, _layout_note(words, asked))


def _place_trials(form: Form, app: App) -> tuple[Form, tuple[str, ...]]:
    """Choose simulated trials if this machine cannot run real ones and the address does not choose."""
    if form.text("cluster.from") != CATALOG or form.text("cluster.engine"):
        return form, ()
    asked = _read(form, app).request
    refusal = None if asked is None else app.refusal(asked)
    if refusal is None or refusal.field != "cluster":
        return form, ()
    simulated = f"{SIMULATED}/{next(iter(SCENARIOS))}"
    why = refusal.rule.removeprefix("cannot run trials here: ")
    note = f"Trials are simulated, because {why}. To run real trials, choose an engine under “Trials run on”."
    return Form(values={**form.values, "cluster.engine": (simulated,)}), (note,)


def _layout_note(words: str, request: SweepRequest) -> str:
    """Return a note that says if a trial can run the layout from which the user came; the space contains its values."""
    if broken := reasons(Layout.parse(words), request.job, trial_rules(request.trainer)):
        return f"No trial can run the layout you come from, {words}: {broken[0].message}. The space holds its values."
    return f"The space holds the layout you come from, {words}."


def _clone_notes(original: SweepRequest) -> tuple[str, ...]:
    notes = []
    if original.job.calibration is not None:
        notes.append("Measured runs that were sent with the original sweep are not copied; send them through REST.")
    if original.challenge is not None:
        notes.append("The layout or the runs that the original sweep was compared with are not copied.")
    return tuple(notes)


@router.post("/new/check", openapi_extra=needs(Scope.READ))
def check_new_sweep(request: Request, app: AppOf, caller: CallerOf, form: _GivenOf, part: _Part = None) -> Response:
    """Check the form for a new sweep as it was sent, and show it with a preview of the search or with its errors.

    With ``part``, the answer has only the form, for a script.
    """
    found = _check(form, app, is_whole=part != "answer")
    return _page(request, app, caller, found, template="new/_form.html" if part else _WHOLE)


@router.post("/new")
def start_new_sweep(request: Request, app: AppOf, caller: CallerOf, form: _GivenOf) -> Response:
    """Queue the sweep and redirect to its page; if it is refused, show the form again with the reason."""
    found = _read(form, app)
    status = HTTPStatus.UNPROCESSABLE_ENTITY
    if found.request is None:
        return _page(request, app, caller, _check(form, app), status)
    try:
        run, _ = app.start(found.request, key=_key(form, found.document), caller=caller)
    except (*_REFUSALS, Conflict, QuotaExceeded) as error:
        status = HTTPStatus.TOO_MANY_REQUESTS if isinstance(error, QuotaExceeded) else status
        return _page(request, app, caller, _check(form, app).refused(error), status)
    return RedirectResponse(f"{request.scope.get('root_path', '')}/sweeps/{run.id}", HTTPStatus.SEE_OTHER)


def _key(form: Form, document: Mapping[str, Any]) -> str:
    """Return an idempotency key: the same for a form that is sent twice, another one if a value was changed."""
    text = form.text(_ONCE) + json.dumps(document, sort_keys=True)
    return f"form-{hashlib.sha256(text.encode('utf-8', 'backslashreplace')).hexdigest()}"


_WHOLE = "new/page.html"


def _page(
    request: Request,
    app: App,
    caller: Caller,
    found: _Checked,
    status: HTTPStatus = HTTPStatus.OK,
    template: str = _WHOLE,
) -> Response:
    form, shown = found.form, found.shown
    said = None
    if found.request is not None:
        said = elsewhere(form.request_texts(), found.document, service_of(request), asks=bool(caller.name))
    return page(
        request,
        template,
        status=status,
        form=form,
        given=Asked(texts=form.texts, errors=found.errors, report=found.report),
        labels=_LABELS,
        groups=group_inputs(INPUTS, group_of),
        names=names_of(app, INPUTS),
        accelerators=tuple(sorted(accelerators())),
        engines=_engines(app),
        axes=AXES,
        suits={} if shown is None else {name: axis.in_words(shown.space.values(name)) for name, axis in AXES.items()},
        facts=("", "") if shown is None else _job_facts(shown),
        is_whole=found.is_whole,
        may_run=caller.scope.covers(Scope.RUN),
        once=form.text(_ONCE) or secrets.token_urlsafe(),
        notes=found.notes,
        is_refused=status is not HTTPStatus.OK,
        said=said,
    )


def _engines(app: App) -> Mapping[str, str]:
    """Return the engines on which trials of a catalog cluster may run, with a description in words."""
    offered = {LOCAL: "this machine"}
    for name, registered in app.engines.items():
        queues = registered.settings.queues or ("",)
        offered |= {f"{name}/{queue}" if queue else name: f"{name} {queue}".strip() for queue in queues}
    return offered | {f"{SIMULATED}/{name}": f"simulated, {name}" for name in SCENARIOS}


def _job_facts(request: SweepRequest) -> tuple[str, str]:
    """Return a line about the model and a line about the cluster."""
    model, cluster = request.job.model, request.job.cluster
    experts = f", {model.experts.num_experts} experts" if model.experts else ""
    shape = f"{model.num_layers} layers, hidden {model.hidden_size}, {model.num_kv_heads} kv heads{experts}"
    nodes = "1 node" if cluster.num_nodes == 1 else f"{cluster.num_nodes} nodes"
    links = [cluster.intra_node_link.name, *([cluster.inter_node_link.name] if cluster.num_nodes > 1 else [])]
    return shape, f"{nodes} of {cluster.accelerators_per_node} {cluster.accelerator.name}; {', '.join(links)}"
