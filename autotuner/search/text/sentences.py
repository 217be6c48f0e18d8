"""Words and numbers of sentences: fields of a layout, what changes between two, predictions with their errors."""

from __future__ import annotations

from autotuner.domain.layouts.layout import LAYOUT_FIELDS, OPTIONS, RANK_DEGREES, Layout
from autotuner.units import format_seconds

__all__ = [
    "EMULATED",
    "change_in_words",
    "expected_mfu",
    "expected_seconds",
    "fit_in_words",
    "is_wide",
    "percent",
    "value_in_words",
]

EMULATED = "emulated, not ranked"
"""What stands beside a trial whose number format its hardware lacks."""

_IN_ORDER = (*RANK_DEGREES, *(name for name in LAYOUT_FIELDS if name not in RANK_DEGREES))

_DATA_DEGREES = ("data_parallel_replicate_degree", "data_parallel_shard_degree")


_WIDE = 0.3
"""Half-width of a multiplicative interval above which its two sides differ too much to share a number."""


def value_in_words(value: object) -> str:
    """A field's value: a number, a choice's word, or on and off."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value).replace("_", " ")


def change_in_words(before: Layout, after: Layout) -> str:
    """The fields that differ, each with both values: ``tensor 4 → 2, replicate 8 → 16``.

    Where the same replicas are only sharded otherwise, the sharding alone is said.
    """
    changed = [name for name in _IN_ORDER if getattr(before, name) != getattr(after, name)]
    if "shard_level" in changed and before.data_parallel_degree == after.data_parallel_degree:
        changed = [name for name in changed if name not in _DATA_DEGREES]
    return ", ".join(
        f"{OPTIONS[name].label} {value_in_words(getattr(before, name))} → {value_in_words(getattr(after, name))}"
        for name in changed
    )


def percent(share: float) -> str:
    """A share in whole hundredths: ``11 %``; what is there and rounds to nothing is ``<1 %``."""
    return "<1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"


def expected_seconds(seconds: float, relative_error: float | None) -> str:
    """A predicted time with the half-width of its 80 % interval: ``1.23 s ± 11 %``; without, where it is unknown."""
    error = "" if relative_error is None else f" ± {percent(relative_error)}"
    return f"{format_seconds(seconds)}{error}"


def is_wide(relative_error: float | None) -> bool:
    """Whether an interval is given by its ends, since its two sides differ too much to share a number."""
    return relative_error is not None and relative_error > _WIDE


def expected_mfu(mfu: float, relative_error: float | None, *, by_ends: bool | None = None) -> str:
    """A predicted MFU with the same half-width in points: ``41.0 ± 4.5 %``, that is 37 to 45 %.

    An interval so wide that points would mislead is given by its ends: ``61.2 %, 30 to 100 %``.

    Args:
        mfu: What is expected.
        relative_error: Half-width of the 80 % interval; None where it is unknown.
        by_ends: How to write the interval, for a column that shall have one notation; None asks its width.
    """
    if relative_error is not None and (is_wide(relative_error) if by_ends is None else by_ends):
        low, high = mfu / (1 + relative_error), min(max(1.0, mfu), mfu * (1 + relative_error))
        return f"{100 * mfu:.1f} %, {100 * low:.0f} to {percent(high)}"
    error = "" if relative_error is None else f" ± {100 * mfu * relative_error:.1f}"
    return f"{100 * mfu:.1f}{error} %"


def fit_in_words(fits: bool, probability: float | None) -> str:
    """Whether a layout is predicted to fit, and how sure that is: ``fits, 97 % sure``."""
    likely = fits if probability is None else probability >= 0.5
    words = "fits" if likely else "does not fit"
    if probability is None:
        return words
    certainty = max(probability, 1 - probability)
    return f"{words}, {percent(certainty) if certainty < 0.995 else '>99 %'} sure"
