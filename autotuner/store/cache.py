"""A cache of the trials of sweeps, which are read again only if they changed."""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from autotuner.core.sweep import Event
from autotuner.core.trial import Trial, TrialsVersion
from autotuner.search.results.sweep_tables import SweepTrials
from autotuner.store.events import STEP
from autotuner.store.options import Page

if TYPE_CHECKING:  # predictions work without a database
    from autotuner.store.sql import Store

_MOST_TRIALS = 20_000
"""Maximum number of cached trials of all sweeps together; each takes some ten kilobytes. The sweep that was read last
is kept even if it has more."""

_MOST_READ_ALONE = 40
"""Maximum number of changed trials that are read one by one; reading all trials of the sweep is as fast for more."""

_OF_ONE_TRIAL = frozenset(
    f"trial.{what}"
    for what in ("started", "finished", "interrupted", "waiting", "resumed", "job", "gated", "note", "link_event")
)
"""Kinds of events that change only the one trial that they name."""


@dataclass(slots=True, eq=False)
class _Place:
    """The cached trials of one sweep: one thread fills them while others wait."""

    mutex: threading.Lock = field(default_factory=threading.Lock)
    kept: SweepTrials | None = None


class KeptTrials:
    """A thread-safe cache of the trials of sweeps.

    A sweep's trials are read again only if an event says that they changed. The cache keeps about ``most`` trials of
    all sweeps together. If there are more, it drops the sweeps that were not used for the longest time.
    """

    def __init__(self, store: Store, most: int = _MOST_TRIALS) -> None:
        self._store = store
        self._most = most
        self._mutex = threading.Lock()
        self._places: OrderedDict[str, _Place] = OrderedDict()

    def of(self, sweep_id: str) -> SweepTrials:
        """Return the trials of a sweep as they are stored now. Trials that have not changed come from the cache.

        Raises:
            NotFound: The sweep is not stored.
        """
        version = self._store.trials_version(sweep_id)  # later changes are found by the next request
        place = self._place(sweep_id)
        with place.mutex:
            if place.kept is None or place.kept.version != version:
                place.kept = SweepTrials(version=version, trials=self._read(sweep_id, place.kept, version))
            kept = place.kept
        self._make_room()
        return kept

    def _place(self, sweep_id: str) -> _Place:
        with self._mutex:
            place = self._places.setdefault(sweep_id, _Place())
            self._places.move_to_end(sweep_id)
            return place

    def _make_room(self) -> None:
        with self._mutex:
            while len(self._places) > 1 and self._num_kept() > self._most:
                self._places.popitem(last=False)

    def _num_kept(self) -> int:
        return sum(1 + len(place.kept.trials) for place in self._places.values() if place.kept)

    def _read(self, sweep_id: str, before: SweepTrials | None, version: TrialsVersion) -> tuple[Trial, ...]:
        changed = None if before is None else self._changed(sweep_id, before, version)
        if before is None or changed is None:
            return tuple(self._store.all_trials(sweep_id))
        again = {trial_id: replace(self._store.get_trial(trial_id), steps=()) for trial_id in changed}
        known = [again.pop(trial.id, trial) for trial in before.trials]
        known += self._behind(sweep_id, len(before.trials))
        is_whole = all(a.number < b.number for a, b in itertools.pairwise(known))
        return tuple(known if is_whole else self._store.all_trials(sweep_id))  # one was committed late

    def _behind(self, sweep_id: str, num_known: int) -> Sequence[Trial]:
        return self._store.list_trials(sweep_id, page=Page(limit=_MOST_READ_ALONE, offset=num_known))[0]

    def _changed(self, sweep_id: str, before: SweepTrials, version: TrialsVersion) -> frozenset[str] | None:
        """Return the ids of the cached trials that have changed; None if all trials must be read."""
        if not 0 <= version.num_trials - len(before.trials) < _MOST_READ_ALONE:
            return None
        events = [e for e in self._store.events(sweep_id, after=before.version.last_event) if e.kind != STEP]
        if not events or events[-1].sequence < version.last_event:
            return None if version.last_event > before.version.last_event else frozenset()
        named = _named(events)
        return None if named is None or len(named) > _MOST_READ_ALONE else named & {t.id for t in before.trials}


def _named(events: Sequence[Event]) -> frozenset[str] | None:
    """Return the ids of the trials that the events name; None if one of the events may concern other trials."""
    if any(event.kind not in _OF_ONE_TRIAL for event in events):
        return None
    return frozenset(str(event.data["trial_id"]) for event in events)
