"""Where the catalog's training software comes from: framework and versions, and the runs that it was fitted to."""

from __future__ import annotations

from dataclasses import dataclass

from autotuner.catalog.compared import Compared, comparisons
from autotuner.catalog.load import stack_origin, stacks
from autotuner.core import check

__all__ = ["StackProfile", "stack_profiles"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StackProfile:
    """A stack's origin.

    Attributes:
        name: As the catalog knows it.
        framework: What the software is called.
        versions: Releases, tags or commits that its words and numbers describe; other ones may do otherwise.
        date: When the newest of them came out, ISO, as precise as it is known.
        left_out_error: Median error of step times of runs whose source was left out of the fit; None where no run was
            fitted, or all are of one source.
        compared: Measured runs that its predictions were fitted to and compared with, by device and kind of model.
    """

    name: str
    framework: str
    versions: str = ""
    date: str = ""
    left_out_error: float | None = None
    compared: tuple[Compared, ...] = ()

    def __post_init__(self) -> None:
        if self.left_out_error is not None:
            check.non_negative(self, "left_out_error")


def stack_profiles() -> tuple[StackProfile, ...]:
    """Every stack's origin, in the order of the table."""
    return tuple(_profile(name) for name in stacks())


def _profile(name: str) -> StackProfile:
    compared = tuple(entry for entry in comparisons().values() if entry.stack == name)
    return StackProfile(name=name, compared=compared, **stack_origin(name))
