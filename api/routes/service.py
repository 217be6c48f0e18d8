"""The service itself: its health and metrics, callers and their tokens, the audit log, webhooks and feeds."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response

from autotuner.api.dependencies import AppOf, CallerOf, Name, PageOf
from autotuner.api.edge.auth import OPEN, needs
from autotuner.api.events import ATOM, JSON_FEED, Feed
from autotuner.api.metrics import CONTENT_TYPE, Metrics
from autotuner.api.openapi import problems
from autotuner.core.access import AuditEntry, CallerUsage, Scope, Token, TokenCreate, TokenCreated
from autotuner.core.announcement import (
    Delivery,
    DeliveryState,
    WebhookAnswer,
    WebhookCreate,
    WebhookCreated,
    WebhookStanding,
)
from autotuner.core.documents import Document
from autotuner.core.health import Health, Incident, Readiness, WorkerStanding
from autotuner.core.listed import Listed
from autotuner.service.build import App
from autotuner.store.options import Page

# Is the process alive, and can it serve.

health_router = APIRouter(tags=["health"])


@health_router.get("/health", responses=problems(), openapi_extra=OPEN)
async def health() -> Document[Health]:
    """Report that the process of the service answers. The database is not asked. Restart the process if this fails."""
    return Health()


@health_router.get("/ready", responses=problems(), openapi_extra=OPEN)
def ready(app: AppOf) -> Document[Readiness]:
    """Report that the database answers, is migrated and accepts writes. Send no requests to the service if this fails.

    A service without workers is ready too, but its sweeps wait. Watch `num_workers` for this case.
    """
    revision, now = app.store.check(), app.clock.now()
    num_workers = sum(worker.is_alive(now) for worker in app.store.health.workers())
    return Readiness(schema_revision=revision, num_workers=num_workers)


# Metrics for Prometheus.

metrics_router = APIRouter(include_in_schema=False)


@metrics_router.get("/metrics", response_class=Response)
def metrics(request: Request) -> Response:
    """Return metrics of requests, of the event loop and of the stored data for Prometheus."""
    measured: Metrics = request.app.state.metrics
    return Response(measured.text(), media_type=CONTENT_TYPE)


# Workers.

workers_router = APIRouter(tags=["health"])


@workers_router.get("/workers", responses=problems())
def list_workers(app: AppOf) -> Document[Listed[WorkerStanding]]:
    """List the workers, each with its state and the sweep that it runs.

    A worker that was stopped normally is no longer listed; a worker that died is listed for a day.
    """
    return Listed.whole(app.worker_standings())


# Incidents that need attention now.

attention_router = APIRouter(tags=["health"])


@attention_router.get("/attention", responses=problems())
def list_attention(app: AppOf) -> Document[Listed[Incident]]:
    """List the incidents that nobody has fixed yet, each with the page on which to handle it.

    Incidents are: sweeps that wait while no worker is alive; retunes whose last run found a regression or could not
    run; gates that failed, could not run or stayed undecided; failed sweeps whose job no later sweep has measured;
    clusters whose last check failed; and webhooks with deliveries that were given up. Sweeps, gates and deliveries are
    listed for a week.
    """
    return Listed.whole(app.store.health.attention(now=app.clock.now()))


# The audit log: who changed what, and who was refused.

audit_router = APIRouter(tags=["access"])

CallerName = Annotated[
    str | None, Query(max_length=128, description="Name of a caller: return only the requests of this caller.")
]


@audit_router.get("/audit", responses=problems(422), openapi_extra=needs(Scope.ADMIN))
def read_audit(app: AppOf, page: PageOf, caller: CallerName = None) -> Document[Listed[AuditEntry]]:
    """List changes and refused requests, newest first, each with its caller, its time and the caller's address.

    Requests that only read, predict or explain are not listed. A refusal that is repeated within a minute is listed
    once.
    """
    found, total = app.store.access.audit(caller=caller, page=page)
    return Listed(items=tuple(found), total=total, limit=page.limit, offset=page.offset)


# Callers and their tokens.

tokens_router = APIRouter(tags=["access"])

_ADMIN = needs(Scope.ADMIN)

TokenId = Annotated[str, Path(pattern=r"^[a-z0-9]{1,32}$", examples=["k3v7q2mxn5"])]


@tokens_router.get("/caller", responses=problems())
def read_caller(app: AppOf, caller: CallerOf) -> Document[CallerUsage]:
    """Read your own identity: your name, your scope, your quota, and how much of the quota you use now."""
    usage = app.store.access.usage(caller.name, now=app.clock.now())
    return CallerUsage(name=caller.name, scope=caller.scope, quota=caller.quota, token_id=caller.token_id, usage=usage)


@tokens_router.post("/tokens", status_code=201, responses=problems(400, 422), openapi_extra=_ADMIN)
def create_token(app: AppOf, caller: CallerOf, body: Document[TokenCreate]) -> Document[TokenCreated]:
    """Create a token for a person or a program. Only this answer contains the text of the token."""
    token, text = app.tokens.add(body.name, body.scope, body.quota, expires_at=body.expires_at, created_by=caller.name)
    return TokenCreated(token=token, text=text)


@tokens_router.get("/tokens", responses=problems(), openapi_extra=_ADMIN)
def list_tokens(app: AppOf) -> Document[Listed[Token]]:
    """List all API tokens without their secret texts, each with the time of its last use."""
    return Listed.whole(app.tokens.all())


@tokens_router.post("/tokens/{token_id}/revoke", responses=problems(404, 422), openapi_extra=_ADMIN)
def revoke_token(app: AppOf, token_id: TokenId) -> Document[Token]:
    """Revoke a token and end the browser sessions that it opened; the next request with it is refused.

    A token that was revoked before keeps the date of that revocation.
    """
    return app.tokens.revoke(token_id)


# Webhooks: where outcomes are announced, and how each delivery stands.

webhooks_router = APIRouter(tags=["webhooks and feed"])

DeliveryId = Annotated[str, Path(pattern=r"^[A-Za-z0-9-]{1,64}$", examples=["dl-4f9c2kq7xz"])]
_WebhookOf = Annotated[
    str | None,
    Query(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._:+-]{0,127}$", description="Name of a webhook: return only deliveries to it."
    ),
]
_StateOf = Annotated[DeliveryState | None, Query(description="Return only deliveries in this state.")]


@webhooks_router.post("/webhooks", status_code=201, responses=problems(400, 409, 422), openapi_extra=needs(Scope.ADMIN))
def create_webhook(
    request: Request, response: Response, app: AppOf, caller: CallerOf, body: Document[WebhookCreate]
) -> Document[WebhookCreated]:
    """Create a webhook: from now on, the service posts outcomes to its URL, signed by the Standard Webhooks scheme.

    Only this answer contains the secret for the signatures. The URL must use https and lead to the public internet,
    unless the operator allows other networks.
    """
    added = app.webhooks.add(body, caller.name)
    response.headers["Location"] = request.url_for("read_webhook", name=added.name).path
    return WebhookCreated(webhook=app.webhooks.standing(added), secret=added.secret)


@webhooks_router.get("/webhooks", responses=problems())
def list_webhooks(app: AppOf) -> Document[Listed[WebhookStanding]]:
    """List the webhooks, each with the number of its deliveries that wait and of those that were given up."""
    return Listed.whole(app.webhooks.standings())


@webhooks_router.get("/webhooks/{name}", responses=problems(404, 422))
def read_webhook(app: AppOf, name: Name) -> Document[WebhookStanding]:
    """Read a webhook: its format, the outcomes that it gets, and how many of its deliveries wait or were given up.

    The answer has neither its secret nor the part of its URL after the host.
    """
    return app.webhooks.standing(app.store.announcements.get_webhook(name))


@webhooks_router.delete("/webhooks/{name}", responses=problems(404, 422), openapi_extra=needs(Scope.ADMIN))
def remove_webhook(app: AppOf, name: Name) -> Document[WebhookStanding]:
    """Remove a webhook with its deliveries (posts of outcomes), including those that have not been sent yet."""
    removed = app.webhooks.standing(app.store.announcements.get_webhook(name))
    app.store.announcements.remove_webhook(name)
    return removed


@webhooks_router.post("/webhooks/{name}/test", responses=problems(404, 422), openapi_extra=needs(Scope.ADMIN))
def test_webhook(app: AppOf, name: Name) -> Document[WebhookAnswer]:
    """Post a test message to a webhook once, without further attempts, and return the answer of its receiver."""
    return app.webhooks.test(name)


@webhooks_router.get("/deliveries", responses=problems(404, 422))
def list_deliveries(
    app: AppOf, page: PageOf, webhook: _WebhookOf = None, state: _StateOf = None
) -> Document[Listed[Delivery]]:
    """List deliveries (posts of outcomes to webhooks), newest first. Those in the state `dead` were given up.

    You can send such a delivery again.
    """
    if webhook is not None:
        app.store.announcements.get_webhook(webhook)
    found, total = app.store.announcements.deliveries(webhook=webhook, state=state, page=page)
    return Listed(items=tuple(found), total=total, limit=page.limit, offset=page.offset)


@webhooks_router.post(
    "/deliveries/{delivery_id}/send-again", responses=problems(404, 409, 422), openapi_extra=needs(Scope.ADMIN)
)
def send_again(app: AppOf, delivery_id: DeliveryId) -> Document[Delivery]:
    """Queue a delivery (the post of an outcome to a webhook) again, whether it arrived or was given up.

    A pending delivery is refused with 409.
    """
    return app.store.announcements.send_again(delivery_id, now=app.clock.now())


# The feed of outcomes.

feeds_router = APIRouter(tags=["webhooks and feed"])

_JSON: dict[str, Any] = {"content": {JSON_FEED: {"schema": {"type": "object"}}}}
_ATOM: dict[str, Any] = {"content": {ATOM: {"schema": {"type": "string"}}}}


@feeds_router.get("/feed.json", response_class=Response, responses={200: _JSON, **problems(422)})
def json_feed(request: Request, app: AppOf, page: PageOf) -> Response:
    """Read the announcements (outcomes of sweeps, gates and retunes), newest first, as a JSON Feed, version 1.1.

    `next_url` is the address of the page with older announcements.
    """
    return Response(_feed(request, app, page, "json_feed").as_json(), media_type=JSON_FEED)


@feeds_router.get("/feed.atom", response_class=Response, responses={200: _ATOM, **problems(422)})
def atom_feed(request: Request, app: AppOf, page: PageOf) -> Response:
    """Read the announcements (outcomes of sweeps, gates and retunes), newest first, as an Atom feed (RFC 4287)."""
    return Response(_feed(request, app, page, "atom_feed").as_atom(), media_type=ATOM)


def _feed(request: Request, app: App, page: Page, route: str) -> Feed:
    announcements, total = app.store.announcements.feed(page=page)
    home = app.settings.public_url or str(request.base_url)
    path = f"{home.rstrip('/')}{request.app.url_path_for(route)}"
    seen = page.offset + len(announcements)
    return Feed(
        announcements=announcements,
        home=home,
        url=_with(path, page.limit, page.offset),
        next_url=_with(path, page.limit, seen) if announcements and seen < total else None,
        now=app.clock.now(),
    )


def _with(path: str, limit: int, offset: int) -> str:
    """Return the address of a page of the feed; the first page with the default length has no query."""
    asked = {"limit": limit, "offset": offset}
    return path if asked == {"limit": 50, "offset": 0} else f"{path}?limit={limit}&offset={offset}"
