"""What service and asides tell each other: pickled values over a socket of their own, each behind its length."""

from __future__ import annotations

import pickle
import socket
import struct
from dataclasses import dataclass
from enum import Enum

_LENGTH = struct.Struct("<Q")
_LIMITS = struct.Struct("<dq")


class Outcome(Enum):
    """How a computation ended."""

    ANSWERED = "answered"
    RAISED = "raised"  # what the caller is to hear
    OUT_OF_MEMORY = "out_of_memory"
    BROKEN = "broken"  # by an error of ours


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one computation may take.

    Attributes:
        memory_bytes: Beyond what a process has before it begins.
    """

    seconds: float
    memory_bytes: int

    def packed(self) -> bytes:
        """In as many bytes as any other limits."""
        return _LIMITS.pack(self.seconds, self.memory_bytes)

    @classmethod
    def unpacked(cls, packed: bytes) -> Limits:
        """What was packed."""
        seconds, memory_bytes = _LIMITS.unpack(packed)
        return cls(seconds=seconds, memory_bytes=memory_bytes)


def send(connection: socket.socket, value: object) -> None:
    """Send a value."""
    frame = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    connection.sendall(_LENGTH.pack(len(frame)))
    connection.sendall(frame)


def receive(connection: socket.socket) -> object:
    """The next value.

    Raises:
        EOFError: The other side is gone.
        OSError: It is silent for longer than the connection waits.
    """
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
    return pickle.loads(_exactly(connection, length))


def _exactly(connection: socket.socket, num_bytes: int) -> bytes:
    parts, left = [], num_bytes
    while left:
        part = connection.recv(min(left, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
