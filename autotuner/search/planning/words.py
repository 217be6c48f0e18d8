"""Amounts and figures of plans as people write and read them: tokens, times, money, intervals."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from autotuner.core.errors import InvalidInput
from autotuner.core.units import format_count
from autotuner.core.workload import Workload
from autotuner.search.planning.request import Goal

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


_S_PER_DAY = 86_400.0

_CLEAR = 0.5
"""A cluster with a lower chance to be the best choice is likelier not to be it."""


def advice_in_words(cluster: str, chance_best: float) -> str:
    """Return what to take, as sure as that is: ``Take h100-sxm:64``, or that the cluster only leads."""
    return f"Take {cluster}" if chance_best >= _CLEAR else f"No clear choice: {cluster} leads"


def workload_in_words(goal: Goal, workload: Workload) -> str:
    """Return how much is trained: ``2T tokens in steps of 1,024 sequences of 8,192 tokens``."""
    steps = f"steps of {workload.global_batch_size:,} sequences of {workload.seq_len:,} tokens"
    return f"{written_amount(goal.num_tokens)} tokens in {steps}"


def amount(value: float) -> str:
    """Three digits, all of them before the point where there are more: ``22.6``, ``41,800``."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def money(dollars: float) -> str:
    """Dollars with three digits: ``$3.86M``, ``−$410k``."""
    sign = "−" if dollars < 0 else ""
    size = abs(dollars)
    return f"{sign}${size:,.0f}" if size < 1000 else f"{sign}${format_count(size)}"


def days(seconds: float) -> str:
    """Days with three digits: ``22.6 days``."""
    return f"{seconds / _S_PER_DAY:.3g} days"


def within(low: float, high: float) -> str:
    """The 80 % interval by its factor, of ends that lie as many times below and above the median: ``x/÷ 1.27``."""
    return f"x/÷ {(high / low) ** 0.5:.2f}"


def goal_in_words(goal: Goal) -> str:
    """The limits: ``the deadline of 60 days and the price limit of $3M``; empty where there are none."""
    limits = [f"the deadline of {days(goal.deadline_s)}"] if goal.deadline_s else []
    limits += [f"the price limit of {money(goal.price_limit)}"] if goal.price_limit else []
    return " and ".join(limits)


def worth_in_words(dollars: float) -> str:
    """What an accelerator-hour may cost more: ``up to $0.26``, ``nothing``."""
    return f"up to ${dollars:.2f}" if dollars >= 0.005 else "nothing"
