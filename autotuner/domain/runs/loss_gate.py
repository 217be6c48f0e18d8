"""Loss gate: whether a layout that changes the mathematics trains as well as one that does not.

Candidate and reference train from the same first parameters on the same batches, once for each of several seeds. The
candidate passes when its loss at the end is shown to lie no more than a tolerance above the reference's: a test of
non-inferiority, so that a gate too noisy to tell does not pass.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from autotuner.domain import check
from autotuner.domain.layouts.layout import Layout
from autotuner.errors import InvalidInput

__all__ = ["GateOutcome", "GateResult", "LossGate", "judge"]

Losses = tuple[float, ...]
"""One loss per step."""

_ONE_SIDED_95 = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833)
"""Quantiles of Student's t at 95 % for 1 to 9 degrees of freedom (any table; scipy.stats.t.ppf(0.95, n) agrees)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossGate:
    """How a sweep gates layouts that change the mathematics, before one of them may be ranked first.

    Attributes:
        enabled: Without it such layouts are ranked as *not gated*.
        num_steps: Steps that candidate and reference train, per seed.
        num_seeds: Pairs of runs, each with its own first parameters and batches.
        tolerance: How far the candidate's loss may lie above the reference's, as a share of it. An assumption: emulated
            fp8 of small models was seen up to 1.3 % from fp32 after a few steps, and what is broken lies far off.
    """

    enabled: bool = True
    num_steps: int = 20
    num_seeds: int = 3
    tolerance: float = 0.02

    def __post_init__(self) -> None:
        check.positive(self, "num_steps", "tolerance")
        check.fraction(self, "tolerance")
        most = len(_ONE_SIDED_95) + 1
        if not 2 <= self.num_seeds <= most:
            rule = f"must be 2 to {most}: one pair of runs says nothing of the noise"
            raise InvalidInput("num_seeds", self.num_seeds, rule, min(max(self.num_seeds, 2), most))


class GateOutcome(StrEnum):
    """What a loss gate found."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_GATED = "not_gated"  # the reference could not be trained, so there is nothing to compare with


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """A loss gate as it ended, with both curves.

    Attributes:
        detail: The outcome with its numbers, as a sentence.
        reference: The layout that the candidate was compared with.
        candidate_losses: One loss per step, for each seed.
        reference_losses: One loss per step, for each seed.
        excess: Mean of what the candidate's loss lies above the reference's over the last half of the steps, as a share
            of the reference's; None where no pair of curves is complete.
        noise: Half-width of the one-sided 95 % interval of the excess, from the differences between seeds.
        tolerance: What excess and noise together had to stay within.
        accelerator_hours: What the gate cost.
    """

    outcome: GateOutcome
    detail: str
    reference: Layout
    candidate_losses: tuple[Losses, ...] = ()
    reference_losses: tuple[Losses, ...] = ()
    excess: float | None = None
    noise: float | None = None
    tolerance: float
    accelerator_hours: float = 0.0

    def having_cost(self, accelerator_hours: float) -> GateResult:
        """The result with what it cost."""
        return replace(self, accelerator_hours=accelerator_hours)


def judge(
    gate: LossGate, reference: Layout, candidate_losses: Sequence[Losses], reference_losses: Sequence[Losses]
) -> GateResult:
    """Whether the candidate's curves lie within the tolerance of the reference's.

    Args:
        gate: Its settings.
        reference: What the candidate was compared with.
        candidate_losses: Finite or not, one curve per seed.
        reference_losses: Finite, one curve per seed in the same order.
    """
    result = GateResult(
        outcome=GateOutcome.FAILED,
        detail="the candidate's loss is no number",
        reference=reference,
        candidate_losses=tuple(candidate_losses),
        reference_losses=tuple(reference_losses),
        tolerance=gate.tolerance,
    )
    if not all(math.isfinite(loss) for curve in candidate_losses for loss in curve):
        return result
    excesses = [_excess(*pair) for pair in zip(candidate_losses, reference_losses, strict=True)]
    excess = statistics.fmean(excesses)
    noise = _ONE_SIDED_95[len(excesses) - 2] * statistics.stdev(excesses) / math.sqrt(len(excesses))
    passed = excess + noise <= gate.tolerance
    detail = (
        f"after {gate.num_steps} steps the loss is {100 * excess:+.2f} ± {100 * noise:.2f} % from the reference's "
        f"{reference}, {'within' if passed else 'not shown to be within'} {100 * gate.tolerance:g} %"
    )
    outcome = GateOutcome.PASSED if passed else GateOutcome.FAILED
    return replace(result, outcome=outcome, detail=detail, excess=excess, noise=noise)


def _excess(candidate: Losses, reference: Losses) -> float:
    """How far one curve ends above the other; the last half, since first steps say little and last ones are noisy."""
    tail = slice(len(reference) // 2, None)
    expected = statistics.fmean(reference[tail])
    return statistics.fmean(candidate[tail]) / expected - 1
