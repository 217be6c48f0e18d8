"""TableRow: a layout of a sweep as a row of its ranking, tried or predicted alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from autotuner.core.layout import Layout
from autotuner.core.measurement import Footprint, Measurement, RobustMeasurement
from autotuner.core.prediction import Prediction, TrialEstimate
from autotuner.core.sweep import SweepRequest
from autotuner.core.trial import Trial, time_to_loss_s
from autotuner.search.ranking import PredictedLayout
from autotuner.search.results.reached import Source, ranked_times, source_of
from autotuner.search.standings import Standing, standings
from autotuner.search.text.trials import price_per_million_tokens

_SECONDS_PER_HOUR = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """A layout with what is known of it.

    Attributes:
        rank: Its place among the trials of the sweep; None where it was not tried.
        trial: None where it was not tried.
        standing: How sure the place is; None without one.
        price_per_s: Dollars that the whole cluster takes per second; 0 where no price is known.
        modelled: What it is modelled to take beside time, where it was not tried.
        time_to_loss_s: Seconds to the loss that the sweep's loss gates compare; None where that is not known.
        value: What the sweep maximises, as reached or, where it was not tried, as predicted; None where that is not
            known.
    """

    layout: Layout
    prediction: Prediction
    rank: int | None = None
    trial: Trial | None = None
    standing: Standing | None = None
    price_per_s: float = 0.0
    modelled: Footprint | None = None
    time_to_loss_s: float | None = None
    value: float | None = None

    @property
    def reached(self) -> Measurement | TrialEstimate | None:
        """What it is ranked by; None where it was not tried."""
        return None if self.trial is None else self.trial.reached

    @property
    def robust(self) -> RobustMeasurement | None:
        """What it reached under the sweep's fault trace; None without one, or where it was not measured."""
        return self.reached.robust if isinstance(self.reached, Measurement) else None

    @property
    def source(self) -> Source | Literal["predicted"]:
        """What its figures have to be called."""
        return "predicted" if self.reached is None else source_of(self.reached)

    @property
    def step_time_s(self) -> float:
        """What a step took, or takes by the prediction where none ran."""
        return self.prediction.step_time.total_s if self.reached is None else self.reached.step_time_s

    @property
    def step_error(self) -> float | None:
        """Half the 95 % interval of what was measured, or the 80 % interval of an estimate, as a share; else None."""
        reached = self.reached
        match reached:
            case None:
                return None
            case TrialEstimate():
                return reached.full_size.relative_error
            case Measurement():
                return reached.step_time_error_s / reached.step_time_s

    @property
    def tokens_per_s(self) -> float:
        """Of the whole job, measured or estimated, else predicted."""
        return self.prediction.tokens_per_s if self.reached is None else self.reached.tokens_per_s

    @property
    def peak_bytes(self) -> float | None:
        """Of the fullest rank, measured or estimated; None where nobody measured it."""
        reached = self.reached
        match reached:
            case TrialEstimate():
                return reached.full_size.peak_bytes
            case Measurement() if reached.peak_bytes:
                return float(max(reached.peak_bytes))
            case _:
                return None

    @property
    def footprint(self) -> Footprint | None:
        """What it takes beside time, as found or as modelled; None in records older than footprints."""
        return self.modelled if self.reached is None else self.reached.footprint

    @property
    def price_per_million_tokens(self) -> float | None:
        """Dollars, of energy too where that is paid beside hours; None where no price is known."""
        if not self.tokens_per_s:
            return None
        if self.footprint is not None:
            return price_per_million_tokens(self.footprint, self.tokens_per_s)
        return 1e6 * self.price_per_s / self.tokens_per_s if self.price_per_s else None


def ranked_rows(request: SweepRequest, trials: Sequence[Trial]) -> tuple[TableRow, ...]:
    """The trials of a sweep that have a rank, the best first.

    Args:
        request: Of the sweep.
        trials: All that there are, repeats too.
    """
    known = standings(ranked_times(request.objective, trials))
    price_per_s = _price_per_s(request)
    return tuple(
        TableRow(
            layout=trial.layout,
            prediction=trial.prediction,
            rank=rank,
            trial=trial,
            standing=known[trial.id],
            price_per_s=price_per_s,
            time_to_loss_s=time_to_loss_s(trial, request.loss_gate),
            value=None if trial.reached is None else request.objective.value(trial.reached),
        )
        for rank, trial in enumerate(request.objective.ranked(trials), 1)
    )


def untried_rows(
    request: SweepRequest, predicted: Iterable[PredictedLayout], trials: Iterable[Trial]
) -> tuple[TableRow, ...]:
    """Layouts that no trial tried, in the order in which they are predicted."""
    tried = {trial.layout for trial in trials}
    price_per_s = _price_per_s(request)
    return tuple(
        TableRow(
            layout=one.layout,
            prediction=one.prediction,
            price_per_s=price_per_s,
            modelled=one.footprint,
            value=_predicted_value(request, one),
        )
        for one in predicted
        if one.layout not in tried
    )


def _predicted_value(request: SweepRequest, one: PredictedLayout) -> float | None:
    objective = request.objective
    if objective.reads_footprint and one.footprint is None:
        return None
    return objective.worth_per_step(request.job, one.footprint) / objective.predicted_step_s(one.prediction)


def _price_per_s(request: SweepRequest) -> float:
    cluster = request.job.cluster
    return cluster.price_per_accelerator_hour * cluster.world_size / _SECONDS_PER_HOUR
