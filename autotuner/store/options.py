"""What callers of the store choose: pages, filters, orders, and ages of what is kept. It needs no SQLAlchemy."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from autotuner.core.run import RunState
from autotuner.core.trial import TrialState


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A window on a list: skip ``offset``, then return at most ``limit``.

    A list also says how many match in all; where more than ``COUNTED_BEHIND`` come behind the page, it counts so many.
    """

    limit: int = 50
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFilter:
    """Which trials to list; None lets all pass."""

    state: TrialState | None = None
    tensor_parallel_degree: int | None = None
    pipeline_parallel_degree: int | None = None
    micro_batch_size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepFilter:
    """Which sweeps to list; what is left empty lets all pass."""

    text: str = ""
    """Words that each stand in the sweep's name, id, model, cluster, engine or owner, in any case of letters."""
    state: RunState | None = None
    owner: str | None = None
    """Name of the caller who asked for it."""


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
class SweepOrder:
    """The order of a list; equal ones, and those that have no such value, come newest first and last."""

    column: SweepColumn = SweepColumn.CREATED
    is_descending: bool = True


ALL_SWEEPS = SweepFilter()
NEWEST_FIRST = SweepOrder()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ages:
    """After how many days what is removed; None: never."""

    steps: float | None
    """Steps and events inside trials of a sweep, from its end on."""
    announcements: float | None
    """Announcements and their deliveries."""
    plans: float | None
    """Plans, from when they were first asked for on."""
    audit: float | None
    """Entries of the audit log."""
