"""SqliteFile: the file under an engine stays the one that the engine began with."""

from __future__ import annotations

import os
from typing import Any

from sqlalchemy import Connection, Engine, event

from autotuner.core.errors import StoreUnavailable


def watch_file(engine: Engine, path: str) -> None:
    """Refuse every transaction once another file, or none, lies at that path.

    Without this, connections that are open go on writing to a file that nobody finds any more, and new ones make
    an empty one in its place.
    """
    file = _SqliteFile(path)
    event.listen(engine, "do_connect", lambda *_: file.check())
    event.listen(engine, "connect", lambda *_: file.remember())

    def before_transaction(_: Connection) -> None:
        file.check()

    event.listen(engine, "begin", before_transaction)


class _SqliteFile:
    def __init__(self, path: str) -> None:
        self._path = path
        self._first: Any = None

    def remember(self) -> None:
        self._first = self._first or self._found()

    def check(self) -> None:
        if self._first is None or (found := self._found()) == self._first:
            return
        what = "is gone" if found is None else "is another file than it was"
        raise StoreUnavailable(
            f"the database {self._path} {what}: somebody deleted, moved or replaced it under this process. "
            "Put it back, or restart the process to use what lies there now"
        )

    def _found(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return (found.st_dev, found.st_ino)
