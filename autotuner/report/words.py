"""Numbers, times and jobs as people read them; terminals, pages and Markdown use the same words."""

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
    """Return a number with its unit and, if known, its interval: ``41.0 ± 4.5 %``, ``1.23 s ± 11 %``.

    Args:
        given: The number.
        by_ends: True if the interval of a share is written as its two ends, so that a column has one notation; None:
            only if it is wide.
        scale: Unit and digits that the column shares; the head of the column then names the unit. None: the number has
            its own unit.
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
    """Return the predicted MFU with its interval. The upper end does not exceed the peak of the layout's precision."""
    return predicted(found.mfu, "share", found.relative_error, found.highest_mfu)


def parts_of(given: Quantity, *, by_ends: bool | None = None, scale: Scale | None = None) -> tuple[str, str]:
    """Return two texts: a number with its unit, and its interval, such as ``("41.0 %", "± 4.5")``.

    The arguments are those of ``quantity``. The second text is empty if the interval is not known.
    """
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
    """Return a number with its unit as people write it: ``41.3 %``, ``369 ktokens/s``, ``2.84 s``.

    Args:
        value: Value in the base unit.
        unit: The base unit.
        is_exact: True to write one more digit than usual, so that close values can be compared.
    """
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
    """Return the head of a column, with the unit of its numbers if they share one."""
    return ", ".join(filter(None, (column.name, column.scale.unit if column.scale else "")))


def with_group(column: Column) -> str:
    """Return the name of a column's group and the head of the column, for tables without a row of group names."""
    return "\n".join(filter(None, (column.group, with_unit(column))))


_WIDE = 0.3
"""Half-width of a multiplicative interval from which both ends are written, because its two sides differ too much."""


def is_wide(relative_error: float | None) -> bool:
    """Return True if an interval is so wide that both its ends are written instead of ``±`` (half-width above 0.3)."""
    return relative_error is not None and relative_error > _WIDE


def with_interval(value: float, relative_error: float | None, text_of: Callable[[float], str]) -> str:
    """Return a value with its interval: ``1.23 s ± 11 %``, or ``97.5 s, 32.9 s to 289 s`` for a wide interval.

    Args:
        value: The expected value.
        relative_error: The relative half-width e of the interval from value / (1 + e) to value x (1 + e); None: not
            known.
        text_of: Returns the text of the value, and of each end of the interval.
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
    """Return a share (0 to 1) as a whole percentage: ``11 %``; a share above 0 that rounds to 0 is ``<1 %``."""
    return "<1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"


def signed(share: float, error: float | None = None) -> str:
    """Return a gain or a loss in percent with one decimal: ``−0.4 %``, or with its error ``+8.6 ± 1.3 %``.

    Args:
        share: The gain, such as 0.01 for 1 %; a negative number is a loss.
        error: Half the width of the gain's interval; None: not written.
    """
    spread = "" if error is None else f" ± {100 * error:.1f}"
    return f"{100 * share:+.1f}{spread} %".replace("-", "−")


def likely(probability: float) -> str:
    """Return a probability as a whole percentage: ``97 %``; from 99.5 % on, but below certainty, it is ``>99 %``."""
    return ">99 %" if 0.995 <= probability < 1 else percent(probability)


def size_in_words(num_parameters: int, num_active_parameters: int) -> str:
    """Return a model's parameters: ``8.03B parameters``, or for a sparse model ``46.7B parameters, 12.9B active``."""
    active = "" if num_active_parameters == num_parameters else f", {format_count(num_active_parameters)} active"
    return f"{format_count(num_parameters)} parameters{active}"


def three_digits(value: float) -> str:
    """Return a number with three significant digits, or as a whole number from 100 on: ``22.6``, ``41,800``."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def money(dollars: float) -> str:
    """Return an amount of dollars with three digits: ``$3.86M``, ``−$410k``."""
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
"""Function that writes a number, for each unit."""


def has_wide_interval(cells: Iterable[Cells]) -> bool:
    """Return True if an interval among the cells is too wide for ``±``.

    All intervals of the column are then written as their two ends.
    """
    given = (cell for cell in cells if isinstance(cell, Quantity) and cell.unit != "signed_share")
    return any(one.value and one.low is not None and is_wide(_relative(one.value, one.low)) for one in given)


def _relative(value: float, low: float) -> float:
    return value / low - 1 if low > 0 else math.inf


# ------------------------------------------------------------------ times and words
def moment(at: float, time_zone: str = "UTC", *, has_seconds: bool = False) -> str:
    """Return a time as text: ``2026-11-20 15:51 UTC``.

    Args:
        at: The time in epoch seconds.
        time_zone: Name of the time zone to write it in.
        has_seconds: True if seconds are written.
    """
    clock = "%H:%M:%S" if has_seconds else "%H:%M"
    return datetime.fromtimestamp(at, ZoneInfo(time_zone)).strftime(f"%Y-%m-%d {clock} %Z")


def plain(word: object) -> str:
    """Return the value of an enum as people write it: ``no_improvement`` becomes ``no improvement``."""
    return str(word).replace("_", " ")


def counted(number: int, noun: str, nouns: str = "") -> str:
    """Return a number with its noun: ``1 trial``, ``25 trials``, ``2 deliveries``.

    Args:
        number: The number.
        noun: The noun in the singular.
        nouns: The noun in the plural; empty: the singular with an "s".
    """
    return f"{number:,} {noun if number == 1 else nouns or f'{noun}s'}"


def num_in_all(total: int, noun: str, nouns: str = "") -> str:
    """Return the length of a list with a noun: ``25 trials``, ``more than 10000 gates``.

    The store counts entries only up to a limit. A longer list is described as "more than" this limit.
    """
    is_more = total > COUNTED_BEHIND
    return f"more than {COUNTED_BEHIND} {nouns or f'{noun}s'}" if is_more else counted(total, noun, nouns)


def environment_change(one: EnvironmentChange) -> Cells:
    """Return one changed fact of the environment: ``torch 2.12 → 2.13``. A change on many nodes is a whole sentence."""
    if one.is_of_many:
        return str(one)
    return (Strong(one.name), f"{one.then or 'not recorded'} → {one.now or 'not recorded'}")


def sentence(words: str) -> str:
    """Return a statement as a sentence, with a capital and a full stop.

    A statement that begins with a layout (``fsdp64 mb1``) keeps its small letter.
    """
    begins_with_layout = any(letter.isdigit() for letter in words.partition(" ")[0])
    capital = words if begins_with_layout else words[:1].upper() + words[1:]
    return capital if capital.endswith((".", "?", ":")) else f"{capital}."


def listed(words: Sequence[str]) -> str:
    """Return words as a list in a sentence: ``MFU, simplicity and robustness``."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def in_sentences(parts: Iterable[str]) -> str:
    """Return statements without full stops as sentences, joined by spaces."""
    return " ".join(f"{part[0].upper()}{part[1:]}." for part in parts)


def ranges(numbers: Iterable[int]) -> str:
    """Return rising numbers, with consecutive ones as a range: ``1–3, 5``."""
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
    """Return the name of a cluster. If the catalog has the cluster under the given text, return its full name there."""
    if isinstance(cluster, Cluster):
        return cluster.name
    try:
        return load_cluster(cluster).name
    except (InvalidInput, NotFound):
        return cluster


def job_in_words(size: ModelSize, *, cluster: str, global_batch: int, seq_len: int) -> str:
    """Describe a job: ``llama-3-8b (8.03B parameters) on h100:8, 64 sequences of 8192``.

    Args:
        size: The model with its number of parameters.
        cluster: Name of the cluster.
        global_batch: Sequences per optimizer step, whole job.
        seq_len: Tokens of a sequence.
    """
    return f"{model_in_words(size)} on {cluster}, {global_batch} sequences of {seq_len}"


def estimate_in_words(found: TrialEstimate) -> str:
    """Describe the trial that a full-size estimate comes from: ``estimated from a trial on 8 of 64 ranks``."""
    trial = "simulated trial" if found.is_simulated else "trial"
    return f"estimated from a {trial} on {found.num_trial_ranks} of {found.num_ranks} ranks"


# ------------------------------------------------------------------ layouts
def value_in_words(value: object) -> str:
    """Return the value of an option as text: a number, a word, ``on`` or ``off``."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value).replace("_", " ")


_DATA_DEGREES = ("data_parallel_replicate_degree", "data_parallel_shard_degree")


def changes_in_words(changes: Sequence[FieldChange]) -> str:
    """Return changed options with their old and new values: ``tensor 4 → 2, replicate 8 → 16``.

    If only the sharding of the data-parallel ranks changes, but not their number, the text names only the shard level.
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
    """Describe whether a layout is predicted to fit in memory, and how sure that is: ``fits, 97 % sure``.

    Args:
        fits: True if it is predicted to fit; this value is used only if ``probability`` is None.
        probability: Probability that it fits; None: not known.
    """
    likely = fits if probability is None else probability >= 0.5
    words = "fits" if likely else "does not fit"
    if probability is None:
        return words
    certainty = max(probability, 1 - probability)
    return f"{words}, {percent(certainty) if certainty < 0.995 else '>99 %'} sure"


def gate_in_words(outcome: GateOutcome) -> str:
    """Return the outcome of a convergence gate (a comparison of losses) in words: ``convergence gate passed``."""
    words = {
        GateOutcome.PASSED: "convergence gate passed",
        GateOutcome.FAILED: "convergence gate failed",
        GateOutcome.NOT_GATED: "loss not gated",
    }
    return words[outcome]


_LEAST_GAIN = 1e-4
"""Smallest expected gain that is shown as a number."""


def gain_in_words(share: float, raised: str) -> str:
    """Describe how much one more trial is expected to gain, or that no gain is expected.

    Args:
        share: Expected gain, 0.01 for 1 %.
        raised: Name of the value that would rise.
    """
    if share < _LEAST_GAIN:
        return "no gain is expected from more trials"
    return f"one more trial is expected to raise {raised} by {100 * share:.2g} %"


# ------------------------------------------------------------------ links
def link_state(health: LinkHealth) -> str:
    """Return what is wrong with a link: its delay (``60 ms``), its bandwidth (``25 MB/s``), or ``dead``."""
    if health.is_dead:
        return "dead"
    if health.bandwidth_bytes_per_s is not None:
        return format_rate(health.bandwidth_bytes_per_s, "B/s")
    return format_seconds(health.delay_s)
