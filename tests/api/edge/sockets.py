"""Requests as bytes on a socket, for what no client library would send."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from tests.patience import PATIENCE_S


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came back until the server closed the connection."""

    text: str

    @property
    def status(self) -> int:
        """HTTP status; 0 where the connection was closed without a word."""
        return int(self.text.split(" ", 2)[1]) if self.text else 0


def head(address: str, method: str, path: str, *fields: str) -> bytes:
    """The head of a request."""
    lines = (f"{method} {path} HTTP/1.1", f"Host: {urlsplit(address).netloc}", *fields, "", "")
    return "\r\n".join(lines).encode()


@contextmanager
def connected(address: str) -> Iterator[socket.socket]:
    """A connection to the server."""
    parts = urlsplit(address)
    with socket.create_connection((parts.hostname or "", parts.port or 80), timeout=PATIENCE_S) as connection:
        yield connection


def sent(address: str, *pieces: bytes, pause_s: float = 0.0) -> Answer:
    """What the server answers to these bytes before it closes the connection, of its own accord."""
    with connected(address) as connection:
        for piece in pieces:
            try:
                connection.sendall(piece)
            except OSError:  # it has closed already
                break
            time.sleep(pause_s)
        return read(connection)


def read(connection: socket.socket) -> Answer:
    """Everything until the end of the connection."""
    found = bytearray()
    try:
        while piece := connection.recv(65_536):
            found += piece
    except ConnectionResetError:
        pass
    return Answer(text=found.decode(errors="replace"))
