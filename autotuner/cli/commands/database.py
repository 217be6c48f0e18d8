"""``autotuner thin``, ``backup`` and ``restore``: what an operator does with the database of the settings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotuner.cli.options import Json

__all__ = ["backup", "restore", "thin"]


def thin(
    days: Annotated[
        float | None, typer.Option("--days", min=0, help="Of steps and events; default AUTOTUNER_KEEP_STEPS_DAYS.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Remove steps and events inside trials of sweeps that ended long ago, and old announcements and audit entries.

    Workers do it by themselves. What was measured stays, and so do rankings and whatever later sweeps learn from.
    """
    from dataclasses import asdict, replace

    from autotuner.cli.console import console, print_json
    from autotuner.cli.service import migrate_if_embedded
    from autotuner.clock import SystemClock
    from autotuner.settings import Settings
    from autotuner.store.sql import open_store
    from autotuner.thinning import Thinning

    settings = Settings()
    migrate_if_embedded(settings)
    store = open_store(settings.database_url)
    ages = settings.ages if days is None else replace(settings.ages, steps=days)
    done = Thinning(store.retention, ages).run(now=SystemClock().now())
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


def backup(file: Annotated[Path, typer.Argument(help="A new file, which becomes one SQLite database.")]) -> None:
    """Write all that the database holds into one file, as it is at one moment, while the service runs."""
    from autotuner.settings import Settings
    from autotuner.store.copying import backup as copy

    rows = copy(Settings().database_url, file)
    _say(rows, f"in {file} ({file.stat().st_size / 1e6:.1f} MB)")


def restore(file: Annotated[Path, typer.Argument(help="As `autotuner backup` wrote it, here or elsewhere.")]) -> None:
    """Fill the empty database of AUTOTUNER_DATABASE_URL, SQLite or PostgreSQL, with what a backup holds."""
    from autotuner.settings import Settings
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
