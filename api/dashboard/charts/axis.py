"""Marks of an axis: round numbers, and as many digits as tell them apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from autotuner.core.units import GIGA, KILO, MEGA, TERA


def round_step(least: float) -> float:
    """The smallest of 1, 2, 2.5, 5 times a power of ten that is no less."""
    if least <= 0:
        return 0.01
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= least * 0.999999)


def decimals(step: float) -> int:
    """Digits behind the point with which multiples of that step differ: 2 for 0.25."""
    return next(digits for digits in range(16) if math.isclose(round(step, digits), step, rel_tol=1e-6))


def in_percent(shares: Sequence[float]) -> tuple[str, ...]:
    """Marks of an axis as percents without the sign, with as many digits as their step needs: ``40``, ``40.5``."""
    steps = [100 * (after - before) for before, after in pairwise(shares)]
    digits = decimals(round(min(steps), 9)) if steps else 1
    return tuple(f"{100 * share:.{digits}f}" for share in shares)


def signed_percent(share: float) -> str:
    """A gain or a loss: ``+5 %``, ``−2.5 %``, ``0``."""
    if round(share, 9) == 0:
        return "0"
    return f"{'+' if share > 0 else '−'}{abs(100 * share):.3g} %"


def whole_marks(first: int, last: int, most: int) -> tuple[int, ...]:
    """The first number, and round ones up to the last, no more than that many in all."""
    if last <= first:
        return (first,)
    step = max(1, round(round_step((last - first) / max(1, most - 1))))
    return (first, *(mark for mark in range(step, last + 1, step) if mark - first > step / 2))


def byte_unit(most: float) -> tuple[float, str]:
    """What to divide bytes by, and what they are then: ``(1e9, "GB")``."""
    units = ((TERA, "TB"), (GIGA, "GB"), (MEGA, "MB"), (KILO, "kB"))
    return next(((float(scale), unit) for scale, unit in units if most >= scale), (1.0, "B"))
