"""Which predictions were compared with measured runs, from the table in this folder."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from autotuner.domain.jobs.model import TransformerSpec
from autotuner.domain.wire import from_dict

__all__ = ["DENSE", "EXPERTS", "Compared", "comparisons", "model_kind"]

DENSE, EXPERTS = "dense models", "models with experts"
"""Kinds of models whose laws differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Measured runs of one kind of model, by one stack on one accelerator, that predictions were compared with.

    Attributes:
        stack: Name in the catalog.
        device: Name of the accelerator in the catalog.
        model: Kind of the model.
        runs: How many there were.
        tables: Published tables that they stand in.
        options: How many of them had something that a layout may have, by its name; what none had is missing.
    """

    stack: str
    device: str
    model: str
    runs: int
    tables: tuple[str, ...] = ()
    options: dict[str, int] = field(default_factory=dict)


def model_kind(model: TransformerSpec) -> str:
    """What the model is counted as."""
    return EXPERTS if model.experts else DENSE


@cache
def comparisons() -> Mapping[tuple[str, str, str], Compared]:
    """Every entry of the table, by stack, device and kind of model."""
    text = files("autotuner.catalog").joinpath("compared.toml").read_text(encoding="utf-8")
    entries = [from_dict(Compared, entry, f"compared.{i}") for i, entry in enumerate(tomllib.loads(text)["compared"])]
    return {(entry.stack, entry.device, entry.model): entry for entry in entries}
