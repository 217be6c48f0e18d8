"""Training software by name, the origin of its constants, and the measured runs that were compared with predictions."""

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
"""Kinds of models that different performance laws apply to."""

BITS_8, BITS_16 = "8 bits", "16 bits"
"""Widths of the operands of matrix products. Measured runs scatter differently for each; 16 bits also stand for wider
formats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The measured runs of one software stack on one accelerator with one kind of model, compared with predictions."""

    stack: str
    """Name of the software stack in the catalog."""
    device: str
    """Name of the accelerator in the catalog."""
    model: str
    """Kind of the model: ``DENSE`` or ``EXPERTS``."""
    runs: int
    """Number of measured runs."""
    tables: tuple[str, ...] = ()
    """Published tables that contain the runs."""
    median_error: float | None = None
    """Median of abs(predicted / measured - 1) of the step times, with the constants of the catalog. The constants were
    fitted to the same runs, except on CPU cores. None: not known."""
    scatter: dict[str, float] = field(default_factory=dict)
    """Standard deviation of log(measured / predicted) that neither parts nor the cluster explain, by the width of the
    number format. It is computed from runs that were left out of the fit."""
    options: dict[str, int] = field(default_factory=dict)
    """Number of runs with each property that a layout can have, by the property's name. Properties without a run are
    missing."""


@value
class StackProfile:
    """The origin of a software stack's constants: versions, date, and the measured runs for comparison."""

    name: str
    """Name of the software stack in the catalog."""
    framework: str
    """Name that the software gives itself."""
    versions: str = ""
    """Releases, tags or commits that the description and the constants are for. Other versions may behave
    differently."""
    date: str = ""
    """ISO date of the newest of these versions, as precise as it is known."""
    left_out_error: NonNegative | None = None
    """Median error of the step times of runs whose source was left out of the fit. None if no run was fitted, or if all
    runs are from one source."""
    compared: tuple[Compared, ...] = ()
    """Measured runs that predictions for this stack were fitted to and compared with, by device and kind of model."""


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
    """Return the origin of the constants of every software stack of the catalog, in the order of its table."""
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
    """Return the catalog's comparisons of measured runs with predictions, from ``compared.toml``.

    Each key has three parts: the name of the software stack, the name of the accelerator, and the kind of model (dense,
    or with experts).
    """
    entries = [
        from_plain(Compared, entry, f"compared.{i}") for i, entry in enumerate(read_tables(_COMPARED)["compared"])
    ]
    return {(entry.stack, entry.device, entry.model): entry for entry in entries}


def pooled_scatter(model: str) -> Mapping[str, float]:
    """Return how far measured runs of one kind of model lie from their predictions; empty if this is not known.

    Each value is the standard deviation of log(measured / predicted), over the runs of all stacks and accelerators with
    equal weights. The keys are ``BITS_8`` and ``BITS_16``, the widths of the numbers in matrix products.

    Args:
        model: Kind of the model: ``DENSE`` or ``EXPERTS``.
    """
    pooled = {entry["model"]: entry["scatter"] for entry in read_tables(_COMPARED).get("pooled", ())}
    scatter: Mapping[str, float] = pooled.get(model, {})
    return scatter
