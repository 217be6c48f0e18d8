"""Slurm's job states: as squeue and sacct list them, and what they mean for a trial."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from autotuner.core.trial import EngineJobPhase

SQUEUE_FORMAT = "%A|%T|%r|%N|%j"
"""Number, state, reason, nodes and name; the name last, since it alone may hold a bar."""

SACCT_FIELDS = "JobIDRaw,State,Reason,NodeList,JobName"

_NUMBER = re.compile(r"[0-9]{1,18}")
"""Of a job; Python counts superscripts among digits too."""

_QUEUED = frozenset(
    ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "POWER_UP_NODE")
)
_LOST = frozenset(("NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "LAUNCH_FAILED", "RECONFIG_FAIL", "REVOKED"))
_ENDED = frozenset(("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "DEADLINE", "OUT_OF_MEMORY"))

_NOTHING = ("", "None", "(null)", "N/A", "Unknown", "None assigned")
"""What Slurm prints where there is nothing to say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """A job as Slurm lists it.

    Attributes:
        state: One word, as the long form of squeue writes it.
        reason: Why it waits or ended, in Slurm's word; empty where it says none.
        nodes: The nodes it has or had, as Slurm abbreviates them (``n[1-2]``); empty where it has none.
    """

    number: int
    name: str
    state: str
    reason: str = ""
    nodes: str = ""

    @property
    def phase(self) -> EngineJobPhase:
        """What the state means."""
        return phase_of(self.state)


def phase_of(state: str) -> EngineJobPhase:
    """What a state of Slurm means; one that nobody knows yet is taken for running, which it will not stay for ever."""
    if state in _QUEUED:
        return EngineJobPhase.QUEUED
    if state in _LOST:
        return EngineJobPhase.LOST
    return EngineJobPhase.ENDED if state in _ENDED else EngineJobPhase.RUNNING


def read_squeue(printed: str) -> Iterator[JobRow]:
    """The jobs that squeue printed in ``SQUEUE_FORMAT``; a line that is none is passed over."""
    for line in printed.splitlines():
        fields = line.strip().split("|", 4)
        if len(fields) == 5 and _NUMBER.fullmatch(fields[0]):
            number, state, reason, nodes, name = fields
            yield JobRow(
                number=int(number), name=name, state=_word(state), reason=_or_empty(reason), nodes=_or_empty(nodes)
            )


def read_sacct(printed: str) -> Iterator[JobRow]:
    """The jobs that ``sacct --parsable2`` printed of ``SACCT_FIELDS``: the same fields in the same order."""
    return read_squeue(printed)


def _word(state: str) -> str:
    """``CANCELLED by 1000`` and ``CANCELLED+`` are ``CANCELLED``."""
    return state.split(maxsplit=1)[0].rstrip("+*") if state.split() else ""


def _or_empty(text: str) -> str:
    text = text.strip()
    return "" if text in _NOTHING else text
