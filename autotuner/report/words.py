"""Numbers, times and jobs as people read them: the same words in terminals, on pages and in Markdown."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from autotuner.catalog.hardware import load_cluster
from autotuner.core.cluster import Cluster
from autotuner.core.convergence_gate import GateOutcome
from autotuner.core.errors import InvalidInput, NotFound
from autotuner.core.field_change import FieldChange
from autotuner.core.layout import OPTIONS
from autotuner.core.link import LinkHealth
from autotuner.core.listed import COUNTED_BEHIND
from autotuner.core.model import ModelSize
from autotuner.core.prediction import Prediction, TrialEstimate
from autotuner.core.units import (
    format_bytes,
    format_count,
    format_duration,
    format_long_duration,
    format_rate,
    format_seconds,
)
from autotuner.report.charts import Unit
from autotuner.report.report import Cells, Column, Quantity, Strong, predicted
from autotuner.report.scale import Scale

if TYPE_CHECKING:
    from autotuner.core.comparison import EnvironmentChange

_S_PER_DAY = 86_400.0

DASH = "–"
"""Sign for an unknown value."""


# ------------------------------------------------------------------ numbers
def quantity(given: Quantity, *, by_ends: bool | None = None, scale: Scale | None = None) -> str:
    """Return a number with its unit and, where it is known, its interval: ``41.0 ± 4.5 %``, ``1.23 s ± 11 %``.

    Args:
        given: The number.
        by_ends: Whether the interval of a share is given by its ends, for a column that shall have one notation; None
            asks its width.
        scale: Of its column, whose head says the unit; None: the number says its own.
    """
    number, spread = parts_of(given, by_ends=by_ends, scale=scale)
    if not spread:
        return number
    if not spread.startswith("±"):
        return f"{number}, {spread}"
    if given.unit != "share" or scale is not None:
        return f"{number} {spread}"
    return f"{number.removesuffix(' %')} {spread} %"


def mfu_quantity(found: Prediction) -> Quantity:
    """Return the predicted MFU, whose interval ends at the peak of the precision in use."""
    return predicted(found.mfu, "share", found.relative_error, found.highest_mfu)


def parts_of(given: Quantity, *, by_ends: bool | None = None, scale: Scale | None = None) -> tuple[str, str]:
    """Return a number with its unit, and its interval by itself: ``("41.0 %", "± 4.5")``; args as of ``quantity``."""
    value, low, high = given.value, given.low, given.high
    if value is None or not math.isfinite(value):
        return DASH, ""
    number = scale(value, is_signed=given.unit == "signed_s") if scale else _number(value, given)
    if low is None or high is None:
        return number, ""
    if scale is not None:
        return number, _scaled_interval(given, value, low, high, scale, by_ends=by_ends)
    if given.unit == "signed_share":
        return number, f"{_number(low, given)} to {_number(high, given)}"
    relative = _relative(value, low)
    if given.unit == "share":
        if is_wide(relative) if by_ends is None else by_ends:
            return number, f"{100 * low:.0f} to {percent(high)}"
        return number, f"± {100 * max(value - low, high - value):.1f}"
    if is_wide(relative):
        return number, f"{_number(low, given)} to {_number(high, given)}"
    return number, f"± {percent(relative)}"


def _scaled_interval(
    given: Quantity, value: float, low: float, high: float, scale: Scale, *, by_ends: bool | None
) -> str:
    relative = _relative(value, low)
    if is_wide(relative) if by_ends is None else by_ends:
        return f"{scale(low)} to {scale(high)}"
    if given.unit != "share":
        return f"± {percent(relative)}"
    return f"± {scale(max(value - low, high - value))}"


def _number(value: float, of: Quantity) -> str:
    return number(value, of.unit, is_exact=of.is_exact)


def number(value: float, unit: Unit, *, is_exact: bool = False) -> str:
    """Return a number with its unit: ``41.3 %``, ``369 ktokens/s``, ``2.84 s``."""
    if unit in _WRITTEN:
        return _WRITTEN[unit](value)
    match unit:
        case "tokens/s" if is_exact:
            return f"{value:,.0f} tokens/s" if value >= 1000 else f"{value:.4g} tokens/s"
        case "bytes/s" | "tokens/s" | "tokens/$" | "tokens/kg CO2" | "FLOP/s" | "FLOP":
            return format_rate(value, unit.replace("bytes", "B"))
        case "parameters":
            return format_count(value)
        case "$":
            return f"${value:.3g}" if value < 0.1 else f"${value:,.2f}" if value < 1000 else f"${value:,.0f}"
        case "count":
            return f"{value:,.0f}"
        case "":
            return f"{value:.4g}" if is_exact else f"{value:.3g}"
    digits = ".2f" if unit == "×" else ".3g" if abs(value) < 1000 else ",.0f"
    return f"{value:{digits}} {unit}"


def with_unit(column: Column) -> str:
    """Return the head of a column with the unit of its numbers, where they share one."""
    return ", ".join(filter(None, (column.name, column.scale.unit if column.scale else "")))


def with_group(column: Column) -> str:
    """Return the head of a column below that of its group, where there is no row for groups."""
    return "\n".join(filter(None, (column.group, with_unit(column))))


_WIDE = 0.3
"""Half-width of a multiplicative interval above which its two sides differ too much to share a number."""


def is_wide(relative_error: float | None) -> bool:
    """Return True if an interval is given by its ends, since its two sides differ too much to share a number."""
    return relative_error is not None and relative_error > _WIDE


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


def percent(share: float) -> str:
    """Return a share in whole hundredths: ``11 %``; what is there and rounds to nothing is ``<1 %``."""
    return "<1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"


def signed(share: float, error: float | None = None) -> str:
    """Return a gain or a loss in tenths of a hundredth: ``−0.4 %``, and with what it may be off ``+8.6 ± 1.3 %``."""
    spread = "" if error is None else f" ± {100 * error:.1f}"
    return f"{100 * share:+.1f}{spread} %".replace("-", "−")


def likely(probability: float) -> str:
    """Return a probability in whole hundredths: ``97 %``; one that is all but certain is ``>99 %``."""
    return ">99 %" if 0.995 <= probability < 1 else percent(probability)


def size_in_words(num_parameters: int, num_active_parameters: int) -> str:
    """Return a model's parameters: ``8.03B parameters``, and of a sparse one ``46.7B parameters, 12.9B active``."""
    active = "" if num_active_parameters == num_parameters else f", {format_count(num_active_parameters)} active"
    return f"{format_count(num_parameters)} parameters{active}"


def three_digits(value: float) -> str:
    """Three digits, all of them before the point where there are more: ``22.6``, ``41,800``."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def money(dollars: float) -> str:
    """Dollars with three digits: ``$3.86M``, ``−$410k``."""
    sign = "−" if dollars < 0 else ""
    size = abs(dollars)
    return f"{sign}${size:,.0f}" if size < 1000 else f"{sign}${format_count(size)}"


_WRITTEN: Mapping[Unit, Callable[[float], str]] = {
    "share": lambda value: f"{100 * value:.1f} %",
    "signed_share": lambda value: f"{round(100 * value, 1) + 0.0:+.1f} %".replace("-", "−"),  # which is no -0.0
    "signed_s": lambda value: f"{'−' if value < 0 else '+'}{format_seconds(abs(value))}" if value else "0",
    "chance": likely,
    "s": format_seconds,
    "duration": format_duration,
    "long_duration": format_long_duration,
    "days": lambda value: f"{three_digits(value / _S_PER_DAY)} days",
    "money": money,
    "points": lambda value: f"{value:+.3g}".replace("-", "−") if value else "0",
    "bytes": format_bytes,
}
"""Functions that write a number, by unit."""


def has_wide_interval(cells: Iterable[Cells]) -> bool:
    """Return whether one interval is too wide for ±: then all shares of a table are written by their ends."""
    given = (cell for cell in cells if isinstance(cell, Quantity) and cell.unit != "signed_share")
    return any(one.value and one.low is not None and is_wide(_relative(one.value, one.low)) for one in given)


def _relative(value: float, low: float) -> float:
    return value / low - 1 if low > 0 else math.inf


# ------------------------------------------------------------------ times and words
def moment(at: float, time_zone: str = "UTC", *, has_seconds: bool = False) -> str:
    """Return a time of epoch seconds: ``2026-11-20 15:51 UTC``."""
    clock = "%H:%M:%S" if has_seconds else "%H:%M"
    return datetime.fromtimestamp(at, ZoneInfo(time_zone)).strftime(f"%Y-%m-%d {clock} %Z")


def plain(word: object) -> str:
    """Return a word of an enum as people write it: ``no_improvement`` is ``no improvement``."""
    return str(word).replace("_", " ")


def counted(number: int, noun: str, nouns: str = "") -> str:
    """Return a number with its noun: ``1 trial``, ``25 trials``, ``2 deliveries`` where the plural is given."""
    return f"{number:,} {noun if number == 1 else nouns or f'{noun}s'}"


def num_in_all(total: int, noun: str, nouns: str = "") -> str:
    """Return how many a list has, of which no more were counted than the store counts: ``more than 10000 gates``."""
    is_more = total > COUNTED_BEHIND
    return f"more than {COUNTED_BEHIND} {nouns or f'{noun}s'}" if is_more else counted(total, noun, nouns)


def environment_change(one: EnvironmentChange) -> Cells:
    """Return one fact that is not what it was: ``torch 2.12 → 2.13``; of many nodes and links as a sentence."""
    if one.is_of_many:
        return str(one)
    return (Strong(one.name), f"{one.then or 'not recorded'} → {one.now or 'not recorded'}")


def sentence(words: str) -> str:
    """Return a statement as a sentence; one that begins with a layout (``fsdp64 mb1``) keeps its small letter."""
    begins_with_layout = any(letter.isdigit() for letter in words.partition(" ")[0])
    capital = words if begins_with_layout else words[:1].upper() + words[1:]
    return capital if capital.endswith((".", "?", ":")) else f"{capital}."


def listed(words: Sequence[str]) -> str:
    """Return words as a sentence lists them: ``MFU, simplicity and robustness``."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def in_sentences(parts: Iterable[str]) -> str:
    """Return statements without full stops as sentences, one after the other."""
    return " ".join(f"{part[0].upper()}{part[1:]}." for part in parts)


def ranges(numbers: Iterable[int]) -> str:
    """Return rising numbers with neighbours drawn together: ``1–3, 5``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)


# ------------------------------------------------------------------ jobs
def model_in_words(size: ModelSize) -> str:
    """Return the model with its parameters: ``mixtral-8x7b (46.7B parameters, 12.9B active)``."""
    return f"{size.name} ({size_in_words(size.num_parameters, size.num_active_parameters)})"


def cluster_in_words(cluster: Cluster | str) -> str:
    """Return the name of a cluster: its own, that of the catalog, or else what was given."""
    if isinstance(cluster, Cluster):
        return cluster.name
    try:
        return load_cluster(cluster).name
    except (InvalidInput, NotFound):
        return cluster


def job_in_words(size: ModelSize, *, cluster: str, global_batch: int, seq_len: int) -> str:
    """Return the job: ``llama-3-8b (8.03B parameters) on h100:8, 64 sequences of 8192``."""
    return f"{model_in_words(size)} on {cluster}, {global_batch} sequences of {seq_len}"


def estimate_in_words(found: TrialEstimate) -> str:
    """Return the source of an estimate: ``estimated from a trial on 8 of 64 ranks``."""
    trial = "simulated trial" if found.is_simulated else "trial"
    return f"estimated from a {trial} on {found.num_trial_ranks} of {found.num_ranks} ranks"


# ------------------------------------------------------------------ layouts
def value_in_words(value: object) -> str:
    """Return the value of an option: a number, a choice's word, or on and off."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value).replace("_", " ")


_DATA_DEGREES = ("data_parallel_replicate_degree", "data_parallel_shard_degree")


def changes_in_words(changes: Sequence[FieldChange]) -> str:
    """Return the options that change, each with both values: ``tensor 4 → 2, replicate 8 → 16``.

    Where the same replicas are only sharded otherwise, the sharding alone is said.
    """
    said = list(changes)
    if any(one.field == "shard_level" for one in said):
        degrees = [one for one in said if one.field in _DATA_DEGREES]
        if math.prod(int(one.before) for one in degrees) == math.prod(int(one.after) for one in degrees):
            said = [one for one in said if one not in degrees]
    return ", ".join(
        f"{OPTIONS[one.field].label} {value_in_words(one.before)} → {value_in_words(one.after)}" for one in said
    )


def fit_in_words(fits: bool, probability: float | None) -> str:
    """Return whether a layout is predicted to fit, and how sure that is: ``fits, 97 % sure``."""
    likely = fits if probability is None else probability >= 0.5
    words = "fits" if likely else "does not fit"
    if probability is None:
        return words
    certainty = max(probability, 1 - probability)
    return f"{words}, {percent(certainty) if certainty < 0.995 else '>99 %'} sure"


def gate_in_words(outcome: GateOutcome) -> str:
    """Return the outcome of a layout's convergence gate: ``convergence gate passed``."""
    words = {
        GateOutcome.PASSED: "convergence gate passed",
        GateOutcome.FAILED: "convergence gate failed",
        GateOutcome.NOT_GATED: "loss not gated",
    }
    return words[outcome]


_LEAST_GAIN = 1e-4
"""Smaller expected gains are not written out."""


def gain_in_words(share: float, raised: str) -> str:
    """Return what one more trial is expected to gain, or that none is worth saying."""
    if share < _LEAST_GAIN:
        return "no gain is expected from more trials"
    return f"one more trial is expected to raise {raised} by {100 * share:.2g} %"


# ------------------------------------------------------------------ links
def link_state(health: LinkHealth) -> str:
    """Return the fault of a link, in a word: ``60 ms``, ``25 MB/s``, ``dead``."""
    if health.is_dead:
        return "dead"
    if health.bandwidth_bytes_per_s is not None:
        return format_rate(health.bandwidth_bytes_per_s, "B/s")
    return format_seconds(health.delay_s)
