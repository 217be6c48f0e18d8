"""Fits what a delegated send costs when nothing is wrong, from healthy iterations alone.

``python -m research.fit_delegates`` compares four ways in which delegates and copies may share what carries them (each
rank its own, or all ranks of a stage one) over a grid of rates, by the squared errors of the four iterations without
slow links whose sends arXiv 2504.19232 delegates all the same. ``autotuner.backtest.slow_links`` uses the
best; no iteration under slow links has a say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from autotuner.backtest.slow_links import BYTES_PER_WIDTH
from autotuner.schedules.planner import adaptive, warm_up
from autotuner.schedules.schedule import Schedule
from autotuner.schedules.simulate import PassTimes, delegated, simulate

_RATES = (1, 1.5, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128, 1e6)
_COPY_RATES = (5, 7.5, 10, 15, 20, 25, 30, 40, 50, 75, 100, 150, 200, 1e6)
"""GB/s; the last is no cost at all."""


@dataclass(frozen=True, kw_only=True)
class Healthy:
    """A model's iterations without slow links: by ranks of its pipeline, and of each stage."""

    num_ranks: int
    num_micro_batches: int
    ranks_per_stage: int
    hidden: int
    plain_ms: float
    delegated_ms: float

    @cached_property
    def schedule(self) -> Schedule:
        """The fixed zero-bubble order."""
        equal = PassTimes.equal(self.num_ranks, 1.0, 1.0, 1.0)
        return adaptive(equal, self.num_micro_batches, warm_up(equal))

    @cached_property
    def times(self) -> PassTimes:
        """Equal passes of which the plain iteration follows."""
        unit = PassTimes.equal(self.num_ranks, 1.0, 1.0, 1.0)
        pass_s = self.plain_ms / 1e3 / simulate(self.schedule, unit).makespan_s
        return PassTimes.equal(self.num_ranks, pass_s, pass_s, pass_s)


HEALTHY = {
    "7B": Healthy(num_ranks=4, num_micro_batches=12, ranks_per_stage=1, hidden=5120, plain_ms=394, delegated_ms=435),
    "14B": Healthy(num_ranks=8, num_micro_batches=24, ranks_per_stage=1, hidden=5120, plain_ms=767, delegated_ms=787),
    "30B": Healthy(num_ranks=8, num_micro_batches=24, ranks_per_stage=8, hidden=8192, plain_ms=933, delegated_ms=1104),
    "60B": Healthy(num_ranks=8, num_micro_batches=24, ranks_per_stage=8, hidden=11264, plain_ms=962, delegated_ms=1165),
}


@dataclass(frozen=True, kw_only=True, order=True)
class DelegationFit:
    """Rates, and how well healthy iterations follow from them."""

    squared: float
    """Sum of squared errors."""
    shares_transfers: bool
    """All ranks of a stage share the rate of transfers; else each delegate has it."""
    shares_copies: bool
    """All ranks of a stage share the rate of copies."""
    transfer_gb_per_s: float
    copy_gb_per_s: float
    errors: tuple[float, ...]
    """Predicted over measured, less 1, by model."""


def fits() -> Iterator[DelegationFit]:
    """The best of each way of sharing."""
    for transfers, copies in product((False, True), repeat=2):
        yield min(_fit(transfers, copies, *rates) for rates in product(_RATES, _COPY_RATES))


def _fit(shares_transfers: bool, shares_copies: bool, rate: float, copy_rate: float) -> DelegationFit:
    errors = []
    for one in HEALTHY.values():
        num_bytes = BYTES_PER_WIDTH * one.hidden
        overhead_s = num_bytes * (one.ranks_per_stage if shares_transfers else 1) / (rate * 1e9)
        copy_s = num_bytes * (one.ranks_per_stage if shares_copies else 1) / (copy_rate * 1e9)
        took_s = simulate(one.schedule, one.times, delegated(3, overhead_s=overhead_s, copy_s=copy_s)).makespan_s
        errors.append(1e3 * took_s / one.delegated_ms - 1)
    return DelegationFit(
        squared=sum(error**2 for error in errors),
        shares_transfers=shares_transfers,
        shares_copies=shares_copies,
        transfer_gb_per_s=rate,
        copy_gb_per_s=copy_rate,
        errors=tuple(errors),
    )


def main() -> None:
    """Print the four, the best first."""
    for fit in sorted(fits()):
        errors = ", ".join(f"{name} {error:+.1%}" for name, error in zip(HEALTHY, fit.errors, strict=True))
        print(  # noqa: T201  # a benchmark prints its result
            f"transfers {fit.transfer_gb_per_s:g} GB/s{' shared' * fit.shares_transfers}, copies "
            f"{fit.copy_gb_per_s:g} GB/s{' shared' * fit.shares_copies}: squared {fit.squared:.5f}; {errors}"
        )


if __name__ == "__main__":
    main()
