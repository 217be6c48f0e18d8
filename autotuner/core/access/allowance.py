"""Allowance: what a quota leaves of sweeps and accelerator-hours, and what to say where that is too little."""

from __future__ import annotations

from collections.abc import Callable

from autotuner.core.access.quota import Quota, Usage
from autotuner.errors import InvalidInput, QuotaExceeded

__all__ = ["DAY_S", "hours_allowed", "require_room_for_sweep"]

DAY_S = 24 * 3600.0
"""The day of a quota: the last 24 hours, at any time."""

_LEAST_HOURS = 1e-6
"""Below this nothing is left: sums of hours are off by as much as rounding makes them."""

FreesIn = Callable[[float], float | None]


def require_room_for_sweep(quota: Quota, usage: Usage) -> None:
    """Return if one more sweep may wait beside those that do.

    Raises:
        QuotaExceeded: As many are unfinished as the quota has.
    """
    most = quota.unfinished_sweeps
    if most is not None and usage.unfinished_sweeps >= most:
        raise QuotaExceeded(
            f"{usage.unfinished_sweeps} of the {most} sweeps that may be unfinished at once are: "
            "wait until one ends, or cancel one"
        )


def hours_allowed(quota: Quota, usage: Usage, asked: float | None, *, frees_in_s: FreesIn) -> float | None:
    """Accelerator-hours that a new sweep may take; None: as many as it likes.

    What was used, what unfinished sweeps were promised and what this one is promised stay within the quota together. A
    sweep that asks for no number is promised all that is left.

    Args:
        quota: Of the caller.
        usage: Of the caller.
        asked: The budget that was asked for.
        frees_in_s: After how long so many hours more are free, because those that were used are a day old; None: they
            never are while nothing ends.

    Raises:
        InvalidInput: More was asked for than the quota ever has.
        QuotaExceeded: More was asked for than is left.
    """
    most = quota.accelerator_hours_per_day
    if most is None:
        return asked
    if asked is not None and asked > most:
        rule = f"must be at most the {most:g} accelerator-hours that your quota has in a day"
        raise InvalidInput("budget.accelerator_hours", asked, rule, most)
    left = most - usage.accelerator_hours - _promised(usage)
    missing = (asked or _LEAST_HOURS) - left
    if missing > _LEAST_HOURS or left < _LEAST_HOURS:
        wait_s = frees_in_s(max(missing, _LEAST_HOURS))
        raise QuotaExceeded(_too_little(most, usage, asked, left, wait_s), wait_s)
    return left if asked is None else asked


def _promised(usage: Usage) -> float:
    if usage.promised_hours is None:
        raise QuotaExceeded(
            "a sweep of yours is unfinished that has no budget of accelerator-hours, so nothing can be promised to "
            "another: wait until it ends, or cancel it"
        )
    return usage.promised_hours


def _too_little(most: float, usage: Usage, asked: float | None, left: float, wait_s: float | None) -> str:
    asks = "" if asked is None else f", and this sweep asks for {asked:.3g}"
    when = (
        "enough will be free when one of your sweeps ends"
        if wait_s is None
        else f"enough will be free in {wait_s / 3600:.1f} hours, or when a sweep ends below its budget"
    )
    return (
        f"your quota has {most:g} accelerator-hours in a day: {usage.accelerator_hours:.3g} were used in the last "
        f"24 hours, {_promised(usage):.3g} more are promised to unfinished sweeps, {max(left, 0.0):.3g} are "
        f"left{asks}; {when}"
    )
