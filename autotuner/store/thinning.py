"""Thinning: removes what nobody looks up any more, by the ages that an operator sets."""

from __future__ import annotations

from dataclasses import dataclass, fields

from autotuner.ports.retention import RetentionStore

_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ages:
    """After how many days what is removed; None: never.

    Attributes:
        steps: Steps and events inside trials of a sweep, from its end on.
        announcements: Announcements and their deliveries.
        plans: Plans, from when they were first asked for on.
        audit: Entries of the audit log.
    """

    steps: float | None
    announcements: float | None
    plans: float | None
    audit: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinned:
    """How much was removed."""

    num_sweeps: int = 0
    num_steps: int = 0
    num_events: int = 0
    num_announcements: int = 0
    num_plans: int = 0
    num_audit_entries: int = 0

    def __add__(self, other: Thinned) -> Thinned:
        names = [field.name for field in fields(self)]
        return Thinned(**{name: getattr(self, name) + getattr(other, name) for name in names})


@dataclass(frozen=True, slots=True)
class Thinning:
    """Removes what is older than it is to become."""

    store: RetentionStore
    ages: Ages

    def run(self, *, now: float) -> Thinned:
        """Remove all of it, and say how much that was."""
        done = Thinned()
        while (more := self.step(now=now)) is not None:
            done += more
        return done

    def step(self, *, now: float) -> Thinned | None:
        """Remove some of it, in a transaction that nobody waits long for; None when nothing is left."""
        return self._sweep(now) or self._announcements(now) or self._plans(now) or self._audit(now)

    def _sweep(self, now: float) -> Thinned | None:
        if self.ages.steps is None:
            return None
        swept = self.store.thin_sweep(before=now - self.ages.steps * _DAY_S, now=now)
        if swept is None:
            return None
        return Thinned(num_sweeps=1, num_steps=swept.num_steps, num_events=swept.num_events)

    def _announcements(self, now: float) -> Thinned | None:
        if self.ages.announcements is None:
            return None
        num = self.store.prune_announcements(before=now - self.ages.announcements * _DAY_S)
        return Thinned(num_announcements=num) if num else None

    def _plans(self, now: float) -> Thinned | None:
        if self.ages.plans is None:
            return None
        num = self.store.prune_plans(before=now - self.ages.plans * _DAY_S)
        return Thinned(num_plans=num) if num else None

    def _audit(self, now: float) -> Thinned | None:
        if self.ages.audit is None:
            return None
        num = self.store.prune_audit(before=now - self.ages.audit * _DAY_S)
        return Thinned(num_audit_entries=num) if num else None
