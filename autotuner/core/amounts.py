"""Amounts as people type them: tokens, times, money, bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping

from autotuner.core.errors import InvalidInput

_GIGA = 1e9
_MINUTE_S = 60.0
_BINARY = {"k": 1024, "m": 1024**2}
"""Multipliers of a number of tokens, by the letter after the number, in upper or lower case."""

_SCALES = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_UNITS_S = {"h": 3600.0, "d": 86_400.0, "w": 604_800.0}

_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_AMOUNT = re.compile(rf"\$?({_NUMBER}(?:[eE][+]?[0-9]{{1,2}})?) ?([KMBTkmbt]?)")
_DURATION = re.compile(rf"({_NUMBER}) ?(h|d|w|hours?|days?|weeks?)")
_PRICE = re.compile(rf"\s*([^\s=]+)\s*=\s*\$?({_NUMBER})\s*")


def read_amount(field: str, text: str) -> float:
    """Return the number in a text; a letter may follow it for thousands and more: ``15.6T``, ``2e12``, ``$3.5M``.

    Args:
        field: Name of the field, for the error message.
        text: The text.

    Raises:
        InvalidInput: The text is not such a number.

    Example:
        >>> read_amount("num_tokens", "15.6T")
        15600000000000.0
    """
    found = _AMOUNT.fullmatch(text.strip().replace(",", ""))
    if found is None:
        raise InvalidInput(
            field,
            text,
            "must be a number such as 2000, 400B or 2T, where K, M, B and T stand for thousand, "
            "million, billion and trillion",
        )
    return float(found[1]) * _SCALES[found[2].upper()]


def written_amount(value: float) -> str:
    """Return a number as people type it, in a form that ``read_amount`` reads: ``15.6T``."""
    letter, scale = next(((letter, one) for letter, one in reversed(_SCALES.items()) if value >= one), ("", 1.0))
    return f"{value / scale:g}{letter}"


def read_duration_s(field: str, text: str) -> float:
    """Return the seconds of a duration that is written in hours, days or weeks: ``60d``, ``8 weeks``, ``36h``.

    Raises:
        InvalidInput: The text is not such a duration.
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        number = re.match(_NUMBER, text.strip())
        rule = "must be a number of hours, days or weeks, such as 36h, 60d or 8w"
        raise InvalidInput(field, text, rule, f"{number[0]}d" if number else None)
    return float(found[1]) * _UNITS_S[found[2][0]]


def written_duration(seconds: float) -> str:
    """Return a duration as people type it: in days (``60d``) if it is whole days, otherwise in hours (``36h``)."""
    days = seconds / _UNITS_S["d"]
    return f"{days:g}d" if days.is_integer() else f"{seconds / _UNITS_S['h']:g}h"


def listed(text: str) -> tuple[str, ...]:
    """Return the items of a text: one item per line or, if the text is a single line, items between commas."""
    parts = text.split("\n" if "\n" in text.strip() else ",")
    return tuple(part.strip() for part in parts if part.strip())


def read_prices(field: str, text: str) -> dict[str, float]:
    """Return prices in US dollars per hour by accelerator name, from a text such as ``h100=2.1, b200=4``.

    Raises:
        InvalidInput: An item is not an accelerator with a price.
    """
    found = {}
    for part in listed(text):
        price = _PRICE.fullmatch(part)
        if price is None:
            raise InvalidInput(
                field,
                part,
                "must be the name of an accelerator, =, and its price in US dollars per hour, such as h100=2.1",
            )
        found[price[1]] = float(price[2])
    return found


def written_prices(prices: Mapping[str, float]) -> str:
    """Return prices as people type them, in a form that ``read_prices`` reads: ``h100=2.1, b200=4``."""
    return ", ".join(f"{name}={price:g}" for name, price in prices.items())


def read_tokens(field: str, text: str) -> int:
    """Return a number of tokens: ``8192``, ``8k`` (k is 1,024) or ``1M`` (M is 1,048,576).

    Raises:
        InvalidInput: The text is not a whole number of 1 or more, optionally followed by k or m.
    """
    said = text.strip().replace(",", "")
    unit = _BINARY.get(said[-1:].lower(), 1)
    digits = said[:-1] if unit > 1 else said
    number = int(digits) if re.fullmatch(r"[0-9]{1,18}", digits) else 0
    if number < 1:
        rule = "must be a whole number of tokens, 1 or more, such as 8192 or 8k (k = 1,024 and m = 1,048,576)"
        raise InvalidInput(field, text[:60], rule)
    return number * unit


def read_minutes(field: str, text: str) -> float:
    """Return the seconds in a number of minutes that a person typed: ``2.5`` becomes 150.0.

    Raises:
        InvalidInput: The text is not a number.
    """
    return _MINUTE_S * read_number(field, text)


def written_minutes(seconds: float) -> str:
    """Return seconds as a number of minutes, in a form that ``read_minutes`` reads."""
    return repr(seconds / _MINUTE_S).removesuffix(".0")


def read_giga(field: str, text: str) -> float:
    """Return a number that a person typed in units of 10^9, such as GB: ``40`` becomes 4e10.

    Raises:
        InvalidInput: The text is not a number.
    """
    return _GIGA * read_number(field, text)


def read_gigabytes(field: str, text: str) -> int:
    """Return the bytes in a number of GB (10^9 bytes) that a person typed.

    Raises:
        InvalidInput: The text is not a number.
    """
    return round(read_giga(field, text))


def written_giga(value: float) -> str:
    """Return a value divided by 10^9, in a form that ``read_giga`` reads."""
    return repr(value / _GIGA).removesuffix(".0")


def read_share(field: str, text: str) -> float:
    """Return a share between 0 and 1 that is written as a fraction or in percent: ``0.05`` or ``5%``.

    Raises:
        InvalidInput: The text is not a number.
    """
    number = read_number(field, text.strip().removesuffix("%"))
    return number / 100 if text.strip().endswith("%") else number


def written_share(value: float) -> str:
    """Return a share in percent, in a form that ``read_share`` reads: ``5%``."""
    text = f"{100 * value:g}%"
    return text if read_share("", text) == value else repr(value)


def read_number(field: str, text: str) -> float:
    """Return the number that a person typed as text; commas in the text are ignored.

    Raises:
        InvalidInput: The text is not a number. The error suggests the first number in the text.
    """
    try:
        return float(text.replace(",", ""))
    except ValueError as error:
        found = re.search(_NUMBER, text)
        raise InvalidInput(field, text[:60], "must be a number", found[0] if found else None) from error


def read_count(field: str, text: str) -> int:
    """Return the whole number that a person typed as text; commas in the text are ignored.

    Raises:
        InvalidInput: The text is not a whole number. The error suggests the nearest one.
    """
    number = read_number(field, text)
    if not number.is_integer():  # NaN and infinity are not integers either
        nearest = round(number) if abs(number) < 1e18 else None
        raise InvalidInput(field, text[:60], "must be a whole number", nearest)
    return int(number)
