"""Amounts as people write them: tokens, times, money, prices by accelerator."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from autotuner.core.errors import InvalidInput

_SCALES = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_UNITS_S = {"h": 3600.0, "d": 86_400.0, "w": 604_800.0}

_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_AMOUNT = re.compile(rf"\$?({_NUMBER}(?:[eE][+]?[0-9]{{1,2}})?) ?([KMBTkmbt]?)")
_DURATION = re.compile(rf"({_NUMBER}) ?(h|d|w|hours?|days?|weeks?)")
_PRICE = re.compile(rf"\s*([^\s=]+)\s*=\s*\$?({_NUMBER})\s*")


def read_amount(field: str, text: str) -> float:
    """A number, with a letter for thousands and more: ``15.6T``, ``2e12``, ``$3.5M``.

    Raises:
        InvalidInput: It is none.
    """
    found = _AMOUNT.fullmatch(text.strip().replace(",", ""))
    if found is None:
        raise InvalidInput(field, text, "must be a number, with K, M, B or T behind it for thousands and more", "2T")
    return float(found[1]) * _SCALES[found[2].upper()]


def written_amount(value: float) -> str:
    """The same the other way: ``15.6T``."""
    letter, scale = next(((letter, one) for letter, one in reversed(_SCALES.items()) if value >= one), ("", 1.0))
    return f"{value / scale:g}{letter}"


def read_duration_s(field: str, text: str) -> float:
    """A time with its unit, in seconds: ``60d``, ``8 weeks``, ``36h``.

    Raises:
        InvalidInput: It is none.
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        number = re.match(_NUMBER, text.strip())
        rule = "must be a number of hours, days or weeks"
        raise InvalidInput(field, text, rule, f"{number[0]}d" if number else "60d")
    return float(found[1]) * _UNITS_S[found[2][0]]


def read_prices(field: str, texts: Iterable[str]) -> Mapping[str, float]:
    """US dollars per hour by accelerator: ``h100=2.1``.

    Raises:
        InvalidInput: A text is no such price.
    """
    found = {}
    for text in texts:
        price = _PRICE.fullmatch(text)
        if price is None:
            raise InvalidInput(
                field, text, "must be an accelerator and the dollars of an hour of it", _nearest_price(text)
            )
        found[price[1]] = float(price[2])
    return found


def _nearest_price(text: str) -> str:
    """What stands there, be it an accelerator or a number, with the other beside it."""
    name = text.partition("=")[0].strip()
    return f"h100={name}" if re.fullmatch(_NUMBER, name) else f"{name or 'h100'}=2.1"


def read_listed(text: str | None) -> tuple[str, ...]:
    """Words with commas between; none of no text."""
    return tuple(word.strip() for word in (text or "").split(",") if word.strip())


def read_numbers(field: str, text: str | None) -> tuple[float, ...]:
    """Numbers with commas between; none of no text.

    Raises:
        InvalidInput: One is none.
    """
    words = read_listed(text)
    for word in words:
        if not re.fullmatch(_NUMBER, word):
            number = re.search(_NUMBER, word)
            raise InvalidInput(field, word, "must be a number, others behind commas", number[0] if number else "2")
    return tuple(float(word) for word in words)


def read_counts(field: str, text: str | None) -> tuple[int, ...]:
    """Whole numbers with commas between; none of no text.

    Raises:
        InvalidInput: One is none.
    """
    numbers = read_numbers(field, text)
    for number in numbers:
        if not number.is_integer():
            raise InvalidInput(field, f"{number:g}", "must be a whole number, others behind commas", round(number))
    return tuple(int(number) for number in numbers)
