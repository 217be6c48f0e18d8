"""Options for reading from the store: pages, filters, orders and retention periods. This module needs no SQLAlchemy."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, TypeAlias

from annotated_types import Interval, MaxLen

from autotuner.core.documents import Key
from autotuner.core.run import RunState
from autotuner.core.trial import TrialState
from autotuner.core.value import Flag

_Degree: TypeAlias = Annotated[int | None, Interval(ge=1, le=2**31 - 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The part of a list to return: skip ``offset`` entries, then return at most ``limit``.

    The method that returns the list also returns the number of all entries that match. If more than ``COUNTED_BEHIND``
    entries follow the page, the count stops after that many.
    """

    limit: int = 50
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFilter:
    """A filter of trials. A field that is None excludes nothing; a trial must match all other fields."""

    state: TrialState | None = None
    """Only trials in this state."""
    tensor_parallel_degree: _Degree = None
    pipeline_parallel_degree: _Degree = None
    micro_batch_size: _Degree = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepFilter:
    """A filter of sweeps. A field that is empty or None excludes nothing; a sweep must match all other fields."""

    text: Annotated[str, MaxLen(200), Flag("q")] = ""
    """Words that occur in the sweep's name, id, model, cluster, engine or owner."""
    state: RunState | None = None
    """Only sweeps in this state."""
    owner: Annotated[str | None, MaxLen(200)] = None
    """Only sweeps that this caller requested."""
    tag: Key | None = None
    """Only sweeps that have this tag, or have a trial with this tag; upper and lower case are equal."""


class SweepColumn(StrEnum):
    """The columns by which a list of sweeps can be ordered, as the values of a query parameter."""

    CREATED = "created"
    NAME = "name"
    STATE = "state"
    MFU = "mfu"  # MFU of the trial ranked first; so are TOKENS
    TOKENS_PER_S = "tokens_per_s"
    TRIALS = "trials"  # trials that ran, without repeats
    ACCELERATOR_HOURS = "accelerator_hours"
    OWNER = "owner"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOrder:
    """The order of a list of sweeps. Sweeps with equal values come newest first; sweeps without a value come last."""

    column: SweepColumn = SweepColumn.CREATED
    is_descending: bool = True


ALL_SWEEPS = SweepFilter()
NEWEST_FIRST = SweepOrder()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ages:
    """Retention periods in days: how long each kind of record is kept. None keeps such records for ever."""

    steps: float | None
    """Retention of steps and of events inside trials, in days after the end of their sweep."""
    announcements: float | None
    """Retention of announcements and their deliveries, in days."""
    plans: float | None
    """Retention of plans, in days after their first request."""
    audit: float | None
    """Retention of audit log entries, in days."""
