"""What a sweep would search, told before it is started."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from autotuner.core.errors import Violation
from autotuner.core.space import SearchSpace
from autotuner.core.sweep import SweepRequest
from autotuner.search.predictions import PredictionTable
from autotuner.search.preview import Outlook, StandIns
from autotuner.search.space.elimination import Fall


@dataclass(frozen=True, slots=True, kw_only=True)
class NotStoodFor:
    """Layouts for which no trial on the smaller cluster stands, and why."""

    why: str
    num_layouts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallTrials:
    """How far trials on the smaller cluster reach."""

    num_layouts: int
    """Legal layouts of the job for which a trial stands."""
    refused: tuple[NotStoodFor, ...]
    """The others by why, the most frequent first."""

    @classmethod
    def of(cls, found: StandIns) -> Self:
        """What the search found."""
        refused = tuple(NotStoodFor(why=why, num_layouts=count) for why, count in found.refused)
        return cls(num_layouts=found.num_layouts, refused=refused)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPreview:
    """What a sweep would search; nothing was measured or stored for it."""

    space: SearchSpace
    """Every axis with the values that would be tried; null: every legal one."""
    num_candidates: int | None
    """Different layouts that these values make, legal or not; null where they are too many to be judged rule by
    rule."""
    falls: tuple[Fall, ...]
    """What the rules take out of these, the rule with most first; each layout counts for one rule. Candidates less
    these are the legal layouts of ``predicted``."""
    predicted: PredictionTable
    """How many layouts a trial can run and how many of these are predicted to fit, the best by prediction, and what
    would help where none fits."""
    small_trials: SmallTrials | None
    """Where trials run on a smaller cluster."""
    refusal: Violation | None
    """Why this service would not start it as it is; null where it would."""

    @classmethod
    def of(cls, request: SweepRequest, found: Outlook, refusal: Violation | None) -> Self:
        """What the search found, and what the service says to it."""
        sieved = found.sieved
        return cls(
            space=request.space,
            num_candidates=None if sieved is None else sieved.num_candidates,
            falls=() if sieved is None else sieved.falls,
            predicted=PredictionTable.answering(request.trial_job, found.best),
            small_trials=None if found.stand_ins is None else SmallTrials.of(found.stand_ins),
            refusal=refusal,
        )
