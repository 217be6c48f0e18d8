"""Which scope each route needs, as the OpenAPI document says it and as the service holds callers to it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeAlias

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute, iter_route_contexts

from autotuner.api.edge.auth import CHECKS, is_open, needed
from autotuner.api.main import create_app
from autotuner.core.access import Scope
from autotuner.store.sql import memory_store
from tests.api.access import People
from tests.api.service import app_on, serve

READS_BY_POST = {
    "create_plan",
    "predict",
    "preview_sweep",
    "compare_layouts",
    "explain_layout",
    "draw_bandwidth_curve",
    "plan_job_phases",
    "report_layers",
    "export_layout",
    "import_configuration",
    "read_topology",
}
ADMINS_ALONE = {
    *("create_webhook", "remove_webhook", "test_webhook", "send_again"),
    *("create_token", "list_tokens", "revoke_token", "read_audit"),
}


Operations: TypeAlias = list[tuple[str, str, dict[str, Any]]]


def service(login: str) -> FastAPI:
    return create_app(app_on(memory_store(), login=login))


@pytest.fixture(scope="module")
def operations() -> Operations:
    """Method, path and description of each operation."""
    paths: dict[str, Any] = service("tokens").openapi()["paths"]
    return [(method.upper(), path, one) for path, methods in paths.items() for method, one in methods.items()]


def scope_of(operation: dict[str, Any]) -> Scope | None:
    """What the document says; both ways of showing who one is need the same."""
    scopes = {scope for way in operation["security"] for (scope,) in way.values()}
    assert len(scopes) <= 1
    return Scope(scopes.pop()) if scopes else None


@pytest.fixture(scope="module")
def callers() -> Iterator[dict[Scope, httpx.Client]]:
    app = app_on(memory_store(), login="tokens")
    with serve(app) as address:
        people = People(app=app, address=address)
        clients = {scope: people.client(scope, scope.value) for scope in Scope}
        yield clients
        for client in clients.values():
            client.close()


def test_looking_needs_read_and_changing_run_but_for_those_that_are_named_here(operations: Operations) -> None:
    wanted = {
        operation["operationId"]: Scope.READ if method == "GET" else Scope.RUN for method, _, operation in operations
    }
    wanted |= dict.fromkeys(READS_BY_POST, Scope.READ) | dict.fromkeys(ADMINS_ALONE, Scope.ADMIN)
    said = {operation["operationId"]: scope_of(operation) for _, _, operation in operations}
    assert said == wanted | dict.fromkeys(("health", "ready"))


def test_a_caller_below_the_scope_of_an_operation_is_refused_and_no_other(
    callers: dict[Scope, httpx.Client], operations: Operations
) -> None:
    for method, path, operation in operations:
        needs, url = scope_of(operation), re.sub(r"\{\w+\}", "nobody", path.removeprefix("/api/v1"))
        below = [scope for scope in Scope if needs is not None and not scope.covers(needs)]
        for scope in (*below[-1:], needs or Scope.READ):
            with callers[scope].stream(method, url, json={} if method in ("POST", "PUT") else None) as answer:
                is_refused = answer.status_code == 403
            assert is_refused == (scope in below), (method, path, scope, answer.status_code)


def test_the_openapi_document_lists_every_refusal(operations: Operations) -> None:
    for _, path, operation in operations:
        assert ({"401", "403"} <= operation["responses"].keys()) == bool(operation["security"]), path


def test_every_route_asks_for_a_scope_and_every_open_one_is_an_open_path(operations: Operations) -> None:
    routes = [one for one in iter_route_contexts(service("tokens").routes) if isinstance(one.original_route, APIRoute)]
    asked = {check.dependency for check in CHECKS}
    assert len(routes) > len(operations)
    for route in routes:
        assert asked <= {one.call for one in route.dependant.dependencies}, route.path
        for method in route.methods or ():
            assert is_open(str(route.path)) == (needed(route.original_route, method) is None), route.path


def test_a_refusal_says_what_is_needed_and_what_one_has(callers: dict[Scope, httpx.Client]) -> None:
    answer = callers[Scope.READ].post("/sweeps", json={})
    said = "this request needs a token with the scope run, but yours has the scope read"
    assert answer.json()["detail"] == f"{said}; ask an administrator of the service for another token"
