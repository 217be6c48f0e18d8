"""Units of measure: constants, and numbers as text."""

from __future__ import annotations

KILO = 10**3
MEGA = 10**6
GIGA = 10**9
TERA = 10**12
MIB = 2**20
GIB = 2**30


def format_bytes(num_bytes: float) -> str:
    """Return a number of bytes with three significant digits in decimal units (1 GB = 10^9 bytes): ``81.2 GB``.

    Example:
        >>> format_bytes(81_200_000_000)
        '81.2 GB'
    """
    return _scaled(num_bytes, "B", ((TERA, "T"), (GIGA, "G"), (MEGA, "M"), (KILO, "k")))


def format_count(count: float) -> str:
    """Return a count as papers write a model's parameters: ``70.6B``, ``124M``.

    Example:
        >>> format_count(8_030_261_248)
        '8.03B'
    """
    return _scaled(count, "", ((TERA, "T"), (GIGA, "B"), (MEGA, "M"), (KILO, "k"))).replace(" ", "")


def format_rate(per_s: float, unit: str) -> str:
    """Return a rate with a decimal prefix before its unit: ``312 TFLOP/s``.

    Example:
        >>> format_rate(3.12e14, "FLOP/s")
        '312 TFLOP/s'
    """
    return _scaled(per_s, unit, ((TERA * KILO, "P"), (TERA, "T"), (GIGA, "G"), (MEGA, "M"), (KILO, "k")))


def format_seconds(seconds: float) -> str:
    """Return a time in seconds, milliseconds or microseconds, whichever reads best.

    Example:
        >>> format_seconds(0.0123)
        '12.3 ms'
    """
    if seconds >= 1.0 or seconds == 0.0:
        return f"{_three_digits(seconds)} s"
    if seconds >= 1e-3:
        return f"{_three_digits(seconds * 1e3)} ms"
    return f"{_three_digits(seconds * 1e6)} µs"


def format_duration(seconds: float) -> str:
    """Return a duration in hours, minutes and whole seconds: ``3 min 20 s``.

    Example:
        >>> format_duration(200)
        '3 min 20 s'
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "min"), (rest, "s"))
    return " ".join(f"{count} {unit}" for count, unit in parts if count) or "0 s"


def format_long_duration(seconds: float) -> str:
    """Return a duration as text; long ones lose detail: ``3 min 20 s``, ``33 h 29 min``, ``32.8 days``.

    Seconds are left out from one hour on, and the unit is days from two days on.
    """
    days = seconds / 86_400
    whole_s = 60 * round(seconds / 60) if seconds >= 3600 else seconds
    return f"{_three_digits(days)} days" if days >= 2.0 else format_duration(whole_s)


def _scaled(value: float, unit: str, steps: tuple[tuple[int, str], ...]) -> str:
    for scale, prefix in steps:
        if abs(value) >= scale:
            return f"{_three_digits(value / scale)} {prefix}{unit}"
    return f"{_three_digits(value)} {unit}"


def _three_digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:.3g}"
