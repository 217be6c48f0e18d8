"""Why a trial died."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["FailureKind", "TrialFailure"]


class FailureKind(StrEnum):
    """Why a trial died."""

    OOM = "oom"
    TIMEOUT = "timeout"
    COMMUNICATION = "communication"
    NUMERICS = "numerics"
    CRASH = "crash"
    INTERRUPTED = "interrupted"  # the service died around it, more often than it may be tried again
    INFRASTRUCTURE = "infrastructure"  # its nodes were lost or its machine had no room, as often as it may be tried


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFailure:
    """A trial that died.

    Attributes:
        message: One line for a table.
        rank: The rank that died first, where it is known.
        log_tail: The last lines that rank printed.
    """

    kind: FailureKind
    message: str
    rank: int | None = None
    log_tail: str = ""
