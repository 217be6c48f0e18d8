"""What a sweep has tried so far."""

from __future__ import annotations

from collections.abc import Iterator

from autotuner.core.trial import Trial
from autotuner.ports import Page, Store

_BATCH_SIZE = 500


def all_trials(store: Store, sweep_id: str) -> Iterator[Trial]:
    """Every trial of a sweep by number, without steps."""
    total, offset = 1, 0
    while offset < total:
        trials, total = store.list_trials(sweep_id, page=Page(limit=_BATCH_SIZE, offset=offset))
        yield from trials
        offset += _BATCH_SIZE
