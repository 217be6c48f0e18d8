"""What a trainer's log says of its death: lines that name a cause, and torchrun's summary of who died of what."""

from __future__ import annotations

import re
from dataclasses import dataclass

from autotuner.core.trial import COMMUNICATION, OUT_OF_LIMITED_MEMORY, OUT_OF_MEMORY
from autotuner.launch.ranks import Death

_RANK = re.compile(r"^\s*\[rank(\d+)\]:\s?")
"""What torch puts before each line of the traceback of a rank."""

_RANKS = re.compile(r"(?=\[rank\d+\]:)")

_ERROR = re.compile(r"^((?:\w+\.)*\w*(?:Error|Exception|Failure|Exit|Interrupt))(?::\s*(.*))?$")
"""Last line of a traceback."""

_OF_THE_AGENT = ("ChildFailedError", "SignalException", "KeyboardInterrupt", "SystemExit")
"""Errors that only say that somebody else died, or was ended."""

_COMMUNICATION_ERRORS = (
    *("DistBackendError", "DistNetworkError", "DistStoreError", "DistError", "TimeoutError"),
    *("ConnectionError", "ConnectionResetError", "ConnectionRefusedError", "BrokenPipeError", "EOFError"),
)

_SUMMARY_RANK = re.compile(r"^\s*rank\s*:\s*(\d+)\b")
_SUMMARY_EXIT = re.compile(r"^\s*exitcode\s*:\s*(-?\d+)\b")
_SUMMARY_ROOT = "Root Cause"

_MOST = 16
"""Complaints that are kept; the first tell most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """A line that names a cause.

    Attributes:
        rank: Who said it, where the line tells.
    """

    text: str
    rank: int | None


class Symptoms:
    """Hears every line, and remembers those that name a cause.

    Attributes:
        out_of_memory: The first line in words of memory that has run out.
        out_of_limited_memory: The first in words that mean it where memory is limited.
        communication: The first of a lost peer.
        error: The first error that is none of communication.
        root: The rank that torchrun found dead first.
    """

    def __init__(self) -> None:
        self.out_of_memory: Complaint | None = None
        self.out_of_limited_memory: Complaint | None = None
        self.communication: Complaint | None = None
        self.error: Complaint | None = None
        self.root: Death | None = None
        self._is_at_root = False
        self._root_rank: int | None = None

    def heard(self, line: str) -> None:
        """One line of what the trainer printed."""
        self._hear_summary(line)
        for piece in filter(None, _RANKS.split(line)):  # ranks that write at once share a line
            self._hear(piece)

    def _hear(self, line: str) -> None:
        signed = _RANK.match(line)
        rank = int(signed.group(1)) if signed else None
        text = _RANK.sub("", line).strip()
        complaint = Complaint(text=text, rank=rank)
        name = _error_name(text)
        if name == "MemoryError" or _mentions(text, OUT_OF_MEMORY):
            self.out_of_memory = self.out_of_memory or complaint
        elif _mentions(text, OUT_OF_LIMITED_MEMORY):
            self.out_of_limited_memory = self.out_of_limited_memory or complaint
        elif name in _COMMUNICATION_ERRORS or _mentions(text, COMMUNICATION):
            self.communication = self.communication or complaint
        elif name is not None and name not in _OF_THE_AGENT:
            self.error = self.error or complaint

    def _hear_summary(self, line: str) -> None:
        """Torchrun lists other failures first and the root cause, the first that it observed, last."""
        if _SUMMARY_ROOT in line:
            self._is_at_root, self._root_rank = True, None
        elif self._is_at_root and (rank := _SUMMARY_RANK.match(line)):
            self._root_rank = int(rank.group(1))
        elif self._is_at_root and self._root_rank is not None and (code := _SUMMARY_EXIT.match(line)):
            self.root = self.root or Death(rank=self._root_rank, exit_code=int(code.group(1)))
            self._is_at_root = False


def _error_name(text: str) -> str | None:
    found = _ERROR.match(text)
    return found.group(1).rpartition(".")[2] if found else None


def _mentions(text: str, phrases: tuple[str, ...]) -> bool:
    return any(phrase in text for phrase in phrases)
