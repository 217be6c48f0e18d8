"""Release: what differs between the releases of torchtitan that layouts are written for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autotuner.core.choices import Fp8Recipe
from autotuner.core.trial_spec import ExportFormat
from autotuner.export.torchtitan.entries import ENTRIES_0_2, ENTRIES_0_3, Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One release.

    Attributes:
        entries: Fields that one setting says.
        recipes: Words for the recipes of its float8 converter.
        splits_every_sequence: Tensor ranks split the sequence wherever there are some.
        by_flavor: A model's flavor says how it attends; else a word of its own does.
    """

    format: ExportFormat
    version: str
    entries: tuple[Entry, ...]
    recipes: Mapping[int, str]
    splits_every_sequence: bool
    by_flavor: bool


RELEASE_0_2 = Release(
    format=ExportFormat.TORCHTITAN,
    version="0.2.2",
    entries=ENTRIES_0_2,
    recipes={Fp8Recipe.TENSORWISE: "tensorwise", Fp8Recipe.ROWWISE: "rowwise"},
    splits_every_sequence=True,  # models/llama3/infra/parallelize.py, apply_tp
    by_flavor=True,
)

RELEASE_0_3 = Release(
    format=ExportFormat.TORCHTITAN_CONFIG,
    version="0.3.0",
    entries=ENTRIES_0_3,
    recipes={Fp8Recipe.ROWWISE: "rowwise"},
    splits_every_sequence=False,
    by_flavor=False,
)
