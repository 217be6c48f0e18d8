"""A network that fails: everything between services and PostgreSQL goes through here."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_CHUNK_BYTES = 1 << 16


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
