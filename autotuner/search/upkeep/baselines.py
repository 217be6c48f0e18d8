"""Baselines of retunes and MFU gates: what they keep of runs, and what is said of runs beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from autotuner.core.comparison import ChallengeFindings, Comparison, EnvironmentChange, RunGroup
from autotuner.core.units import format_rate

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


_MOST_CHANGES = 4
"""Differences of environments that a sentence names; the record has them all."""


def lost(comparison: Comparison) -> str:
    """How much slower, with half the width of its 95 % interval: ``7.3 % ± 1.1``."""
    return f"{-100 * comparison.change:.1f} % ± {_half_width(comparison)}"


def gained(comparison: Comparison) -> str:
    """How much faster, with half the width of its 95 % interval: ``5.2 % ± 0.9``."""
    return f"{100 * comparison.change:.1f} % ± {_half_width(comparison)}"


def changed(comparison: Comparison) -> str:
    """A change that may be none, with half the width of its 95 % interval: ``+0.3 % ± 0.8``."""
    percents = round(100 * comparison.change, 1) + 0.0  # which is no -0.0
    return f"{percents:+.1f} % ± {_half_width(comparison)}".replace("-", "−")


def _half_width(comparison: Comparison) -> str:
    return f"{50 * (comparison.high - comparison.low):.1f}"


def reached(runs: RunGroup | None) -> str:
    """What a sitting reached: ``12.3 ktoken/s (31.4 % MFU)``."""
    if runs is None:
        return "nothing"
    return f"{format_rate(sum(runs.rates) / len(runs.rates), 'token/s')} ({100 * runs.mfu:.1f} % MFU)"


def fallen(runs: RunGroup, against: Comparison) -> str:
    """What a sitting reached, and what it was to reach: ``96.5 ktoken/s instead of 104 ktoken/s``.

    Without MFU: on cores its peak is measured too, and what slows down products lowers both.
    """
    rate = sum(runs.rates) / len(runs.rates)
    return f"{format_rate(rate, 'token/s')} instead of {format_rate(rate / (1 + against.change), 'token/s')}"


def beside(comparison: Comparison, num_earlier: int) -> str:
    """What was compared with what: ``6 measurements beside 24 of 8 runs before, which scatter by 0.4 %``."""
    earlier = "the run before" if num_earlier == 1 else f"{num_earlier} runs before"
    noise = f"which scatter by {100 * comparison.noise:.1f} %"
    return f"{_counted(comparison.num_candidate)} beside {comparison.num_reference} of {earlier}, {noise}"


def _counted(number: int) -> str:
    return f"{number} measurement{'' if number == 1 else 's'}"


def changes_in_words(changes: Sequence[EnvironmentChange], then: Mapping[str, str]) -> str:
    """How the environment differs: ``what differs: torch was 2.12 and is 2.13``."""
    if not then:
        return "what it ran on then was not recorded"
    if not changes:
        return "all that trials record of their environment is as it was"
    more = len(changes) - _MOST_CHANGES
    named = "; ".join(map(str, changes[:_MOST_CHANGES]))
    return f"what differs: {named}" + (f"; and {more} more" if more > 0 else "")
