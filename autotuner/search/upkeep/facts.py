"""What was measured, as flat facts for a program that hears of an outcome."""

from __future__ import annotations

from collections.abc import Iterator

from autotuner.core.comparison import ChallengeFindings


def measured_facts(found: ChallengeFindings) -> Iterator[tuple[str, object]]:
    """The layout that was held to the baseline, what it reached, and how that differs."""
    yield "layout", None if found.measured is None else str(found.measured)
    if found.runs is not None:
        yield "tokens_per_s", sum(found.runs.rates) / len(found.runs.rates)
        yield "mfu", found.runs.mfu
    if found.against_baseline is not None:
        yield "change", found.against_baseline.change
