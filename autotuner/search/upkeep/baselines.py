"""Baselines of retunes and performance regression gates, and announcements of runs beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autotuner.core.comparison import ChallengeFindings, RunGroup

_FIRST_GROUPS, _LAST_GROUPS = 5, 15
"""Of a long baseline the first runs after the adoption are kept, so that many small losses add up to one that is found,
and the latest, which know how runs differ now."""


def longer_baseline(baseline: Sequence[RunGroup], runs: RunGroup) -> tuple[RunGroup, ...]:
    """The baseline with one run more."""
    groups = (*baseline, runs)
    if len(groups) <= _FIRST_GROUPS + _LAST_GROUPS:
        return groups
    return (*groups[:_FIRST_GROUPS], *groups[-_LAST_GROUPS:])


def measured_facts(found: ChallengeFindings) -> Iterator[tuple[str, object]]:
    """The layout that was held to the baseline, what it reached, and how that differs."""
    yield "layout", None if found.measured is None else str(found.measured)
    if found.runs is not None:
        yield "tokens_per_s", sum(found.runs.rates) / len(found.runs.rates)
        yield "mfu", found.runs.mfu
    if found.against_baseline is not None:
        yield "change", found.against_baseline.change
