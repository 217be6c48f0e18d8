"""Many readers of the events of sweeps, as cheap as they can be: the service is timed, not they."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

_SETTLED_S = 1.0  # what happened while readers connected counts as history


@dataclass(slots=True, kw_only=True)
class Read:
    """What readers waited."""

    first_s: list[float] = field(default_factory=list)
    """Each reader, from its request to its first event."""
    late_s: list[float] = field(default_factory=list)
    """Each event of each reader, from when it happened to when it was read."""


async def read_events(address: str, sweep_ids: Sequence[str], *, num_readers: int, seconds: float) -> Read:
    """Have so many readers, spread over the sweeps, read for that long or until the sweeps end.

    Raises:
        RuntimeError: A reader was refused.
    """
    found = Read()
    ids = [sweep_ids[number % len(sweep_ids)] for number in range(num_readers)]
    async with asyncio.TaskGroup() as readers:
        for sweep_id in ids:
            readers.create_task(_read(address, sweep_id, found, seconds))
    return found


async def _read(address: str, sweep_id: str, found: Read, seconds: float) -> None:
    where = urlsplit(address)
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_connection(where.hostname, where.port, limit=1 << 20)
            try:
                path = f"/api/v1/runs/{sweep_id}/events"
                writer.write(f"GET {path} HTTP/1.1\r\nHost: {where.netloc}\r\nConnection: close\r\n\r\n".encode())
                await _read_lines(reader, found)
            finally:
                writer.close()
    except TimeoutError:
        return


async def _read_lines(reader: asyncio.StreamReader, found: Read) -> None:
    started, began, is_first = time.perf_counter(), time.time(), True
    status = await reader.readline()
    if b" 200 " not in status:
        raise RuntimeError(f"a reader of events was answered {status.decode().strip()}")
    async for line in reader:
        if not line.startswith(b"data:"):
            continue
        if is_first:
            found.first_s.append(time.perf_counter() - started)
            is_first = False
        happened = json.loads(line.removeprefix(b"data:"))["at"]
        if happened > began + _SETTLED_S:
            found.late_s.append(time.time() - happened)
