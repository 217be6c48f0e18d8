"""Previews of sweeps: what one would search, computed once for equal jobs and spaces."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Self

from autotuner.core.codec import to_plain
from autotuner.core.documents import violation
from autotuner.core.errors import InvalidInput, Violation
from autotuner.core.space import SearchSpace
from autotuner.core.sweep import SweepRequest
from autotuner.search.predictions import PredictionTable
from autotuner.search.preview import Outlook, StandIns, outlook, require_modest
from autotuner.search.space.elimination import Fall
from autotuner.service.build import App


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
        """Make it of what the search found."""
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
        """Make it of what the search found, and of why the service would refuse it."""
        sieved = found.sieved
        return cls(
            space=request.space,
            num_candidates=None if sieved is None else sieved.num_candidates,
            falls=() if sieved is None else sieved.falls,
            predicted=PredictionTable.answering(request.trial_job, found.best),
            small_trials=None if found.stand_ins is None else SmallTrials.of(found.stand_ins),
            refusal=refusal,
        )


_KEPT = 64
"""Outlooks, a few kilobytes each."""


class Previews:
    """What sweeps would search; that of equal jobs and spaces is computed once."""

    def __init__(self, kept: int = _KEPT) -> None:
        self._kept = kept
        self._outlooks: OrderedDict[str, Outlook | InvalidInput] = OrderedDict()
        self._lock = threading.Lock()

    def preview(self, app: App, request: SweepRequest, *, with_remedies: bool = True) -> SweepPreview:
        """What the sweep would search; where nothing fits, what would help takes longest, and may be left out.

        Raises:
            InvalidInput: It holds no layout that a trial can run, or a number is beyond use.
        """
        require_modest(request)
        known = self._informed(app, request)
        refused = app.refusal(request)
        refusal = None if refused is None else violation(refused)
        return SweepPreview.of(known, self._outlook(app, known, with_remedies), refusal)

    def _informed(self, app: App, request: SweepRequest) -> SweepRequest:
        """With what the stored trials say of the job's speed, where they may."""
        if not request.uses_history:
            return request
        trainer = None if request.trainer is None else request.trainer.name
        return replace(request, job=app.calibrated(request.job, trainer))

    def _outlook(self, app: App, request: SweepRequest, with_remedies: bool) -> Outlook:
        key = _key(request, with_remedies)
        with self._lock:
            found = self._outlooks.get(key)
        if found is None:
            found = _computed(app, request, with_remedies)
        with self._lock:
            self._outlooks[key] = found
            self._outlooks.move_to_end(key)
            while len(self._outlooks) > self._kept:
                self._outlooks.popitem(last=False)
        if isinstance(found, InvalidInput):
            raise found
        return found


def _computed(app: App, request: SweepRequest, with_remedies: bool) -> Outlook | InvalidInput:
    """The outlook, or what is wrong with the space, which takes as long to find."""
    try:
        return app.asides.search(outlook, request, with_remedies=with_remedies)
    except InvalidInput as refusal:
        return refusal


def _key(request: SweepRequest, *more: object) -> str:
    """Equal for sweeps that search the same, whatever they are called, may cost and measure."""
    searched = (request.trial_job, request.space, request.trainer, request.small_cluster, request.fault_trace, *more)
    return json.dumps(to_plain(searched), sort_keys=True)
