"""create_app: creates the REST service and the dashboard for one application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache, partial
from importlib.metadata import version

from fastapi import APIRouter, FastAPI
from starlette.routing import BaseRoute

from autotuner.api.dashboard.mount import include_dashboard
from autotuner.api.edge.auth import CHECKS, Callers, check_start, entrance_of
from autotuner.api.edge.limits import (
    Bodies,
    BodyRefused,
    Deadlines,
    Hosts,
    OpenStreams,
    Rates,
    allowed_hosts,
    answer_refused,
    rate_of_address,
    rate_of_caller,
)
from autotuner.api.edge.log import AuditLog, RequestLog
from autotuner.api.errors import add_error_handlers
from autotuner.api.events import LiveEvents
from autotuner.api.metrics import Metrics
from autotuner.api.openapi import install_openapi, operation_id
from autotuner.api.routes import (
    catalog,
    checks,
    gates,
    optimizer_studies,
    questions,
    results,
    retunes,
    runs,
    service,
    sweeps,
)
from autotuner.runs.tracing import tracer_provider
from autotuner.service.build import App, build
from autotuner.service.settings import Settings

_PREFIX = "/api/v1"

_ROUTES = (
    *(
        sweeps.sweeps_router,
        sweeps.control_router,
        runs.router,
        results.results_router,
        results.trials_router,
        results.tables_router,
        questions.predictions_router,
        questions.plans_router,
        questions.explanations_router,
        questions.job_phases_router,
        questions.comparisons_router,
    ),
    *(catalog.calibrations_router, questions.exports_router),
    *(optimizer_studies.router, retunes.router, gates.router, service.webhooks_router, service.feeds_router),
    *(
        catalog.descriptions_router,
        checks.router,
        catalog.topologies_router,
        catalog.catalog_router,
        catalog.stacks_router,
        catalog.support_router,
        catalog.trainers_router,
        service.tokens_router,
        service.audit_router,
        service.attention_router,
        service.workers_router,
        service.health_router,
    ),
)
"""Routers in the order in which the OpenAPI document lists them."""

_DESCRIPTION = """\
Finds the parallel layout that trains a transformer fastest: predicted, tried for real, ranked by MFU.

Numbers under `predicted` come from the cost model, with `relative_error`, the half-width of their 80 % interval;
numbers under `measured` come from trials that ran. Errors are problem documents (RFC 9457).
"""


def create_app(app: App | None = None) -> FastAPI:
    """Return the service (REST routes and dashboard) for an application. Its workers start and stop with the service.

    Args:
        app: The application; None: one is built from environment variables, and closed when the service ends.
    """
    autotuner = app or _built()
    metrics = Metrics(autotuner, _PREFIX)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        autotuner.background.start()
        autotuner.compute.prepare()
        async with metrics.watching():
            yield
        autotuner.rest()
        if app is None:
            autotuner.close()

    api = FastAPI(
        title="Parallelism autotuner",
        version=version("parallelism-autotuner"),
        description=_DESCRIPTION,
        lifespan=lifespan,
        openapi_url=f"{_PREFIX}/openapi.json",
        docs_url=None,  # FastAPI's viewers load their scripts from another site
        redoc_url=None,
        generate_unique_id_function=operation_id,
        telemetry={"tracer_provider": tracer_provider(), "metrics": False, "logs": False, "operation_spans": False},
    )
    api.state.autotuner = autotuner
    api.state.metrics = metrics
    api.state.live_events = LiveEvents(lambda: autotuner.store)
    api.state.entrance = entrance_of(autotuner)
    api.router.routes.extend(_routes())
    add_error_handlers(api)
    _add_edge(api, autotuner.settings, metrics)
    install_openapi(api)
    return api


_SHARING = 10
"""Number of callers at their full rate that one address may have, such as behind NAT or an unlisted proxy."""


def _add_edge(api: FastAPI, settings: Settings, metrics: Metrics) -> None:
    """Add the layers around the routes of ``api``, the innermost first: authentication, limits, and logs."""
    entrance = api.state.entrance
    believed = entrance.believed if entrance else ()
    api.state.streams = OpenStreams(at_once=settings.max_streams, per_caller=settings.max_streams_per_caller)
    api.add_exception_handler(BodyRefused, answer_refused)
    if entrance is not None:
        api.add_middleware(Rates, rate_of=partial(rate_of_caller, per_minute=settings.requests_per_minute))
    api.add_middleware(Callers, entrance=entrance)
    api.add_middleware(Bodies, max_bytes=settings.max_body_bytes, seconds=settings.body_s)
    if entrance is not None:
        per_minute = _SHARING * settings.requests_per_minute
        api.add_middleware(Rates, rate_of=partial(rate_of_address, per_minute=per_minute, believed=believed))
    api.add_middleware(Deadlines, seconds=settings.request_s)
    api.add_middleware(Hosts, allowed=allowed_hosts(settings.hosts, settings.public_url))
    api.add_middleware(AuditLog, believed=believed)  # outside the login, to record its refusals
    api.add_middleware(RequestLog, requests=metrics.requests)


@cache
def _routes() -> tuple[BaseRoute, ...]:
    """Return the routes that all services of this process share; building them takes longer than most requests."""
    router = APIRouter(generate_unique_id_function=operation_id)
    for one in _ROUTES:
        router.include_router(one, prefix=_PREFIX, dependencies=CHECKS)
    router.include_router(service.metrics_router, dependencies=CHECKS)
    include_dashboard(router)
    return tuple(router.routes)


def _built() -> App:
    app = build(Settings())
    check_start(app, app.settings.host)
    return app
