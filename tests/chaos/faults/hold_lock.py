"""Somebody holds SQLite's write lock for longer than a lease is kept."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from tests.chaos.scene import Scene


def strike(scene: Scene) -> str:
    """A transaction that writes and does not end, as of a process that is stopped in it."""
    path = scene.database.direct_url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, timeout=30.0, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        seconds = scene.beyond_the_lease()
        connection.execute("ROLLBACK")
    return f"write lock held for {seconds:.1f} s"
