"""``autotuner serve``, ``worker`` and ``migrate``: the parts of a service that stays."""

from __future__ import annotations

from typing import Annotated

import typer

from autotuner.cli.options import Json


def serve(
    host: Annotated[str | None, typer.Option("--host", help="Address to listen on. Default: AUTOTUNER_HOST.")] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65535, help="Port to listen on, 0 for a free one. Default: AUTOTUNER_PORT."),
    ] = None,
) -> None:
    """Run the REST service, the dashboard and a worker.

    With AUTOTUNER_NUM_WORKERS=0, it runs no worker.

    Example: autotuner serve --port 8000
    """
    from api.edge.auth import check_start
    from api.main import create_app
    from autotuner.cli.service import run_server
    from autotuner.service.build import build
    from autotuner.service.observing import exporting
    from autotuner.service.settings import Settings
    from autotuner.store.schema import migrate_if_embedded

    settings = Settings()
    migrate_if_embedded(settings.database_url)
    application = build(settings)
    with exporting(settings.telemetry):
        try:
            check_start(application, host or settings.host)
            run_server(create_app(application), host or settings.host, settings.port if port is None else port)
        finally:
            application.close()  # also where a second Ctrl-C cut the server's own shutdown short


def worker() -> None:
    """Run the queued sweeps of the shared database on this machine until interrupted.

    Example: autotuner worker
    """
    from autotuner.cli.signals import interruptible
    from autotuner.service.build import build
    from autotuner.service.observing import exporting
    from autotuner.service.settings import Settings
    from autotuner.store.schema import migrate_if_embedded

    settings = Settings()
    migrate_if_embedded(settings.database_url)
    application = build(settings)
    with exporting(settings.telemetry):
        with interruptible(application.background.request_stop):
            application.background.work()
        application.close()


def migrate(as_json: Json = False) -> None:
    """Upgrade the database to the newest schema.

    Example: autotuner migrate
    """
    from autotuner.cli.console import console, print_json
    from autotuner.service.settings import Settings
    from autotuner.store.schema import head_revision
    from autotuner.store.schema import migrate as migrate_database

    settings = Settings()
    migrate_database(settings.database_url)
    database = settings.database_url.split("@")[-1]  # without a password
    if as_json:
        return print_json({"database": database, "schema_revision": head_revision()})
    console().print(f"{database} is at the newest schema")
    return None
