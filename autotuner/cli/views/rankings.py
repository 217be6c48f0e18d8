"""Layouts in the order of their rank, predicted or measured; every number says which of both it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.console import Group, RenderableType
from rich.text import Text

from autotuner.core.cluster import SIMULATED
from autotuner.core.convergence_gate import GateOutcome
from autotuner.core.measurement import Measurement
from autotuner.core.objective import Metric, Objective
from autotuner.core.prediction import Prediction, TrialEstimate
from autotuner.core.trial import Trial
from autotuner.core.units import format_bytes, format_seconds
from autotuner.report.terminal import LayoutRow, LayoutTable
from autotuner.search.results.reached import RankedTrial
from autotuner.search.text.sentences import (
    expected_mfu,
    expected_rate,
    expected_seconds,
    gate_in_words,
    is_wide,
    likely,
    percent,
    ranges,
    value_in_words,
)
from autotuner.search.text.trials import (
    footprint_in_words,
    has_own_peak,
)


def ranking_table(items: Sequence[RankedTrial], objective: Objective) -> RenderableType:
    """Measured above predicted, the best first; what cannot be told from the first is marked."""
    by_ends, is_close = _by_ends(items), _is_close(items)
    has_gates = any(item.gate_outcome for item in items)
    table = LayoutTable(
        keys=("#", "trial"),
        heads=(
            objective.noun,
            "step",
            *(["to loss"] if has_gates else []),
            "memory",
            *(["chance"] if is_close else []),
        ),
        rows=[_ranked_row(item, objective, by_ends=by_ends, is_close=is_close, has_gates=has_gates) for item in items],
    )
    found = _sources(items)
    notes = f"{_meant(items)}. Lower line, in brackets: predicted, {_error(items)}.{_caveats(items)}"
    head = Text(f"ranking by {found} {objective.noun}", style="bold")
    return Group(head, table, *([Text(_ties(items))] if is_close else []), Text(notes, style="dim"))


def _ranked_row(
    item: RankedTrial, objective: Objective, *, by_ends: bool, is_close: bool, has_gates: bool
) -> LayoutRow:
    predicted = item.prediction
    rank = f"{item.rank}{'=' if is_close and _is_tied(item) else ''}"
    step, peak = _step_and_peak(item)
    cells = (
        "\n".join(_value(item, objective, by_ends=by_ends)),
        f"{step}\n({_step(predicted)})",
        *([_to_loss(item)] if has_gates else []),
        f"{peak}\n({format_bytes(predicted.peak_bytes)})",
        *([likely(item.standing.probability_best if item.standing else 0.0)] if is_close else []),
    )
    keys = (rank, trial_number(item.id))
    return LayoutRow(keys=keys, layout=item.label, remarks=tuple(_remarks(item)), cells=cells)


def _to_loss(item: RankedTrial) -> str:
    """Seconds to the loss that the sweep's gates compare; a dash where that is not known."""
    return "–" if item.time_to_loss_s is None else format_seconds(item.time_to_loss_s)


def _step_and_peak(item: RankedTrial) -> tuple[str, str]:
    """Step time with its interval, and peak: measured, or estimated at full size."""
    if item.estimate:
        whole = item.estimate.full_size
        return expected_seconds(whole.step_time_s, whole.relative_error), format_bytes(whole.peak_bytes)
    measured = _ran(item)
    return f"{format_seconds(measured.step_time_s)}{_interval(measured)}", _peak(measured)


def _estimate(item: Trial) -> list[str]:
    """Where an estimate comes from, with what ran and how much of the step that holds."""
    if item.estimate is None or item.scaled is None:
        return []
    share = percent(item.estimate.full_size.measured_share)
    ran = f"ran {item.scaled.layout}, {item.scaled.num_layers} layers"
    return [f"{item.estimate.said}: {ran}; parts that it ran as they are make {share} of the step"]


def _remarks(item: Trial) -> Iterator[str]:
    """What a reader should know of a row beside its figures."""
    yield from _estimate(item)
    if _ran(item).is_simulated:
        yield SIMULATED
    yield from _gate(item)


def _sources(items: Sequence[RankedTrial]) -> str:
    """Where the figures of a ranking come from: ``measured``, ``simulated``, ``estimated``, or several of these."""
    return " and ".join(sorted({_source(item) for item in items}))


def _source(item: Trial) -> str:
    if item.estimate:
        return "estimated"
    return SIMULATED if _ran(item).is_simulated else "measured"


def _meant(items: Sequence[RankedTrial]) -> str:
    """What the figures outside brackets are."""
    ran = [item for item in items if not item.estimate]
    said = "estimated from trials on fewer ranks, never measured, ± the 80 % interval"
    parts = [said] if len(ran) < len(items) else []
    has_intervals = any(_ran(item).step_time_interval_s is not None for item in ran)
    parts += [f"{_sources(ran)}{', ± the 95 % interval of the median' if has_intervals else ''}"] if ran else []
    return f"Upper line: {'; '.join(parts)}"


def reached_beside_predicted(trial: Trial, objective: Objective) -> str:
    """What a trial reached of what its sweep maximises: ``MFU 43.0 % measured, 47.0 ± 5.6 % predicted``.

    What nobody measured is called simulated, or estimated.
    """
    estimated = trial.estimate
    how = f"{estimated.said}{', simulated' if _ran(trial).is_simulated else ''}" if estimated else _source(trial)
    expected = _predicted_value(trial, objective)
    return f"{objective.noun} {_reached_value(trial, objective)} {how}, {expected} predicted"


def _reached_value(item: Trial, objective: Objective, *, by_ends: bool | None = None) -> str:
    """What the sweep maximises: measured, or estimated with its interval."""
    estimated = item.estimate
    reached, error = _reached(item), estimated.full_size.relative_error if estimated else None
    if not objective.is_speed:
        return objective.figure(objective.value(reached))
    rates = objective.counted(reached)
    if objective.metric is Metric.MFU:
        return expected_mfu(rates.mfu, error, by_ends=by_ends if estimated else None)
    return expected_rate(rates.tokens_per_s, error)


def _predicted_value(item: Trial, objective: Objective, *, by_ends: bool | None = None) -> str:
    """What was expected; beside speed, of the step time alone: what the layout takes is as it was found."""
    predicted, reached = _counted_prediction(item.prediction, objective), _reached(item)
    if not objective.is_speed:
        return objective.figure(objective.value_of(predicted, reached.footprint))
    if objective.metric is Metric.MFU:
        return predicted_mfu(predicted, by_ends=by_ends)
    return expected_rate(predicted.tokens_per_s, predicted.relative_error)


def _counted_prediction(predicted: Prediction, objective: Objective) -> Prediction:
    """Return the prediction with its rates at the step time that the objective compares."""
    robust_s, own = predicted.robust_step_s if objective.under_faults else None, predicted.precision_utilization
    if robust_s is None:
        return predicted
    speed = predicted.step_time_s / robust_s
    return replace(
        predicted,
        mfu=predicted.mfu * speed,
        tokens_per_s=predicted.tokens_per_s * speed,
        precision_utilization=None if own is None else own * speed,
    )


def _value(item: Trial, objective: Objective, *, by_ends: bool) -> Iterator[str]:
    """What the sweep maximises, reached and predicted; and MFU's share of another peak, if its precision has one."""
    yield _reached_value(item, objective, by_ends=by_ends)
    yield f"({_predicted_value(item, objective, by_ends=by_ends)})"
    if not objective.is_speed:
        reached = _reached(item)
        yield footprint_in_words(reached.footprint, reached.tokens_per_s)
    measured = item.measurement
    own = None if measured is None else measured.precision_utilization
    if measured and own is not None and has_own_peak(measured.mfu, own):
        counted = own * objective.counted(measured).mfu / measured.mfu
        yield f"{expected_mfu(counted, None)} of {value_in_words(item.layout.precision)}"


def _gate(item: Trial) -> list[str]:
    """What the loss gate says, of a layout that changes the mathematics alone."""
    return [gate_in_words(item.gate_outcome)] if item.gate_outcome else []


def _is_close(items: Sequence[RankedTrial]) -> bool:
    """Whether the first place is in doubt; in a ranking across sweeps nobody can say."""
    return sum(map(_is_tied, items)) > 1


def _is_tied(item: RankedTrial) -> bool:
    return item.standing is not None and item.standing.tied_with_best


def _ties(items: Sequence[RankedTrial]) -> str:
    tied = ranges(item.rank or 0 for item in items if _is_tied(item))
    return f"Ranks {tied} (=) are tied: noise can explain the difference. Chance: how likely the layout is the fastest."


def trial_number(trial_id: str) -> str:
    """The end of a trial's id, which it alone has in its sweep: ``0003`` of ``sw-k3v7q2mxn5-0003``."""
    return trial_id.rsplit("-", 1)[-1]


def _by_ends(items: Sequence[RankedTrial]) -> bool:
    """Whether one interval is too wide for ±: then the whole column is written by its ends."""
    return any(is_wide(item.prediction.relative_error) for item in items)


def predicted_mfu(predicted: Prediction, *, by_ends: bool | None = None) -> str:
    """A predicted MFU with its interval; ``by_ends`` as for ``expected_mfu``."""
    own = predicted.precision_utilization
    return expected_mfu(predicted.mfu, predicted.relative_error, own, by_ends=by_ends)


def _step(predicted: Prediction) -> str:
    return expected_seconds(predicted.step_time_s, predicted.relative_error)


def _interval(measured: Measurement) -> str:
    """Half the interval as a share of the step, as predictions give theirs; fewer than six steps have none."""
    interval_s = measured.step_time_interval_s
    return "" if interval_s is None else f" ± {100 * interval_s / measured.step_time_s:.2g} %"


def _caveats(items: Sequence[RankedTrial]) -> str:
    """What a reader of measured numbers should know about how they came about."""
    measured = [_ran(item) for item in items]
    floors = [m.noise_floor for m in measured if m.noise_floor is not None]
    num_extrapolated = sum(bool(m.extrapolated_from) for m in measured)
    num_disturbed = sum(m.num_disturbed for m in measured)
    num_ungated = sum(item.gate_outcome == GateOutcome.NOT_GATED for item in items)
    said = [
        "Simulated figures are the cost model's with seeded noise: nothing ran." if _any_simulated(items) else "",
        f"Repeats of one trial differ by up to {percent(max(floors))}." if floors else "",
        f"{num_extrapolated} extrapolated from fewer layers." if num_extrapolated else "",
        f"{num_disturbed} run{'s' if num_disturbed > 1 else ''} did not count, because other programs used the machine."
        if num_disturbed
        else "",
        f"{num_ungated} not gated: what such a layout learns was compared with nothing." if num_ungated else "",
    ]
    return "".join(f" {sentence}" for sentence in said if sentence)


def _any_simulated(items: Sequence[RankedTrial]) -> bool:
    return any(_ran(item).is_simulated for item in items)


def _ran(item: Trial) -> Measurement:
    """What was measured of the trial, or of the small one that stands for it."""
    assert item.ran_measurement is not None, "it has a result"
    return item.ran_measurement


def _reached(item: Trial) -> Measurement | TrialEstimate:
    """Return the value that the trial is ranked by."""
    assert item.reached is not None, "it has a result"
    return item.reached


def _error(items: Sequence[RankedTrial]) -> str:
    """What ± means, and what of it was never compared with a measured run."""
    names = dict.fromkeys(name for item in items for name in item.prediction.never_compared)
    if names:
        return f"± is the 80 % interval, never compared with a measured run: {', '.join(names)}"
    is_known = all(item.prediction.validated for item in items)
    return "± is the 80 % interval" + ("" if is_known else ", not validated on this stack and device")


def _peak(measured: Measurement) -> str:
    """Not every trainer tells it."""
    return format_bytes(max(measured.peak_bytes)) if measured.peak_bytes else "-"
