"""GaugeStore: what an operator watches of everything that is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from autotuner.core.run import RunState
from autotuner.core.trial import TrialState


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    """What stands in the database at one moment.

    Attributes:
        num_sweeps: By state; states without any are left out.
        num_open_trials: Those of unfinished sweeps, by state.
        num_ended_trials: Those that ended within the last hour, by state.
        oldest_queued_at: When the sweep that waits longest was asked for; None where none waits.
        oldest_pending_at: When the delivery that is pending longest was asked for; None where none is.
    """

    num_sweeps: Mapping[RunState, int]
    num_open_trials: Mapping[TrialState, int]
    num_ended_trials: Mapping[TrialState, int]
    oldest_queued_at: float | None
    num_pending_deliveries: int
    oldest_pending_at: float | None


class GaugeStore(Protocol):
    """What an operator watches of everything that is stored."""

    def read(self, *, now: float) -> Gauges:
        """All of it at one moment, by queries that take no longer the more sweeps have ended."""
        ...
