"""Words and numbers of sentences: fields of a layout, what changes between two, predictions with their errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from autotuner.core.convergence_gate import GateOutcome
from autotuner.core.layout import OPTIONS, RANK_DEGREES, Layout
from autotuner.core.units import format_count, format_rate, format_seconds

EMULATED = "emulated, not ranked"
"""What stands beside a trial whose number format its hardware lacks."""

_IN_ORDER = (*RANK_DEGREES, *(name for name in OPTIONS if name not in RANK_DEGREES))

_DATA_DEGREES = ("data_parallel_replicate_degree", "data_parallel_shard_degree")


_WIDE = 0.3
"""Half-width of a multiplicative interval above which its two sides differ too much to share a number."""


def value_in_words(value: object) -> str:
    """A field's value: a number, a choice's word, or on and off."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value).replace("_", " ")


def listed(words: Sequence[str]) -> str:
    """Words as a sentence lists them: ``MFU, simplicity and robustness``."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


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


def size_in_words(num_parameters: int, num_active_parameters: int) -> str:
    """A model's parameters: ``8.03B parameters``, and of a sparse one ``46.7B parameters, 12.9B active``."""
    active = "" if num_active_parameters == num_parameters else f", {format_count(num_active_parameters)} active"
    return f"{format_count(num_parameters)} parameters{active}"


def percent(share: float) -> str:
    """A share in whole hundredths: ``11 %``; what is there and rounds to nothing is ``<1 %``."""
    return "<1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"


_LEAST_GAIN = 1e-4
"""Smaller expected gains are not written out."""


def signed(share: float, error: float | None = None) -> str:
    """A gain or a loss in tenths of a hundredth: ``−0.4 %``, and with what it may be off ``+8.6 ± 1.3 %``."""
    spread = "" if error is None else f" ± {100 * error:.1f}"
    return f"{100 * share:+.1f}{spread} %".replace("-", "−")


def likely(probability: float) -> str:
    """A probability in whole hundredths: ``97 %``; one that is all but certain is ``>99 %``."""
    return ">99 %" if 0.995 <= probability < 1 else percent(probability)


def gain_in_words(share: float, raised: str) -> str:
    """Return what one more trial is expected to gain, or that none is worth saying."""
    if share < _LEAST_GAIN:
        return "no gain is expected from more trials"
    return f"one more trial is expected to raise {raised} by {100 * share:.2g} %"


def in_sentences(parts: Iterable[str]) -> str:
    """Sentences without full stops, one after the other with them."""
    return " ".join(f"{part[0].upper()}{part[1:]}." for part in parts)


def ranges(numbers: Iterable[int]) -> str:
    """Rising numbers with neighbours drawn together: ``1–3, 5``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)


def expected_seconds(seconds: float, relative_error: float | None) -> str:
    """A predicted time with its 80 % interval: ``1.23 s ± 11 %``; see ``with_interval``."""
    return with_interval(seconds, relative_error, format_seconds)


def seconds_interval(seconds: float, relative_error: float | None) -> str:
    """Return the 80 % interval that stands behind a predicted time: ``± 11 %``, or nothing where it is unknown."""
    return "" if relative_error is None else _interval(seconds, relative_error, format_seconds)


def expected_rate(per_s: float, relative_error: float | None) -> str:
    """A predicted token rate with its 80 % interval: ``104 ktoken/s ± 11 %``; see ``with_interval``."""
    return with_interval(per_s, relative_error, lambda rate: format_rate(rate, "token/s"))


def with_interval(value: float, relative_error: float | None, text_of: Callable[[float], str]) -> str:
    """Return a value with its interval: ``1.23 s ± 11 %``, or ``97.5 s, 32.9 s to 289 s`` where it is wide.

    Args:
        value: What is expected.
        relative_error: Half-width e of an interval from value / (1 + e) to value x (1 + e); None where it is unknown.
        text_of: How the value and the ends are written.
    """
    if relative_error is None:
        return text_of(value)
    interval = _interval(value, relative_error, text_of)
    return f"{text_of(value)}{' ' if interval.startswith('±') else ', '}{interval}"


def _interval(value: float, relative_error: float, text_of: Callable[[float], str]) -> str:
    if is_wide(relative_error):
        return f"{text_of(value / (1 + relative_error))} to {text_of(value * (1 + relative_error))}"
    return f"± {percent(relative_error)}"


def is_wide(relative_error: float | None) -> bool:
    """Whether an interval is given by its ends, since its two sides differ too much to share a number."""
    return relative_error is not None and relative_error > _WIDE


def expected_mfu(
    mfu: float, relative_error: float | None, precision_utilization: float | None = None, *, by_ends: bool | None = None
) -> str:
    """A predicted MFU with the same half-width in points: ``41.0 ± 4.5 %``, that is 37 to 45 %.

    An interval so wide that points would mislead is given by its ends: ``61.2 %, 30 to 100 %``.

    Args:
        mfu: What is expected.
        relative_error: Half-width of the 80 % interval; None where it is unknown.
        precision_utilization: How much of its own precision's peak the layout uses: that peak bounds the interval, and
            lies above 100 % MFU where the precision is faster than the reference's. None: the reference's bounds it.
        by_ends: How to write the interval, for a column that shall have one notation; None asks its width.
    """
    if relative_error is not None and (is_wide(relative_error) if by_ends is None else by_ends):
        highest = mfu / precision_utilization if precision_utilization else max(1.0, mfu)
        low, high = mfu / (1 + relative_error), min(highest, mfu * (1 + relative_error))
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


def gate_in_words(outcome: GateOutcome) -> str:
    """What became of the loss gate of a layout that changes the mathematics: ``loss gate passed``."""
    words = {
        GateOutcome.PASSED: "loss gate passed",
        GateOutcome.FAILED: "loss gate failed",
        GateOutcome.NOT_GATED: "loss not gated",
    }
    return words[outcome]
