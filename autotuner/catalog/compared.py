"""Which predictions were compared with measured runs, from the table in this folder."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from autotuner.core.model import TransformerSpec
from autotuner.core.wire import from_dict

__all__ = [
    "BITS_8",
    "BITS_16",
    "DENSE",
    "EXPERTS",
    "Compared",
    "Pooled",
    "comparisons",
    "model_kind",
    "pooled_scatter",
]

DENSE, EXPERTS = "dense models", "models with experts"
"""Kinds of models whose laws differ."""


BITS_8, BITS_16 = "8 bits", "16 bits"
"""Widths of the factors of matrix products, by which runs scatter differently; 16 stands for wider ones too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Measured runs of one kind of model, by one stack on one accelerator, that predictions were compared with.

    Attributes:
        stack: Name in the catalog.
        device: Name of the accelerator in the catalog.
        model: Kind of the model.
        runs: How many there were.
        tables: Published tables that they stand in.
        scatter: Deviation of log(measured / predicted) that neither parts nor the cluster explain, among runs that were
            left out of the fit, by the width of their numbers.
        options: How many of them had something that a layout may have, by its name; what none had is missing.
    """

    stack: str
    device: str
    model: str
    runs: int
    tables: tuple[str, ...] = ()
    scatter: dict[str, float] = field(default_factory=dict)
    options: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooled:
    """How far runs of one kind of model scatter, whatever ran them; each stack and accelerator counts as much."""

    model: str
    scatter: dict[str, float]


def model_kind(model: TransformerSpec) -> str:
    """What the model is counted as."""
    return EXPERTS if model.experts else DENSE


@cache
def comparisons() -> Mapping[tuple[str, str, str], Compared]:
    """Every entry of the table, by stack, device and kind of model."""
    entries = [from_dict(Compared, entry, f"compared.{i}") for i, entry in enumerate(_table()["compared"])]
    return {(entry.stack, entry.device, entry.model): entry for entry in entries}


@cache
def pooled_scatter(model: str) -> Mapping[str, float]:
    """How far runs of this kind of model scatter, by the width of their numbers; empty where none were compared."""
    entries = [from_dict(Pooled, entry, f"pooled.{i}") for i, entry in enumerate(_table().get("pooled", ()))]
    return next((entry.scatter for entry in entries if entry.model == model), {})


def _table() -> dict[str, Any]:
    return tomllib.loads(files("autotuner.catalog").joinpath("compared.toml").read_text(encoding="utf-8"))
