"""Trend of a retune: what the layout in use reached run by run, each beside the band in which noise alone lies."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from autotuner.core.upkeep import RetuneRun, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendPoint:
    """What one run measured of the layout that was in use.

    Attributes:
        run_id: The run's.
        at: When it was due, epoch seconds.
        layout: What was measured, as tables print it.
        tokens_per_s: Mean of its measurements.
        lowest: The slowest of them.
        highest: The fastest of them.
        mfu: Mean MFU of them.
        num_measurements: How many there were.
        reference: What its baseline reached, tokens per second; None where it had none to be compared with.
        band_low: Lower end of the band around the reference in which it would lie by noise alone, in 95 of 100 runs.
        band_high: Upper end of the band.
        noise: Relative standard deviation from measurement to measurement; None where nothing was compared.
    """

    run_id: str
    at: float
    verdict: Verdict
    layout: str
    tokens_per_s: float
    lowest: float
    highest: float
    mfu: float
    num_measurements: int
    reference: float | None
    band_low: float | None
    band_high: float | None
    noise: float | None


def trend(runs: Iterable[RetuneRun]) -> tuple[TrendPoint, ...]:
    """A point for each run that measured the layout in use, the oldest first."""
    return tuple(sorted(_points(runs), key=lambda point: point.at))


def _points(runs: Iterable[RetuneRun]) -> Iterator[TrendPoint]:
    for run in runs:
        found = run.outcome.findings if run.outcome else None
        if run.outcome is None or found is None or found.runs is None:
            continue
        against, rate = found.against_baseline, statistics.fmean(found.runs.rates)
        reference = None if against is None else rate / (1 + against.change)
        half = None if against is None else (against.high - against.low) / 2
        yield TrendPoint(
            run_id=run.id,
            at=run.due_at,
            verdict=run.outcome.verdict,
            layout=str(found.measured),
            tokens_per_s=rate,
            lowest=min(found.runs.rates),
            highest=max(found.runs.rates),
            mfu=found.runs.mfu,
            num_measurements=len(found.runs.rates),
            reference=reference,
            band_low=None if reference is None or half is None else reference * (1 - half),
            band_high=None if reference is None or half is None else reference * (1 + half),
            noise=None if against is None else against.noise,
        )
