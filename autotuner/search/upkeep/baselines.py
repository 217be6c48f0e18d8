"""What a baseline keeps of the runs that join it."""

from __future__ import annotations

from collections.abc import Sequence

from autotuner.core.comparison import RunGroup

_FIRST_GROUPS, _LAST_GROUPS = 5, 15
"""Of a long baseline the first runs after the adoption are kept, so that many small losses add up to one that is found,
and the latest, which know how runs differ now."""


def longer_baseline(baseline: Sequence[RunGroup], runs: RunGroup) -> tuple[RunGroup, ...]:
    """The baseline with one run more."""
    groups = (*baseline, runs)
    if len(groups) <= _FIRST_GROUPS + _LAST_GROUPS:
        return groups
    return (*groups[:_FIRST_GROUPS], *groups[-_LAST_GROUPS:])
