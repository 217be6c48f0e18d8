"""The convergence gate: layouts whose arithmetic differs must reach the loss of a reference layout.

``function_key`` works for one layout and for numpy columns of layouts.

Candidate and reference train from the same first parameters on the same batches, once for each of several seeds. The
candidate passes if the runs show that its final loss exceeds the reference's by no more than a tolerance (a test of
non-inferiority). If noise is too large to show this, it does not pass.
"""

from __future__ import annotations

import math
import operator
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import reduce
from typing import Annotated, Any

from autotuner.core.amounts import read_share, written_share
from autotuner.core.choices import NARROW_PRECISIONS, GradientClip, GradientSync
from autotuner.core.errors import InvalidInput
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.stages import steps_per_exchange
from autotuner.core.value import Count, Flag, PositiveShare, Reported, Typed, value

_NOT_EQUIVALENT = {spec.name for spec in OPTIONS.values() if spec.not_equivalent}

_OPTIONS = tuple(s.name for s in OPTIONS.values() if s.name in _NOT_EQUIVALENT or s.qualifies in _NOT_EQUIVALENT)

_SENDS_LESS: Mapping[str, Callable[[Any, Any], Any]] = {
    "sync_sparsity": operator.ge,
    "sync_top_k": operator.le,
    "sync_period": operator.ge,
    "payload_precision": operator.ge,
}
"""Comparisons of two layouts by a detail of their exchange. Each is true if the first layout sends no more than the
second."""


def function_key(x: Layout) -> Mapping[str, Any]:
    """Return numbers that identify the function that a layout trains. Layouts with equal numbers train the same one.

    The result has the values of all options that may make training not numerically equivalent. It also has numbers on
    which the rounding or averaging by these options depends. For a lossy exchange of gradients, this is the number of
    replicas. For a clip of gradients before they are averaged, it is the number of ranks. For a clip in buckets, it is
    also the limits of the buckets, because each bucket is clipped by itself. For 8 bits or fewer, it is the number of
    tensor-parallel ranks, because the parts of a matrix share one scale.

    For a table of layouts the values are columns.
    """
    is_lossy, clips_early = x.gradient_sync != GradientSync.FULL, x.gradient_clip != GradientClip.POST
    in_buckets = x.gradient_clip == GradientClip.BUCKET
    is_narrow = reduce(operator.or_, (x.precision == one for one in NARROW_PRECISIONS))
    return {
        **{name: getattr(x, name) for name in _OPTIONS},
        "replicas": x.data_parallel_replicate_degree * is_lossy,
        "clipping ranks": x.data_parallel_degree * x.context_parallel_degree * clips_early,
        "bucket": x.gradient_bucket_bytes * in_buckets,
        "stages": x.num_stages * in_buckets,
        "split": x.tensor_parallel_degree * (is_narrow | in_buckets),
    }


def trains_no_better(x: Layout, other: Layout) -> Any:
    """Return True if ``x`` cannot train better than ``other``, and so fails each convergence gate that ``other`` fails.

    This is so if both layouts train the same function, and the replicas of ``x`` exchange as much as those of ``other``
    or less. A convergence gate is a short training that compares losses. For tables of layouts the result is a column.
    """
    mine, theirs = function_key(x), function_key(other)
    compared = [_compare(name)(mine[name], theirs[name]) for name in mine]
    return reduce(operator.and_, compared)


def _compare(name: str) -> Callable[[Any, Any], Any]:
    return _SENDS_LESS.get(name, operator.eq)


Losses = tuple[Reported, ...]
"""One loss per step."""

_ONE_SIDED_95 = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833)
"""Quantiles of Student's t at 95 % for 1 to 9 degrees of freedom (any table; scipy.stats.t.ppf(0.95, n) agrees)."""

_HOPELESS = 5.0
"""Number of tolerances above the reference that rejects a candidate after a single pair of runs. Equal layouts differ
by far less (docs/explanation/lossy-exchange.md has the measurements)."""


@value
class ConvergenceGate:
    """The settings of a convergence gate: a short training that a lossy layout must pass before it is ranked first.

    Lossy means not numerically equivalent to plain training.
    """

    enabled: Annotated[bool, Flag("convergence-gate")] = True
    """Compare the loss of a layout that is not numerically equivalent (fp8) with a reference before the layout may rank
    first. If false, such layouts are ranked as *not gated*; those with a lossy exchange or an early clip are not ranked
    at all."""
    num_steps: Annotated[Count, Flag("gate-steps")] = 20
    """Number of steps that candidate and reference each train, per seed."""
    num_lossy_steps: Annotated[Count, Flag("gate-lossy-steps")] = 192
    """Number of steps per seed for a layout that sends less than its gradients or clips them early. It is large enough
    that little is left to learn, because such a layout may need a few steps more for the same loss. With DiLoCo the
    gate continues to the next exchange."""
    num_seeds: Annotated[int, Flag("gate-seeds")] = 3
    """Number of pairs of runs, each pair with its own first parameters and batches."""
    tolerance: Annotated[PositiveShare, Flag("gate-tolerance"), Typed(read_share, written_share)] = 0.02
    """Tolerated excess of the candidate's loss over the reference's, as a share of the reference's. The default is an
    assumption: emulated fp8 of small models was up to 1.3 % from fp32 after a few steps, and broken layouts are far
    above that."""

    def __post_init__(self) -> None:
        most = len(_ONE_SIDED_95) + 1
        if not 2 <= self.num_seeds <= most:
            rule = (
                f"must be from 2 to {most}, because a single pair of runs does not show how much the loss "
                "varies by chance"
            )
            raise InvalidInput("num_seeds", self.num_seeds, rule, min(max(self.num_seeds, 2), most))

    def steps_of(self, candidate: Layout) -> int:
        """Return the number of steps that the candidate and its reference train in the gate.

        Both train on equally many tokens. With DiLoCo the number is rounded up to whole periods, because between two
        exchanges the replicas have different parameters.
        """
        asked = self.num_lossy_steps if candidate.needs_passed_gate else self.num_steps
        period = steps_per_exchange(candidate)
        return period * math.ceil(asked / period)


class GateOutcome(StrEnum):
    """The possible outcomes of a convergence gate (a short training that compares losses).

    ``not_gated`` means that the reference could not be trained, so that there was nothing to compare with.
    """

    PASSED = "passed"
    FAILED = "failed"
    NOT_GATED = "not_gated"  # the reference could not be trained, so there is nothing to compare with


@value
class Training:
    """The losses and the speed of one training run of a convergence gate.

    The gate trains the candidate and the reference once for each seed, and compares their losses.
    """

    losses: Losses
    """Loss of each step."""
    validation_loss: float | None = None
    """Validation loss after the last step, on the data that all ranks together have read; None: not measured."""
    step_time_s: float | None = None
    """Median step time of the training."""

    @property
    def is_finite(self) -> bool:
        """Return True if no loss is NaN or infinite."""
        return math.isfinite(self.validation_loss or 0.0) and all(map(math.isfinite, self.losses))

    @property
    def end(self) -> float:
        """Return the final loss: the validation loss or, without one, the mean of the last half of the losses."""
        if self.validation_loss is not None:
            return self.validation_loss
        return statistics.fmean(self.losses[len(self.losses) // 2 :])


@value
class GateResult:
    """The result of a finished convergence gate, with the loss curves of candidate and reference."""

    outcome: GateOutcome
    detail: str
    """Description of the outcome with its numbers, as a sentence."""
    reference: Layout
    """The layout that the candidate was compared with."""
    candidate_losses: tuple[Losses, ...] = ()
    """Candidate's loss of each step, for each seed."""
    reference_losses: tuple[Losses, ...] = ()
    """Reference's loss of each step, for each seed."""
    candidate_validation: tuple[Reported, ...] = ()
    """Validation loss of the candidate after the last step, on the data that all ranks together have read, for each
    seed. Empty if none was measured; the gate then compares the last half of the loss curves."""
    reference_validation: tuple[Reported, ...] = ()
    """Validation loss of the reference on the same data, for each seed; empty if none was measured."""
    excess: float | None = None
    """Mean excess of the candidate's final loss over the reference's, as a share of the reference's; None if no pair of
    curves is complete."""
    noise: float | None = None
    """Half-width of the one-sided 95 % interval of ``excess``, from the differences between seeds; None after a single
    pair of runs."""
    tolerance: float
    """Maximum of ``excess`` plus ``noise`` for a pass."""
    target_loss: float | None = None
    """Final loss of the reference."""
    reference_steps: int | None = None
    """Number of steps that the reference needed for ``target_loss``; None in records older than this field."""
    steps_to_loss: float | None = None
    """Number of steps that the candidate needs for ``target_loss``; None if it is not known."""
    reference_step_time_s: float | None = None
    """Step time of the reference in the gate's runs."""
    accelerator_hours: float = 0.0
    """Cost of the gate in accelerator-hours."""
    shared_from: int | None = None
    """Number of the trial whose gate result this is, if the candidate computes the same function as that trial; None:
    the candidate was gated itself."""

    def having_cost(self, accelerator_hours: float) -> GateResult:
        """Return a copy of the result with its cost set to this number of accelerator-hours."""
        return replace(self, accelerator_hours=accelerator_hours)

    def shared(self, number: int, why: str) -> GateResult:
        """Return this result for another trial, which needs no gate of its own and thus costs no accelerator-hours.

        Args:
            number: Number of the trial that was gated.
            why: Reason why the result also holds for the other trial: ``has the same mathematics``.
        """
        detail = f"taken from trial {number}, which {why}: {self.detail}"
        return replace(self, detail=detail, accelerator_hours=0.0, shared_from=number)

    @property
    def is_verdict(self) -> bool:
        """True if losses were compared; False if a run died, which says nothing about other layouts."""
        return self.target_loss is not None

    @property
    def reference_time_to_loss_s(self) -> float | None:
        """Return the seconds that the reference needed to reach its final loss; None if this is not known."""
        if self.reference_steps is None or self.reference_step_time_s is None:
            return None
        return self.reference_steps * self.reference_step_time_s


def is_hopeless(gate: ConvergenceGate, candidate: Sequence[Training], reference: Sequence[Training]) -> bool:
    """Return True if the runs so far reject the candidate in any case, so that further runs can be skipped.

    Args:
        gate: Settings of the gate.
        candidate: Runs of the candidate, one per seed.
        reference: Runs of the reference with the same seeds, in the same order.
    """
    if not all(training.is_finite for training in candidate):
        return True
    excess, noise = _excess(candidate, reference)
    if noise is None:
        return excess > _HOPELESS * gate.tolerance
    return excess - noise > gate.tolerance


def judge(
    gate: ConvergenceGate, reference: Layout, candidate: Sequence[Training], reference_trainings: Sequence[Training]
) -> GateResult:
    """Return the result of a convergence gate: it passes if the candidate's final loss is close to the reference's.

    Args:
        gate: Settings of the gate.
        reference: Layout that the candidate is compared with.
        candidate: Runs of the candidate, one per seed that was trained; losses may be NaN. With fewer runs than the
            gate has seeds, the candidate fails.
        reference_trainings: Runs of the reference with the same seeds, in the same order; all losses are finite.
    """
    result = GateResult(
        outcome=GateOutcome.FAILED,
        detail="a loss of the candidate is NaN or infinite",
        reference=reference,
        candidate_losses=tuple(training.losses for training in candidate),
        reference_losses=tuple(training.losses for training in reference_trainings),
        candidate_validation=_validation(candidate),
        reference_validation=_validation(reference_trainings),
        tolerance=gate.tolerance,
        target_loss=statistics.fmean(training.end for training in reference_trainings),
        reference_steps=len(reference_trainings[0].losses),
        reference_step_time_s=_step_time_s(reference_trainings),
    )
    if not all(training.is_finite for training in candidate):
        return result
    excess, noise = _excess(candidate, reference_trainings)
    passed = len(candidate) == gate.num_seeds and noise is not None and excess + noise <= gate.tolerance
    known = f"{100 * excess:+.2f}" + (f" ± {100 * noise:.2f}" if noise is not None else "")
    early = "" if len(candidate) == gate.num_seeds else f" from {len(candidate)} of {gate.num_seeds} seeds"
    detail = (
        f"after {result.reference_steps} steps{early} the candidate's loss differs by {known} % "
        f"from the loss of the reference {reference}: "
        f"{'within' if passed else 'not shown to be within'} the tolerance of "
        f"{100 * gate.tolerance:g} %"
    )
    return replace(
        result,
        outcome=GateOutcome.PASSED if passed else GateOutcome.FAILED,
        detail=detail,
        excess=excess,
        noise=noise,
        steps_to_loss=_steps_to_loss(candidate, reference_trainings),
    )


def _validation(trainings: Sequence[Training]) -> tuple[float, ...]:
    return tuple(t.validation_loss for t in trainings if t.validation_loss is not None)


def _step_time_s(trainings: Sequence[Training]) -> float | None:
    known = [training.step_time_s for training in trainings if training.step_time_s is not None]
    return statistics.median(known) if known else None


def _excess(candidate: Sequence[Training], reference: Sequence[Training]) -> tuple[float, float | None]:
    """Return the candidate's final loss above the reference's, as a share, and half of its one-sided interval."""
    excesses = [mine.end / theirs.end - 1 for mine, theirs in zip(candidate, reference, strict=True)]
    if len(excesses) == 1:
        return excesses[0], None
    noise = _ONE_SIDED_95[len(excesses) - 2] * statistics.stdev(excesses) / math.sqrt(len(excesses))
    return statistics.fmean(excesses), noise


def _steps_to_loss(candidate: Sequence[Training], reference: Sequence[Training]) -> float | None:
    """Return the number of steps after which the candidate reaches the reference's final loss.

    The remaining steps are computed at the rate of the reference's last steps. None if the reference learns nothing
    more in them, because then no number of steps removes a difference.
    """
    num_steps = len(reference[0].losses)
    pace = statistics.fmean(_pace(training.losses) for training in reference)
    missing = statistics.fmean(mine.end - theirs.end for mine, theirs in zip(candidate, reference, strict=True))
    return max(1.0, num_steps + missing / pace) if pace > 0 else None


def _pace(losses: Losses) -> float:
    """Return the fall of the loss per step over the last half of the steps, by a least-squares line.

    The result is 0 for a single step.
    """
    tail = losses[len(losses) // 2 :]
    if len(tail) < 2:
        return 0.0
    return -statistics.linear_regression(range(len(tail)), tail).slope
