"""The pages of the service: engines and workers, trainers, calibrations, support, webhooks, tokens, the audit log."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Form, Query, Request, Response
from pydantic import BaseModel, StringConstraints
from starlette.responses import RedirectResponse

from autotuner.api.dashboard.render import report_page, service_of
from autotuner.api.dependencies import AppOf, CallerOf
from autotuner.api.edge.auth import needs
from autotuner.api.routes.service import CallerName, DeliveryId, TokenId
from autotuner.catalog.hardware import accelerators, load_accelerator
from autotuner.catalog.models import models
from autotuner.catalog.software import stacks
from autotuner.core.access import Quota, Scope
from autotuner.core.announcement import DeliveryState
from autotuner.core.cluster import Cluster
from autotuner.core.documents import MAX_INTEGER
from autotuner.core.errors import InvalidInput
from autotuner.core.listed import Listed
from autotuner.core.model import TransformerSpec
from autotuner.core.value import require_one_of
from autotuner.report.calibration import calibrations_report
from autotuner.report.service import announcing_report, audit_report, running_report, tokens_report, trainers_report
from autotuner.report.support import support_report
from autotuner.service.build import App
from autotuner.store.options import Page

# The page of engines and workers: what trials run on, whether it answers, and who runs sweeps.

router = APIRouter(include_in_schema=False, default_response_class=Response)


@router.get("/engines")
def engines_page(request: Request, app: AppOf) -> Response:
    """Show the state of every engine (such as Slurm, which runs trials on a cluster) and of every worker.

    The page asks the engines for their state when it is opened, which may take seconds.
    """
    clusters = app.store.descriptions.stored(Cluster).items
    engines = app.engine_standings()
    used = {engine.name: [one.name for one in clusters if one.engine == engine.name] for engine in engines}
    return report_page(request, running_report(engines, used, app.worker_standings()))


# The page of trainers that sweeps may name, and what each can be told.


@router.get("/trainers")
def trainers_page(request: Request, app: AppOf) -> Response:
    """Show all registered trainers (programs that can run trials), in the order in which the operator listed them."""
    return report_page(request, trainers_report(app.trainer_offers()))


# The page of what stored trials taught of hardware and software.

_Part = Annotated[Literal["live"] | None, Query()]


@router.get("/calibrations")
def calibrations_page(request: Request, app: AppOf, part: _Part = None) -> Response:
    """Show every platform that trials ran on, with its trials and the factor between measured and predicted step times.

    A platform is an accelerator with its links and its software.
    """
    report = calibrations_report(app.calibration_cache.calibrations(), service_of(request))
    return report_page(request, report, part=part, every_s=10)


# The page of what is measured, borrowed and assumed in predictions.

_Chosen = Annotated[str, Query(max_length=128)]


@router.get("/support")
def support_page(
    request: Request, app: AppOf, model: _Chosen = "", accelerator: _Chosen = "", stack: _Chosen = ""
) -> Response:
    """Show which predictions were compared with measured runs, for all accelerators and stacks or for the chosen ones.

    ``model``, ``accelerator`` and ``stack`` are names; empty: all.
    """
    found = app.read_support(model=model, accelerator=accelerator, stack=stack)
    shown = {"accelerator": load_accelerator(accelerator).name if accelerator else "", "stack": stack.lower()}
    choices = {
        "model": ("all models", [*app.store.descriptions.names(TransformerSpec), *models()], model),
        "accelerator": ("all accelerators", accelerators(), shown["accelerator"]),
        "stack": ("all stacks", stacks(), shown["stack"]),
    }
    asked = {name: given for name, given in request.query_params.items() if given and name in choices}
    own = "/api/v1/support" + (f"?{urlencode(asked)}" if asked else "")
    return report_page(request, support_report(found), json=own, template="support.html", choices=choices)


# The page of webhooks and their deliveries.

_DELIVERIES_PER_PAGE = 25

_Number = Annotated[int, Query(ge=1, le=MAX_INTEGER // _DELIVERIES_PER_PAGE)]


@router.get("/webhooks")
def webhooks_page(
    request: Request,
    app: AppOf,
    caller: CallerOf,
    part: _Part = None,
    state: DeliveryState | None = None,
    number: _Number = 1,
) -> Response:
    """Show all webhooks and their deliveries, newest first. With ``state``, only deliveries in that state are shown."""
    window = Page(limit=_DELIVERIES_PER_PAGE, offset=(number - 1) * _DELIVERIES_PER_PAGE)
    found, total = app.store.announcements.deliveries(state=state, page=window)
    listed = Listed(items=tuple(found), total=total, limit=window.limit, offset=window.offset)
    may_send = caller.scope.covers(Scope.ADMIN)
    report = announcing_report(app.webhooks.standings(), listed, state, service_of(request), has_buttons=may_send)
    return report_page(request, report, part=part, every_s=3)


@router.post("/webhooks/deliveries/{delivery_id}/send-again", openapi_extra=needs(Scope.ADMIN))
def send_again(request: Request, app: AppOf, delivery_id: DeliveryId) -> Response:
    """Queue the delivery of an announcement to a webhook once more, and redirect to the page of webhooks."""
    app.store.announcements.send_again(delivery_id, now=app.clock.now())
    return RedirectResponse(f"{request.scope.get('root_path', '')}/webhooks", 303)


# The page of tokens: who has one, a form for another, and a button that takes one back.

_ADMIN = needs(Scope.ADMIN)
_A_DAY_S = 86_400
_MOST_DAYS = 3650

_Text = Annotated[str, StringConstraints(max_length=200)]


class _TokenForm(BaseModel):
    """The texts of the form for a new token."""

    name: _Text = ""
    """Name of the person or the program that will use the token."""
    scope: _Text = ""
    """Scope of the token; empty: ``run``."""
    days: _Text = ""
    """Days until the token expires; empty: it never expires."""
    unfinished_sweeps: _Text = ""
    """Greatest number of unfinished sweeps at a time; empty: no limit."""
    accelerator_hours_per_day: _Text = ""
    """Greatest number of accelerator-hours within a day; empty: no limit."""
    requests_per_minute: _Text = ""
    """Greatest number of requests within a minute; empty: the limit of the service."""


@router.get("/tokens", openapi_extra=_ADMIN)
def tokens_page(request: Request, app: AppOf) -> Response:
    """Show all API tokens by name, without their secret texts."""
    return _page(request, app, given=_TokenForm())


@router.post("/tokens", openapi_extra=_ADMIN)
def create(request: Request, app: AppOf, caller: CallerOf, form: Annotated[_TokenForm, Form()]) -> Response:
    """Make an API token and show its secret text; no later page can show that text again.

    If a text of the form is not legal, the form is shown again with the error and status 422.
    """
    try:
        quota = Quota(
            unfinished_sweeps=_whole("unfinished_sweeps", form.unfinished_sweeps),
            accelerator_hours_per_day=_number("accelerator_hours_per_day", form.accelerator_hours_per_day),
            requests_per_minute=_whole("requests_per_minute", form.requests_per_minute),
        )
        expires_at, scope = _expires_at(form.days, app.clock.now()), _scope(form.scope or Scope.RUN)
        token, text = app.tokens.add(form.name.strip(), scope, quota, expires_at=expires_at, created_by=caller.name)
    except InvalidInput as error:
        return _page(request, app, given=form, error=error, status=422)
    return _page(request, app, given=_TokenForm(), made=token, text=text, status=201)


@router.post("/tokens/{token_id}/revoke", openapi_extra=_ADMIN)
def revoke(request: Request, app: AppOf, token_id: TokenId) -> Response:
    """Revoke a token, so that it is refused from the next request on, and redirect to the page of tokens."""
    app.tokens.revoke(token_id)
    return RedirectResponse(f"{request.scope.get('root_path', '')}/tokens", 303)


def _page(request: Request, app: App, **shown: Any) -> Response:
    report = tokens_report(app.tokens.all(), now=app.clock.now())
    values = {"error": None, "made": None, "text": "", "scopes": list(Scope), **shown}
    return report_page(request, report, template="tokens.html", **values)


def _scope(text: str) -> Scope:
    require_one_of("scope", text, Scope)
    return Scope(text)


def _expires_at(days: str, now: float) -> float | None:
    number = _number("days", days)
    if number is None:
        return None
    if not 0 < number <= _MOST_DAYS:
        rule = f"must be a number of days above 0 and at most {_MOST_DAYS}, for example 90"
        raise InvalidInput("days", days, rule)
    return now + number * _A_DAY_S


def _number(name: str, text: str) -> float | None:
    if not text.strip():
        return None
    try:
        return float(text)
    except ValueError as error:
        raise InvalidInput(name, text, "must be a number, or empty for no limit") from error


def _whole(name: str, text: str) -> int | None:
    number = _number(name, text)
    if number is None:
        return None
    if not number.is_integer():
        raise InvalidInput(name, text, "must be a whole number", max(1, round(number)) if abs(number) < 1e9 else None)
    return int(number)


# The page of the audit log.

_ENTRIES_PER_PAGE = 50

_AuditNumber = Annotated[int, Query(ge=1, le=MAX_INTEGER // _ENTRIES_PER_PAGE)]


@router.get("/audit", openapi_extra=needs(Scope.ADMIN))
def audit_page(
    request: Request, app: AppOf, part: _Part = None, caller: CallerName = None, number: _AuditNumber = 1
) -> Response:
    """Show the audit log (who changed what, and who was refused), newest first, for all callers or for one."""
    window = Page(limit=_ENTRIES_PER_PAGE, offset=(number - 1) * _ENTRIES_PER_PAGE)
    found, total = app.store.access.audit(caller=caller, page=window)
    listed = Listed(items=tuple(found), total=total, limit=window.limit, offset=window.offset)
    return report_page(request, audit_report(listed, caller or ""), part=part, every_s=10)
