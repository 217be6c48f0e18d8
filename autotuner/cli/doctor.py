"""``autotuner doctor``: the parts of the installation, whether each works, and the command that mends it."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING

import typer

from autotuner.cli.console import show
from autotuner.cli.flags import Json, Server
from autotuner.core.errors import AutotunerError

if TYPE_CHECKING:
    from autotuner.report.report import Report

_BROKEN = 2


@dataclass(frozen=True)
class Finding:
    """The state of one part of the installation for ``autotuner doctor``, with the command that mends the part."""

    part: str
    state: str
    """``works``, ``missing`` for a part that can be added, or ``broken`` for one that must be mended."""
    detail: str
    mend: str = ""
    """The command that adds or mends the part; empty if nothing is to do."""


def doctor(server: Server = None, as_json: Json = False) -> None:
    """Check this installation: extras, devices, engines, the database and the service.

    Each part that is missing or broken is shown with the command that mends it.
    Exit code 2: a part is broken.

    Example: autotuner doctor
    """
    found = [*_installation(), *(_here() if server is None else _engines(server))]
    show(found, _report, as_json=as_json)
    if any(one.state == "broken" for one in found):
        raise typer.Exit(_BROKEN)


def _installation() -> Iterator[Finding]:
    from autotuner.extras import extras, installing, not_installed

    yield Finding("autotuner", "works", f"{version('parallelism-autotuner')} on Python {platform.python_version()}")
    for name in extras():
        absent = not_installed(name)
        if absent:
            yield Finding(f"extra {name}", "missing", f"without {', '.join(absent)}", installing(name))
        else:
            yield Finding(f"extra {name}", "works", "installed")


def _here() -> Iterator[Finding]:
    from autotuner.extras import installing, not_installed

    yield _devices()
    if not_installed("service"):
        yield Finding("database", "missing", "sweeps are stored by the service", installing("service"))
        return
    yield _database()
    yield from _engines(None)


def _devices() -> Finding:
    from autotuner.door import Autotuner

    try:
        found = Autotuner().cluster("local", is_measured=False)
    except AutotunerError as error:
        return Finding("devices", "missing", str(error), f"{sys.executable} -m pip install torch")
    return Finding("devices", "works", f"{found.world_size} × {found.accelerator.name}")


def _database() -> Finding:
    from autotuner.service.settings import Settings
    from autotuner.store.schema import migrate_if_embedded
    from autotuner.store.sql import open_store

    settings = Settings()
    try:
        migrate_if_embedded(settings.database_url)
        store = open_store(settings.database_url)
        try:
            revision = store.check()
        finally:
            store.close()
    except AutotunerError as error:
        return Finding("database", "broken", str(error), "autotuner migrate, or set AUTOTUNER_DATABASE_URL")
    return Finding("database", "works", f"{settings.database_address}, schema revision {revision}")


def _engines(server: str | None) -> Iterator[Finding]:
    """Yield the engines of this machine or of a service, and the service itself first."""
    from autotuner.cli.console import open_service

    try:
        with open_service(server, keep=False) as service:
            engines = service.list_engines().items
    except AutotunerError as error:
        yield Finding("service", "broken", str(error), "autotuner serve, or set AUTOTUNER_TOKEN")
        return
    if server is not None:
        yield Finding("service", "works", f"answers at {server}")
    for one in engines:
        mend = "" if one.answers else "mend the engine's entry in AUTOTUNER_ENGINES"
        yield Finding(f"engine {one.name}", "works" if one.answers else "broken", one.answer, mend)


def _report(found: list[Finding]) -> Report:
    from autotuner.report.report import Code, Column, Report, Section, State, Table

    looks = {"works": "complete", "missing": "paused", "broken": "failed"}
    columns = [
        Column("part", is_number=False),
        Column("state", is_number=False),
        Column("found", is_number=False, may_wrap=True),
    ]
    rows = [(one.part, State(one.state, look=looks[one.state]), one.detail) for one in found]
    sections = [Section(blocks=(Table(columns=columns, rows=rows),))]
    if mends := [f"{one.mend}  # {one.part}" for one in found if one.mend]:
        sections.append(Section(title="To add or mend", blocks=(Code("\n".join(mends) + "\n"),)))
    num_broken = sum(one.state == "broken" for one in found)
    headline = (
        f"{num_broken} of {len(found)} parts are broken." if num_broken else "Everything that is installed works."
    )
    return Report(headline=headline, sections=sections)
