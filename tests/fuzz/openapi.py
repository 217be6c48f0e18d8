"""``python -m tests.fuzz.openapi``: requests thought up from the OpenAPI document, with login and without.

``FUZZ_REQUESTS`` says how many, both together (2,000); ``FUZZ_SEED`` which (random; it is printed). An answer fails
that is a 5xx, or that the document does not say: its status, headers, media type or body. Half of the requests are
about one operation each, half follow each other, the ids that one answer tells sent with the next.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import hypothesis
import schemathesis
from hypothesis import HealthCheck, Phase, given
from schemathesis.checks import CheckFunction
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import ignored_auth, positive_data_acceptance, unsupported_method

from autotuner.api.main import create_app
from autotuner.core.access import Scope
from autotuner.launch.this_machine import detect_cluster
from autotuner.service.build import App
from autotuner.store.sql import memory_store
from tests.api.access import bearing
from tests.api.service import app_on

_UNCHECKED: list[CheckFunction] = [positive_data_acceptance, unsupported_method, ignored_auth]
"""Much that is well formed is refused for good reasons: names that are not stored, layouts that cannot run. What a path
answers to a method that it does not have, a page may serve. And who shows wrong tokens again and again has to wait."""

_STEPS = 12
"""Requests that follow each other."""


@dataclass(kw_only=True)
class Found:
    """What came of it."""

    statuses: Counter[int] = field(default_factory=Counter)
    """How many answers had each."""
    failures: dict[str, str] = field(default_factory=dict)
    """Answers that were not as documented, in schemathesis' words, by operation."""

    @property
    def num_requests(self) -> int:
        """All that were answered."""
        return self.statuses.total()


def fuzz(app: App, num_requests: int, *, seed: int, headers: dict[str, str]) -> Found:
    """Send about so many requests to a service of the application.

    Args:
        app: Of a store of its own.
        num_requests: At least; what is under way when that many were sent is ended.
        seed: The same requests for the same seed and the same code.
        headers: Sent with each.
    """
    found = Found()
    schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", create_app(app), headers=headers)
    operations = [cast("Ok[Any]", result).ok() for result in schema.get_all_operations()]
    for operation in operations:
        each = max(1, num_requests // 2 // len(operations))
        found.failures |= _caught(operation.label, lambda: _ask_one(operation, each, seed, headers, found))  # noqa: B023
    while found.num_requests < num_requests and not found.failures:
        num_runs = max(1, (num_requests - found.num_requests) // _STEPS)
        found.failures |= _caught("in a row", lambda: _ask_in_a_row(schema, num_runs, seed, headers, found))  # noqa: B023
        seed += 1
    return found


def _ask_one(operation: Any, num_requests: int, seed: int, headers: dict[str, str], found: Found) -> None:
    @hypothesis.seed(seed)
    @_settings(max_examples=num_requests)
    @given(case=operation.as_strategy())
    def ask(case: Any) -> None:
        _prepare(case, headers)
        response = case.call(headers=headers)
        found.statuses[response.status_code] += 1
        case.validate_response(response, excluded_checks=_UNCHECKED)

    ask()


def _ask_in_a_row(schema: Any, num_runs: int, seed: int, headers: dict[str, str], found: Found) -> None:
    class Requests(schema.as_state_machine()):  # type: ignore[misc]
        def before_call(self, case: Any) -> None:
            _prepare(case, headers)

        def validate_response(self, response: Any, case: Any, **more: Any) -> None:
            found.statuses[response.status_code] += 1
            case.validate_response(response, excluded_checks=_UNCHECKED, **more)

    hypothesis.seed(seed)(Requests)
    Requests.run(settings=_settings(max_examples=num_runs, stateful_step_count=_STEPS))


def _prepare(case: Any, headers: dict[str, str]) -> None:
    """Show the token, and keep it; and events of a sweep that nobody runs would be waited for without end."""
    case.headers = {**(case.headers or {}), **headers}
    own = headers.get("Authorization", "at_none_").split("_")[1]
    case.path_parameters = {name: "none" if value == own else value for name, value in case.path_parameters.items()}
    if case.path.endswith("/events"):
        case.query = {**(case.query or {}), "wait": "false"}


def _settings(**more: Any) -> hypothesis.settings:
    return hypothesis.settings(
        deadline=None,
        database=None,
        phases=[Phase.generate],  # what fails is told as it was sent
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        **more,
    )


def _caught(label: str, ask: Callable[[], None]) -> dict[str, str]:
    try:
        ask()
    except hypothesis.errors.FlakyStrategyDefinition:
        return {}  # a service remembers what it was sent: the next seed goes on
    except (AssertionError, schemathesis.errors.SchemathesisError, BaseExceptionGroup) as error:
        return {label: f"{type(error).__name__}: {error}"}
    return {}


def main() -> int:
    """Both services, half of the requests each."""
    total = int(os.environ.get("FUZZ_REQUESTS", "2000"))
    seed = int(os.environ.get("FUZZ_SEED", random.randrange(2**31)))
    detect_cluster()  # measured once per process, which takes longer than a client waits
    failed = False
    for login in ("none", "tokens"):
        app = app_on(memory_store(), login=login, requests_per_minute=10**9, log_level="error")
        headers = bearing(app.tokens.add("fuzz", Scope.ADMIN)[1]) if login == "tokens" else {}
        started = time.perf_counter()
        found = fuzz(app, total // 2, seed=seed, headers=headers)
        statuses = ", ".join(f"{number} x {status}" for status, number in sorted(found.statuses.items()))
        _say(f"login {login}, seed {seed}: {found.num_requests} requests in {time.perf_counter() - started:.0f} s")
        _say(f"  {statuses}; {len(found.failures)} operations answered otherwise than documented")
        for label, told in found.failures.items():
            _say(f"--- {label}\n{told}")
        failed |= bool(found.failures)
    return int(failed)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
