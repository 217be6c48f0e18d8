"""Training software by name, its origin, and the measured runs that predictions for it were compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from autotuner.catalog.facts import find_name, read_tables
from autotuner.core.codec import from_plain
from autotuner.core.model import TransformerSpec
from autotuner.core.stack import Stack
from autotuner.core.value import NonNegative, value

_STACKS = "stacks.toml"
_COMPARED = "compared.toml"
_ORIGIN = "origin"

DENSE, EXPERTS = "dense models", "models with experts"
"""Kinds of models whose laws differ."""

BITS_8, BITS_16 = "8 bits", "16 bits"
"""Widths of the factors of matrix products, by which runs scatter differently; 16 stands for wider ones too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Measured runs of one kind of model, by one software stack on one accelerator, compared with predictions."""

    stack: str
    """Name in the catalog."""
    device: str
    """Name of the accelerator in the catalog."""
    model: str
    """Kind of the model."""
    runs: int
    """Number of runs."""
    tables: tuple[str, ...] = ()
    """Published tables that they stand in."""
    scatter: dict[str, float] = field(default_factory=dict)
    """Deviation of log(measured / predicted) that neither parts nor the cluster explain, among runs that were left out
    of the fit, by the width of their numbers."""
    options: dict[str, int] = field(default_factory=dict)
    """Number of runs with something that a layout may have, by its name; what none had is missing."""


@value
class StackProfile:
    """The origin of a software stack's constants: versions, date, and the measured runs compared with them."""

    name: str
    """Name in the catalog."""
    framework: str
    """The software's own name."""
    versions: str = ""
    """Releases, tags or commits that its words and numbers describe; other ones may do otherwise."""
    date: str = ""
    """ISO date of the newest of them, as precise as it is known."""
    left_out_error: NonNegative | None = None
    """Median error of step times of runs whose source was left out of the fit; None where no run was fitted, or all are
    of one source."""
    compared: tuple[Compared, ...] = ()
    """Measured runs that its predictions were fitted to and compared with, by device and kind of model."""


def stacks() -> tuple[str, ...]:
    """Return the names of all software stacks of the catalog, in the order of its table."""
    return tuple(read_tables(_STACKS))


def load_stack(name: str) -> Stack:
    """Return the software stack of the catalog that has this name, in upper or lower case.

    Raises:
        NotFound: No stack has this name. The error suggests the most similar name.
    """
    tables = read_tables(_STACKS)
    key = find_name("stack", name, tables)
    return from_plain(Stack, {"name": key, **{field: v for field, v in tables[key].items() if field != _ORIGIN}})


def stack_profiles() -> tuple[StackProfile, ...]:
    """Return the origin of every software stack of the catalog, in the order of its table."""
    return tuple(
        StackProfile(
            name=name,
            compared=tuple(entry for entry in comparisons().values() if entry.stack == name),
            **table[_ORIGIN],
        )
        for name, table in read_tables(_STACKS).items()
    )


def model_kind(model: TransformerSpec) -> str:
    """Return the kind of the model, by which measured runs are grouped: ``DENSE`` or ``EXPERTS``."""
    return EXPERTS if model.experts else DENSE


@cache
def comparisons() -> Mapping[tuple[str, str, str], Compared]:
    """Return every set of measured runs in ``compared.toml``, by stack name, accelerator name and kind of model."""
    entries = [
        from_plain(Compared, entry, f"compared.{i}") for i, entry in enumerate(read_tables(_COMPARED)["compared"])
    ]
    return {(entry.stack, entry.device, entry.model): entry for entry in entries}


def pooled_scatter(model: str) -> Mapping[str, float]:
    """Return how much measured runs of one kind of model scatter around their predictions; empty if this is not known.

    Each value is the standard deviation of log(measured / predicted). The keys are ``BITS_8`` and ``BITS_16``, the
    widths of the numbers. All stacks and accelerators are pooled with equal weights.

    Args:
        model: Kind of the model: ``DENSE`` or ``EXPERTS``.
    """
    pooled = {entry["model"]: entry["scatter"] for entry in read_tables(_COMPARED).get("pooled", ())}
    scatter: Mapping[str, float] = pooled.get(model, {})
    return scatter
