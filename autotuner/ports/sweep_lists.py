"""Which sweeps a list shows, and in which order."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from autotuner.core.run import RunState


class SweepColumn(StrEnum):
    """What sweeps are ordered by."""

    CREATED = "created"
    NAME = "name"
    STATE = "state"
    MFU = "mfu"  # of the trial ranked first, as are its tokens
    TOKENS_PER_S = "tokens_per_s"
    TRIALS = "trials"  # that ran, but for repeats
    ACCELERATOR_HOURS = "accelerator_hours"
    OWNER = "owner"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepFilter:
    """Which sweeps to list; what is left empty lets all pass.

    Attributes:
        text: Words that each stand in the sweep's name, id, model, cluster, engine or owner, in any case of letters.
        owner: Name of the caller who asked for it.
    """

    text: str = ""
    state: RunState | None = None
    owner: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOrder:
    """The order of a list; equal ones, and those that have no such value, come newest first and last."""

    column: SweepColumn = SweepColumn.CREATED
    is_descending: bool = True


ALL_SWEEPS = SweepFilter()
NEWEST_FIRST = SweepOrder()
