"""``autotuner thin``, ``backup`` and ``restore``: what an operator does with the database of the settings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotuner.cli.options import Json


def thin(
    days: Annotated[
        float | None,
        typer.Option("--days", min=0, help="Age of steps and events to delete. Default: AUTOTUNER_KEEP_STEPS_DAYS."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Delete the steps and events of old sweeps, and old announcements, plans and audit entries.

    Measurements stay, and so does everything that later sweeps learn from.
    Workers delete old records every hour by themselves.

    Example: autotuner thin --days 90
    """
    from dataclasses import asdict, replace

    from autotuner.cli.console import console, print_json
    from autotuner.runs.clock import SystemClock
    from autotuner.service.settings import Settings
    from autotuner.store.schema import migrate_if_embedded
    from autotuner.store.sql import open_store

    settings = Settings()
    migrate_if_embedded(settings.database_url)
    store = open_store(settings.database_url)
    ages = settings.ages if days is None else replace(settings.ages, steps=days)
    done = store.retention.run(ages, now=SystemClock().now())
    store.close()
    if as_json:
        return print_json(asdict(done))
    console().print(
        f"thinned {done.num_sweeps:,} sweeps: {done.num_steps:,} steps and {done.num_events:,} events removed; "
        f"and {done.num_announcements:,} announcements, {done.num_plans:,} plans, "
        f"{done.num_audit_entries:,} audit entries",
        highlight=False,
    )
    return None


def backup(file: Annotated[Path, typer.Argument(help="New file to write. It becomes an SQLite database.")]) -> None:
    """Write the whole database into one file while the service keeps running.

    Example: autotuner backup copy.db
    """
    from autotuner.service.settings import Settings
    from autotuner.store.copying import backup as copy

    rows = copy(Settings().database_url, file)
    _say(rows, f"in {file} ({file.stat().st_size / 1e6:.1f} MB)")


def restore(file: Annotated[Path, typer.Argument(help="File that `autotuner backup` wrote.")]) -> None:
    """Fill an empty database from a backup.

    AUTOTUNER_DATABASE_URL names the database, SQLite or PostgreSQL.

    Example: autotuner restore copy.db
    """
    from autotuner.service.settings import Settings
    from autotuner.store.copying import restore as fill

    settings = Settings()
    _say(fill(file, settings.database_url), f"in {settings.database_url.split('@')[-1]}")  # without a password


def _say(rows: dict[str, int], where: str) -> None:
    from autotuner.cli.console import console

    console().print(
        f"sweeps: {rows['sweeps']:,}, trials: {rows['trials']:,}, rows in all: {sum(rows.values()):,}, {where}",
        highlight=False,
        soft_wrap=True,
    )
