"""Print what users can do on each surface: commands with their options, REST operations, pages. One line each, sorted.

Compare two checkouts: run this in both, and ``diff`` the outputs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import typer
from fastapi.routing import APIRoute

from autotuner.api.main import create_app
from autotuner.cli.main import app


def commands(group: Any, prefix: str = "") -> Iterator[str]:
    """Yield one line for each command that runs something, with its options and arguments."""
    for name, command in group.commands.items():
        here = f"{prefix} {name}".strip()
        if hasattr(command, "commands"):
            yield from commands(command, here)
            continue
        words = (word for option in command.params for word in (*option.opts, *option.secondary_opts))
        yield f"command {here}: {' '.join(sorted(words))}"


def operations(document: Any) -> Iterator[str]:
    """Yield one line for each operation of an OpenAPI document, with its parameters."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            parameters = sorted(each["name"] for each in operation.get("parameters", ()))
            yield f"operation {method.upper()} {path} {' '.join(parameters)}".rstrip()


def pages(service: Any) -> Iterator[str]:
    """Yield one line for each page of the dashboard, with its query parameters."""
    for included in service.routes:
        for route in getattr(getattr(included, "original_router", None), "routes", ()):
            if isinstance(route, APIRoute) and not route.path.startswith("/api/") and not route.include_in_schema:
                query = sorted(each.alias for each in route.dependant.query_params)
                yield from (f"page {method} {route.path} {' '.join(query)}".rstrip() for method in route.methods or ())


def main() -> None:
    """Print one line for each command, REST operation and page of this checkout."""
    service = create_app()
    lines = {*commands(typer.main.get_command(app)), *operations(service.openapi()), *pages(service)}
    sys.stdout.write("\n".join(sorted(lines)) + "\n")


if __name__ == "__main__":
    main()
