"""Jobs and quantities as people read them."""

from __future__ import annotations

from collections.abc import Iterable

from autotuner.core.units import format_bytes
from autotuner.report.report import Cell, Quantity
from autotuner.search.predictions import ModelSize
from autotuner.search.text.sentences import expected_mfu, expected_seconds, is_wide, likely, size_in_words


def model_in_words(size: ModelSize) -> str:
    """The model with its parameters: ``mixtral-8x7b (46.7B parameters, 12.9B active)``."""
    return f"{size.name} ({size_in_words(size.num_parameters, size.num_active_parameters)})"


def job_in_words(size: ModelSize, *, cluster: str, global_batch: int, seq_len: int) -> str:
    """The job: ``llama-3-8b (8.03B parameters) on h100:8, 64 sequences of 8192``."""
    return f"{model_in_words(size)} on {cluster}, {global_batch} sequences of {seq_len}"


def quantity(given: Quantity, *, by_ends: bool | None = None) -> str:
    """A number with its unit and, where it is known, its interval: ``41.0 ± 4.5 %``, ``1.23 s ± 11 %``.

    Args:
        given: The number.
        by_ends: Whether the interval of a share is given by its ends, for a column that shall have one notation; None
            asks its width.
    """
    match given.unit:
        case "share":
            of_peak = given.value / given.highest if given.highest else None
            return expected_mfu(given.value, given.relative_error, of_peak, by_ends=by_ends)
        case "chance":
            return likely(given.value)
        case "s":
            return expected_seconds(given.value, given.relative_error)
        case "bytes":
            return format_bytes(given.value)


def has_wide_interval(cells: Iterable[Cell]) -> bool:
    """Whether one interval is too wide for ±: then all shares of a table are written by their ends."""
    return any(isinstance(cell, Quantity) and is_wide(cell.relative_error) for cell in cells)
