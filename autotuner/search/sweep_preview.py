"""A sweep before it is asked for: what it would search; that of equal jobs and spaces is computed once."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from dataclasses import dataclass

from autotuner.core.codec import to_plain
from autotuner.core.columns import concatenate
from autotuner.core.errors import InvalidInput, Violation
from autotuner.core.space import SearchSpace
from autotuner.core.sweep import SweepRequest
from autotuner.search.asides import Asides
from autotuner.search.preview import PredictionTable, trials_on
from autotuner.search.ranking import ComparedBy, best_predicted
from autotuner.search.space.elimination import Sieved, empty_space, sieved
from autotuner.search.space.legal import legal_chunks
from autotuner.search.space.trainers import trial_rules
from autotuner.search.suggestions import Advice, Shortfall, advice


@dataclass(frozen=True, slots=True, kw_only=True)
class NotStoodFor:
    """Layouts for which no trial on the smaller cluster stands, and why."""

    why: str
    num_layouts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoodFor:
    """How far trials on the smaller cluster reach."""

    num_layouts: int
    """Legal layouts of the job for which a trial stands."""
    refused: tuple[NotStoodFor, ...]
    """The others by why, the most frequent first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPreview:
    """What a sweep would search; nothing was measured or stored for it."""

    space: SearchSpace
    """Every axis with the values that would be tried; null: every legal one."""
    sieved: Sieved | None
    """What the rules take out of the layouts that these values make; each layout counts for one rule. Null where they
    are too many to be judged rule by rule."""
    predicted: PredictionTable
    """How many layouts a trial can run and how many of these are predicted to fit, the best by prediction, and what
    would help where none fits."""
    proxy_trials: StoodFor | None
    """Where trials run on a smaller cluster."""
    refusal: Violation | None = None
    """Why this service would not start it as it is; null where it would."""


def preview(request: SweepRequest, *, limit: int = 3, with_remedies: bool = True) -> SweepPreview:
    """Return what the sweep would search, with the ``limit`` best layouts.

    To look for what would help where nothing fits takes several times as long as all the rest.

    Raises:
        InvalidInput: It holds no layout that a trial can run, with why.
        SpaceTooLarge: It cannot be looked through.
    """
    job, space, rules = request.legal_job, request.space, trial_rules(request.trainer)
    compared = ComparedBy(objective=request.objective, trace=request.fault_trace)
    table = best_predicted(request.trial_job, space, limit=limit, rules=rules, compared_by=compared)
    if not table.num_legal:
        raise empty_space(job, space, rules, "holds no layout that a trial can run")
    if table.nearest is not None and not with_remedies:
        lacks = max(0.0, table.nearest.prediction.memory.total_bytes - job.cluster.accelerator.memory_bytes)
        found = Advice(shortfall=Shortfall(nearest=table.nearest, missing_bytes=lacks, remedies=(), larger=None))
    else:
        found = advice(job, space, table, rules)
    proxy_trials = None
    if request.small_cluster is not None:
        trials = trials_on(request, request.small_cluster, concatenate(list(legal_chunks(request.job, space, rules))))
        refused = tuple(NotStoodFor(why=why, num_layouts=count) for why, count in trials.refused)
        proxy_trials = StoodFor(num_layouts=len(trials), refused=refused)
    return SweepPreview(
        space=space,
        sieved=sieved(job, space, rules),
        predicted=PredictionTable.of_best(request.trial_job, table, found),
        proxy_trials=proxy_trials,
    )


_KEPT = 64
"""Previews, a few kilobytes each."""


class Previews:
    """Previews of sweeps, which asides compute; for any thread."""

    def __init__(self, asides: Asides, kept: int = _KEPT) -> None:
        self._asides = asides
        self._kept = kept
        self._found: OrderedDict[str, SweepPreview | InvalidInput] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, request: SweepRequest, *, with_remedies: bool = True) -> SweepPreview:
        """Return what the sweep would search; errors as of ``preview``, which take as long to find."""
        key = _key(request, with_remedies)
        with self._lock:
            found = self._found.get(key)
        if found is None:
            found = self._compute(request, with_remedies)
        with self._lock:
            self._found[key] = found
            self._found.move_to_end(key)
            while len(self._found) > self._kept:
                self._found.popitem(last=False)
        if isinstance(found, InvalidInput):
            raise found
        return found

    def _compute(self, request: SweepRequest, with_remedies: bool) -> SweepPreview | InvalidInput:
        try:
            return self._asides.search(preview, request, with_remedies=with_remedies)
        except InvalidInput as refusal:
            return refusal


def _key(request: SweepRequest, *more: object) -> str:
    """Return what is equal for sweeps that search the same, whatever they are called, may cost and measure."""
    searched = (request.trial_job, request.space, request.trainer, request.small_cluster, request.fault_trace, *more)
    return json.dumps(to_plain(searched), sort_keys=True)
