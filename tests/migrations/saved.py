"""Databases as older revisions left them."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection

REVISIONS = Path(__file__).parent / "revisions"


def load(connection: Connection, revision: str) -> None:
    """Fill an empty database with the one saved at that revision."""
    for statement in (REVISIONS / f"{revision}.sql").read_text().strip().split(";\n"):
        connection.exec_driver_sql(statement)
