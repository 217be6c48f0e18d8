"""Progress of a trainer's run: combines the reports of single ranks into reports of whole steps."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from autotuner.core.measurement import StepReport
from autotuner.core.measuring import Pace, Peak, step_rates
from autotuner.core.node_line import RankFailure
from autotuner.core.trial import FailureKind
from autotuner.core.trial_spec import TrialSpec

# Reports of a trainer while it runs, from its reporter or its log.


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedStep:
    """A training step as one rank reported it, with its time, loss and memory if the report has them."""

    step: int
    """Number of the step as the trainer counts; the first is 0 or 1."""
    rank: int | None = None
    """Rank that reported the step; None if the line does not name one."""
    step_time_s: float | None = None
    """Step time; None if the line has none, in which case the time between two lines is used."""
    num_steps: int = 1
    """Number of steps that the figures are averaged over; this step is the last of them."""
    loss: float | None = None
    """Loss; None on ranks that do not compute it."""
    tokens: int | None = None
    """Tokens of the whole job in this step, if reported; else the workload's count applies."""
    peak_bytes: int | None = None
    """Peak memory of this rank so far, in bytes; None if it was not reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedMemory:
    """The highest memory use of a rank so far, if a trainer reports it on a separate line and not with a step."""

    rank: int
    peak_bytes: int


Reported = ReportedStep | ReportedMemory


class LogReader(Protocol):
    """The interface of a reader that finds the steps in a trainer's output.

    A report of one step may take two lines. Therefore each run has its own reader, which remembers the first line.
    """

    def read(self, line: str) -> Reported | None:
        """Return the step or memory use that a line (without its line end) reports; None if it reports neither."""
        ...


# How far a trainer's run has come: from what each rank says of its steps to reports of whole steps.
#
# A state machine without clock or files. A step is whole when every rank has reported it, or when some rank reported a
# later one before the last look: a rank that ends a step has had gradients of all others in it, so these had begun
# that step, and told of the one before.

_TOKENS_OFF = 0.1
"""Relative tolerance between the reported tokens and the workload's: the last sequence of a batch may be short. A
larger difference means that the trainer reports one rank's tokens, or trains with another batch size than requested."""


@dataclass(slots=True, kw_only=True)
class _Step:
    """A step that some ranks have not reported yet."""

    at_s: float
    """Time at which the step was first reported."""
    by_rank: dict[int | None, ReportedStep] = field(default_factory=dict)
    """Reports by rank; a report without a rank is under None."""


class Progress:
    """Collects a trainer's reports of steps. It decides which steps are complete, which count, and when to stop.

    A step counts if it comes after the warm-up. The trial stops when enough steps have been measured.

    Attributes:
        steps: Reports of all complete steps with a time, including the warm-up.
        peak_bytes: Highest memory use by rank, of the ranks that reported it.
        num_heard: Number of steps that any rank reported.
        last_step: The newest reported step, as the trainer counts; None before the first.
        last_at_s: Time at which ``last_step`` was reported.
        failure: A reported failure that ends the trial; None without one.
        tells_losses: True if a rank reports losses.
    """

    def __init__(self, spec: TrialSpec, peak: Peak) -> None:
        self._spec = spec
        self._peak = peak
        self._pace = Pace(spec.settings)
        self._open: dict[int, _Step] = {}
        self._first_step: int | None = None
        self._newest_at_last_look = -1
        self._last_whole: int = -1
        self._last_whole_at_s: float | None = None
        self._tokens: list[int] = []
        self.steps: list[StepReport] = []
        self.peak_bytes: dict[int, int] = {}
        self.num_heard = 0
        self.last_step: int | None = None
        self.last_at_s: float | None = None
        self.failure: RankFailure | None = None
        self.tells_losses = False

    # ------------------------------------------------------------------ reports
    def heard(self, reported: Reported, at_s: float) -> None:
        """Take in a rank's report of a training step or of its memory, which arrived at the time ``at_s``."""
        match reported:
            case ReportedMemory():
                self._remember(reported.rank, reported.peak_bytes)
            case ReportedStep():
                if reported.peak_bytes is not None:
                    self._remember(reported.rank or 0, reported.peak_bytes)
                self._heard_step(reported, at_s)

    def _remember(self, rank: int, peak_bytes: int) -> None:
        if 0 <= rank < self._spec.layout.world_size:
            self.peak_bytes[rank] = max(peak_bytes, self.peak_bytes.get(rank, 0))

    def _heard_step(self, reported: ReportedStep, at_s: float) -> None:
        if reported.step <= self._last_whole or not _is_sound(reported):
            return
        num_ranks = self._spec.layout.world_size
        if reported.rank is not None and not 0 <= reported.rank < num_ranks:
            ranks = f"rank {reported.rank} reported step {reported.step}, but the trial has only {num_ranks} ranks"
            self._fail(FailureKind.CRASH, f"{ranks}: the trainer started more ranks than the trial asked for", 0)
            return
        step = self._open.setdefault(reported.step, _Step(at_s=at_s))
        if reported.rank is not None and reported.rank in step.by_rank:
            self._fail(
                FailureKind.CRASH,
                f"rank {reported.rank} reported step {reported.step} twice: the trainer started separate "
                "jobs, or processes that are not part of this trial",
                reported.rank,
            )
        known = step.by_rank.get(reported.rank)
        step.by_rank[reported.rank] = reported if known is None else _joined(known, reported)
        if self.last_step is None or reported.step > self.last_step:
            self.num_heard += reported.num_steps
            self.last_step, self.last_at_s = reported.step, at_s

    # ------------------------------------------------------------------ whole steps
    def whole_steps(self, *, is_over: bool = False) -> list[StepReport]:
        """Return the steps that have become complete since the last call; empty once enough steps were measured.

        Args:
            is_over: True if no report will follow. Then every step counts as complete.
        """
        new = []
        for number in sorted(self._open):
            if not (is_over or self._is_whole(number)):
                break
            step = self._open.pop(number)
            if report := self._report(number, step):
                new.append(report)
            self._last_whole, self._last_whole_at_s = number, step.at_s
        self._newest_at_last_look = max(self._open, default=self._last_whole)
        return new

    @property
    def is_done(self) -> bool:
        """Return True once no more steps are needed for the measurement, so that the trial may end."""
        return self._pace.is_done

    @property
    def is_enough(self) -> bool:
        """Return True once the trial has as many measured steps as its settings require. Warm-up steps do not count."""
        return self.num_measured >= self._spec.settings.measured_steps

    @property
    def num_measured(self) -> int:
        """Return the number of measured steps. Warm-up steps do not count."""
        return sum(not step.is_warmup for step in self.steps)

    def _is_whole(self, number: int) -> bool:
        ranks = [rank for rank in self._open[number].by_rank if rank is not None]
        return len(ranks) >= self._spec.layout.world_size or number < self._newest_at_last_look

    def _report(self, number: int, step: _Step) -> StepReport | None:
        """Return the report of a whole step for the sweep.

        Return None if its time is unknown, or if the run has already failed or measured enough.
        """
        loss = _mean(said.loss for said in step.by_rank.values())
        self._judge_loss(number, loss, step)
        step_time_s = self._time_s(step)
        if step_time_s is None or self._pace.is_done or self.failure is not None:
            return None
        tokens = self._judged_tokens(number, step)
        if self._first_step is None:
            self._first_step = number
        tokens_per_s, mfu = step_rates(self._spec, self._peak, step_time_s, tokens=tokens)
        report = StepReport(
            step=number - self._first_step,
            is_warmup=not self._pace.is_warm,
            step_time_s=step_time_s,
            loss=math.nan if loss is None else loss,
            tokens_per_s=tokens_per_s,
            mfu=mfu,
        )
        self._pace.add(step_time_s)
        self.steps.append(report)
        return report

    def _time_s(self, step: _Step) -> float | None:
        """Return the step time of the slowest rank, or the time since the step before if no rank reports one."""
        said = [each.step_time_s for each in step.by_rank.values() if each.step_time_s is not None]
        if said:
            return max(said)
        if self._last_whole_at_s is None:
            return None
        since_s = step.at_s - self._last_whole_at_s
        return since_s / max(each.num_steps for each in step.by_rank.values()) if since_s > 0 else None

    def _judge_loss(self, number: int, loss: float | None, step: _Step) -> None:
        if loss is None:
            return
        self.tells_losses = True
        if not math.isfinite(loss):
            rank = next(rank for rank, said in step.by_rank.items() if said.loss is not None)
            self._fail(FailureKind.NUMERICS, f"the loss of step {number} is {loss}", rank or 0)

    def _judged_tokens(self, number: int, step: _Step) -> int | None:
        tokens = next((said.tokens for said in step.by_rank.values() if said.tokens is not None), None)
        if tokens is None:
            return None
        asked = self._spec.workload.tokens_per_step
        self._tokens.append(tokens)
        if abs(statistics.median(self._tokens) - asked) > _TOKENS_OFF * asked:
            rule = f"the trainer reported {tokens:,} tokens in step {number}, but a step of this trial has {asked:,}"
            self._fail(
                FailureKind.CRASH,
                f"{rule}: report the tokens of the whole job, or train with the batch of the trial",
                0,
            )
        return tokens

    def _fail(self, kind: FailureKind, message: str, rank: int) -> None:
        self.failure = self.failure or RankFailure(rank=rank, kind=kind, message=message, traceback="")


def _is_sound(reported: ReportedStep) -> bool:
    """Return True if the numbers are plausible: other programs' lines may look like a step."""
    time_s, tokens = reported.step_time_s, reported.tokens
    return (
        reported.step >= 0
        and reported.num_steps >= 1
        and (time_s is None or (math.isfinite(time_s) and time_s > 0))
        and (tokens is None or tokens > 0)
    )


def _joined(known: ReportedStep, later: ReportedStep) -> ReportedStep:
    """Merge two reports of one step that name no rank.

    The result has the longer time, the larger numbers, and the first known loss.
    """

    def either(name: str) -> float | None:
        values = [getattr(each, name) for each in (known, later) if getattr(each, name) is not None]
        return max(values, default=None)

    loss = known.loss if known.loss is not None else later.loss
    tokens, peak_bytes = either("tokens"), either("peak_bytes")
    return ReportedStep(
        step=known.step,
        rank=known.rank,
        step_time_s=either("step_time_s"),
        num_steps=max(known.num_steps, later.num_steps),
        loss=loss,
        tokens=None if tokens is None else int(tokens),
        peak_bytes=None if peak_bytes is None else int(peak_bytes),
    )


def _mean(losses: Iterable[float | None]) -> float | None:
    """Return the mean loss of the ranks that report one: each data-parallel replica has its own batches."""
    known = [loss for loss in losses if loss is not None]
    return statistics.fmean(known) if known else None
