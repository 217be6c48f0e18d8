"""Charts of a sweep: best so far, Pareto fronts, predicted against measured, all choices, and effects of choices.

The functions take ended trials in the form that ``trial_points`` returns.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from autotuner.core.layout import Layout
from autotuner.core.objective import Figures, Metric, Objective
from autotuner.core.trial import FailureKind, Trial
from autotuner.core.units import GIGA, KILO, MEGA, format_bytes
from autotuner.report.charts import (
    Axis,
    Band,
    ChoiceAxis,
    Dot,
    Dots,
    Failures,
    Interval,
    Intervals,
    Line,
    Look,
    Mark,
    Note,
    NumberAxis,
    Parallel,
    Plot,
    Rule,
    Spread,
    front,
    stairs,
)
from autotuner.report.layouts import in_short
from autotuner.report.sweep_trials import FAILURE_WORDS
from autotuner.search.results.axis import varied_axes
from autotuner.search.results.pairs import PairEffect
from autotuner.search.results.sensitivity import Choices
from autotuner.search.results.sweep_front import Behind, FrontPoint, SweepFront

_MOST_BEYOND = 1.35
"""Factor of the best value up to which the band of the first trials is shown; such a band may reach far higher."""

_MOST_AXES = 8
"""Maximum number of axes for choices; more axes would leave no room for their words."""

_FIRST = ("tp", "pp", "dp", "cp", "mb", "sharding", "recompute")
"""Choices that are always shown, because everybody asks about them; others are shown if they explain much."""

_FEWEST_PAIRS = 3
"""Number of pairs from which an effect with the same sign in all pairs is not taken for chance."""

_HEALTHY = Objective()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialPoint:
    """A trial that ended, as a point of charts: its layout's results, prediction and address."""

    number: int
    layout: Layout
    name: str
    """Layout in its short form: ``tp4 pp2 dp8 mb1``."""
    href: str
    """Address of the trial's page."""
    predicted: Spread
    """Predicted MFU with its 80 % interval; with a fault trace, the robust MFU."""
    predicted_bytes: float
    reached: Spread | None
    """Measured, simulated or estimated MFU; None without a result."""
    is_simulated: bool
    """True if nothing ran; the result is then drawn in amber."""
    peak_bytes: float | None
    """Peak bytes of the fullest rank; None if they were not measured."""
    failure: str
    """Reason why the trial has no result; empty if it has one or was ended on purpose."""
    is_out_of_memory: bool
    expected_gain: float | None
    """Share by which the trial was expected to beat the best so far when it was chosen; None if this was not
    recorded."""
    is_incumbent: bool
    """True if the layout is in use today."""

    @property
    def mfu(self) -> float | None:
        """The MFU that the trial reached, 0 to 1; None without a result."""
        return None if self.reached is None else self.reached.value

    @property
    def shown_bytes(self) -> float:
        """The memory peak of the trial in bytes; the predicted peak if no rank reported one."""
        return self.predicted_bytes if self.peak_bytes is None else self.peak_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudPoint:
    """A layout that was predicted and not run, as a point of charts: its peak memory in bytes and its MFU (0 to 1)."""

    peak_bytes: float
    mfu: float


def trial_points(
    trials: Iterable[Trial],
    objective: Objective = _HEALTHY,
    *,
    root: str = "",
    incumbent: Layout | None = None,
    is_simulated: bool = False,
) -> tuple[TrialPoint, ...]:
    """Return the trials that ended as points of charts, in the order in which they ran.

    Trials that repeat another one, and trials that emulate a number format, are left out.

    Args:
        trials: Trials of one sweep, by number.
        objective: Objective of the sweep; under a fault trace, the points show robust MFU.
        root: Path before every address of the service.
        incumbent: The layout in use today; None: not known.
        is_simulated: True if the sweep simulates its trials.
    """
    shown = (trial for trial in trials if trial.state.finished and trial.repeats is None)
    return tuple(
        _point(trial, objective, root, incumbent, is_simulated=is_simulated)
        for trial in shown
        if not trial.layout.is_emulated
    )


def _point(
    trial: Trial, objective: Objective, root: str, incumbent: Layout | None, *, is_simulated: bool
) -> TrialPoint:
    prediction, reached = trial.prediction, trial.reached if trial.is_ranked else None
    counted = None if reached is None else objective.counted(reached)
    mfu = (prediction.robust_mfu if objective.under_faults else None) or prediction.mfu
    return TrialPoint(
        number=trial.number,
        layout=trial.layout,
        name=in_short(trial.layout),
        href=f"{root}/trials/{trial.id}",
        predicted=Spread.within_factor(mfu, prediction.relative_error),
        predicted_bytes=prediction.memory.total_bytes,
        reached=None if counted is None else Spread.within(counted.mfu, half_of(counted)),
        is_simulated=is_simulated,
        peak_bytes=None if reached is None else reached.highest_peak_bytes,
        failure=_failure(trial),
        is_out_of_memory=trial.failure is not None and trial.failure.kind is FailureKind.OOM,
        expected_gain=None if objective.front else trial.expected_gain,  # none for a Pareto front
        is_incumbent=trial.layout == incumbent,
    )


def half_of(reached: Figures) -> float:
    """Return half the width of the 95 % interval of a trial's MFU, derived from the interval of its step time."""
    return reached.mfu * reached.step_time_error_s / reached.step_time_s


def _failure(trial: Trial) -> str:
    if trial.failure is not None:
        return FAILURE_WORDS[trial.failure.kind]
    if trial.reached is None or trial.is_valid:
        return ""
    return (
        "no rank: it failed its convergence gate"
        if trial.gate is not None
        else "no rank: it did not pass a convergence gate"
    )


def rises(trials: Sequence[TrialPoint]) -> Iterator[tuple[int, TrialPoint, float | None]]:
    """Yield each trial that raised the best MFU so far: its position (from 1), the trial, and its gain.

    The gain is relative to the best MFU of the trials before it. It is None for the first trial with a result.
    """
    best: float | None = None
    for position, trial in enumerate(trials, 1):
        if trial.mfu is not None and (best is None or trial.mfu > best):
            yield position, trial, None if best is None else trial.mfu / best - 1
            best = trial.mfu


def on_front(trials: Sequence[TrialPoint]) -> list[TrialPoint]:
    """Return the trials on the Pareto front of MFU and memory, by rising memory.

    A trial is on the front if no trial with the same memory or less has a higher MFU.
    """
    dots = front(_dot(trial, trial.shown_bytes, trial.mfu) for trial in trials if trial.mfu is not None)
    by_number = {trial.number: trial for trial in trials}
    return [by_number[dot.key] for dot in dots if dot.key is not None]


def is_limit_near(trials: Sequence[TrialPoint], limit_bytes: float) -> bool:
    """Return True if a chart should show the memory limit.

    A distant limit is left out, because it would press all trials into a corner of the chart.

    Args:
        trials: Trials that ended.
        limit_bytes: Bytes of memory that a rank may use.
    """
    peaks = [trial.shown_bytes for trial in trials if trial.mfu is not None]
    return any(trial.is_out_of_memory for trial in trials) or limit_bytes < 3 * max(peaks, default=0.0)


def best_so_far(trials: Sequence[TrialPoint], remaining_gain: float | None = None) -> Plot | None:
    """Return a chart of the best MFU after each trial, with a band for the gain that was expected from the next trial.

    Args:
        trials: Trials in the order in which they ended.
        remaining_gain: Gain that the search expects from one more trial, as a share of the best MFU; None: not known.

    Returns:
        The chart; None if no trial has a result.
    """
    values = [trial.mfu for trial in trials if trial.mfu is not None]
    if not values:
        return None
    best, most, gains = 0.0, max(values), [trial.expected_gain for trial in trials[1:]] + [remaining_gain]
    dots: list[Dot] = []
    fails: list[Dot] = []
    steps: list[tuple[float, float]] = []
    upper: list[tuple[float, float, float]] = []
    top = most * min(_MOST_BEYOND, 1 + max(gain or 0.0 for gain in gains))
    axis = Axis.around([*values, top], "MFU", unit="share", floor=0.0)
    axis = replace(axis, low=max(0.0, axis.low - 0.06 * (axis.high - axis.low)))  # room for failures below the worst
    for position, (trial, gain) in enumerate(zip(trials, gains, strict=True), 1):
        if trial.failure:
            fails.append(_dot(trial, position, axis.low + 0.03 * (axis.high - axis.low), trial.failure))
        if trial.mfu is not None:
            is_rise, best = trial.mfu > best, max(best, trial.mfu)
            look: Look = "soft" if not is_rise else "best" if best == most else "front"
            dots.append(_dot(trial, position, trial.mfu, look=look))
            steps += [(position, best)] if is_rise else []
        if best and gain is not None and (not upper or abs(best * (1 + gain) - upper[-1][1]) > 0.002 * top):
            upper.append((position, best * (1 + gain), best))
    end = len(trials) + 0.5
    upper += [(end, *upper[-1][1:])] if upper else []
    over = stairs([(x, min(high, axis.high)) for x, high, _ in upper])
    under = stairs([(x, low) for x, _, low in upper])
    foreseen: list[Mark] = [Band(upper=over, lower=under), Line(points=over, look="predicted")] if upper else []
    return Plot(
        says=f"Best MFU so far against trials: {100 * best:.1f} % after {len(trials)} trials.",
        x=Axis(title="trials, in the order they ran", unit="count", low=1, high=end),
        y=axis,
        marks=[
            *foreseen,
            Dots(dots=[dot for dot in dots if dot.look == "soft"]),
            Failures(dots=fails),
            Line(points=stairs([*steps, (end, best)]), look="best"),
            Dots(dots=[dot for dot in dots if dot.look != "soft"]),
            *(
                Note(words="runs today", x=position, y=trial.mfu, look="incumbent")
                for position, trial in enumerate(trials, 1)
                if trial.is_incumbent and trial.mfu is not None
            ),
            *(
                [
                    Note(
                        words=f"✕ no result: {len(fails)}",
                        x=0.7 * len(trials),
                        y=axis.low + 0.17 * (axis.high - axis.low),
                        look="limit",
                    )
                ]
                if fails
                else []
            ),
            Note(words=f"{100 * best:.1f} %", x=None, y=best, look="best"),
            Note(words="best so far", x=None, y=best, look="soft", lines_below=1),
            *(
                [
                    Note(words=_gain(remaining_gain), x=None, y=best, lines_below=-2),
                    Note(words="expected next", x=None, y=best, look="soft", lines_below=-1),
                ]
                if remaining_gain is not None
                else []
            ),
        ],
    )


def _gain(share: float) -> str:
    if share < 1e-4:
        return "no more"
    return f"{100 * share:.1f} % more" if share >= 0.0005 else "<0.1 % more"


def memory_front(trials: Sequence[TrialPoint], limit_bytes: float, predicted: Sequence[CloudPoint] = ()) -> Plot | None:
    """Return a chart of MFU against peak memory, with the Pareto front, the memory limit and predicted layouts.

    Args:
        trials: Trials that ended.
        limit_bytes: Bytes of memory that a rank may use.
        predicted: Layouts that are predicted to fit and did not run.

    Returns:
        The chart; None if no trial has a result.
    """
    ranked = [
        _dot(
            trial,
            trial.shown_bytes,
            trial.mfu,
            f"{100 * trial.mfu:.1f} % MFU, {format_bytes(trial.shown_bytes)}",
            "soft",
        )
        for trial in trials
        if trial.mfu is not None
    ]
    if not ranked:
        return None
    peaks, failed = [dot.x for dot in ranked], [trial for trial in trials if trial.is_out_of_memory]
    limits = [limit_bytes] if is_limit_near(trials, limit_bytes) else []
    best = front(ranked)
    names = {dot.key: replace(dot, look="front", name=_name(trials, dot)) for dot in best}
    names[best[-1].key] = replace(names[best[-1].key], look="best")
    beyond = [min(trial.predicted_bytes, 1.15 * limit) for trial in failed for limit in limits]
    x = Axis.around(
        [*peaks, *(one.peak_bytes for one in predicted), *limits, *beyond],
        "peak memory of a rank",
        unit="bytes",
        floor=0.0,
    )
    y = Axis.around([*(dot.y for dot in ranked), *(one.mfu for one in predicted)], "MFU", unit="share", floor=0.0)
    return Plot(
        says=(
            f"MFU against peak memory: {len(ranked)} layouts with a result"
            f"{f', {len(predicted)} predicted' if predicted else ''}; {len(best)} of them form the front."
        ),
        x=x,
        y=y,
        marks=[
            *(Rule(at=limit, along="x", label=f"limit {format_bytes(limit)}", beyond=True) for limit in limits),
            Dots(dots=[Dot(x=one.peak_bytes, y=one.mfu, look="predicted") for one in predicted]),
            Dots(dots=[dot for dot in ranked if dot.key not in names]),
            Line(points=stairs([(dot.x, dot.y) for dot in best]), look="front"),
            Dots(dots=list(names.values())),
            Failures(
                dots=[
                    _dot(trial, max(trial.predicted_bytes, limit), trial.predicted.value, trial.failure)
                    for trial in failed
                    for limit in limits
                ],
                past=limit_bytes,
            ),
        ],
    )


def metric_fronts(trials: Sequence[TrialPoint], found: SweepFront, most: int = 3) -> list[Plot]:
    """Return charts of a Pareto front: one for each pair of the first metric and another metric.

    Args:
        trials: Trials that ended.
        found: The front, which has at least two metrics.
        most: Largest number of charts.

    Returns:
        The charts; empty if no trial has a result.
    """
    if not found.points:
        return []
    names = {trial.number: trial for trial in trials}
    return [_metric_front(names, found, column) for column in range(1, min(len(found.metrics), most + 1))]


def _metric_front(trials: Mapping[int, TrialPoint], found: SweepFront, column: int) -> Plot:
    every: list[Behind | FrontPoint] = [*found.behind, *found.points]
    upward, across = found.metrics[0], found.metrics[column]
    y, up = _metric_axis(upward, [one.values[0] for one in every])
    x, right = _metric_axis(across, [one.values[column] for one in every])
    first = next((one.trial for one in found.points if one.is_first), None)

    def dot(one: Behind | FrontPoint, look: Look) -> Dot:
        trial, values = trials[one.trial], one.values
        said = f"{upward.in_words(values[0])}, {across.in_words(values[column])}"
        name = "" if look == "soft" else trial.name
        return replace(_dot(trial, values[column] / right, values[0] / up, said, look), name=name)

    behind = [dot(one, "soft") for one in found.behind]
    shown = [dot(one, "best" if one.trial == first else "front") for one in found.points]
    steps = front([*behind, *shown], least_x=False)  # the others are on the front for a third metric
    return Plot(
        says=(
            f"{upward.noun} against {across.noun}: {len(every)} layouts with a result; {len(shown)} of them are on the "
            "Pareto front."
        ),
        x=x,
        y=y,
        marks=[
            Dots(dots=behind),
            Line(points=_falling([(one.x, one.y) for one in steps]), look="front"),
            Dots(dots=shown, is_named_right=True),
        ],
    )


def _falling(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the steps of a front on which one value rises while the other falls."""
    return stairs(points[::-1])[::-1]


def _metric_axis(metric: Metric, values: Sequence[float]) -> tuple[Axis, float]:
    """Return the axis of a metric, and the divisor of its values on this axis."""
    if metric in (Metric.MFU, Metric.ROBUSTNESS):
        return Axis.around(values, metric.noun, unit="share", margin=0.08, floor=0.0), 1.0
    if metric is Metric.TOKENS_PER_S:
        return Axis.around(values, metric.noun, unit="tokens/s", margin=0.08, floor=0.0), 1.0
    scales = ((GIGA, "billions"), (MEGA, "millions"), (KILO, "thousands"))
    divisor, words = next(((float(scale), words) for scale, words in scales if max(values) >= scale), (1.0, ""))
    title = f"{metric.noun}, {words}" if words else metric.noun
    return Axis.around([value / divisor for value in values], title, margin=0.08, floor=0.0), divisor


def agreement(trials: Sequence[TrialPoint], kind: str = "measured") -> Plot | None:
    """Return a chart of the MFU of trials against the predicted MFU; exact predictions lie on its diagonal.

    A band around the diagonal is the usual 80 % interval of predictions.

    Args:
        trials: Trials that ended.
        kind: Source of the results: measured, simulated or estimated.

    Returns:
        The chart; None if no trial has a result.
    """
    pairs = [(trial, trial.reached) for trial in trials if trial.reached is not None]
    if not pairs:
        return None
    values = [value for trial, reached in pairs for value in (trial.predicted.value, reached.value)]
    axis = Axis.around(values, f"{kind} MFU", unit="share", margin=0.08, floor=0.0)
    error = statistics.median(trial.predicted.high / trial.predicted.value - 1 for trial, _ in pairs)
    return Plot(
        says=f"{kind.capitalize()} against predicted MFU of {len(pairs)} trials; the band is the usual 80 % interval.",
        x=replace(axis, title="predicted MFU"),
        y=axis,
        height=320,
        wide=560,
        marks=[
            _within(axis, 1 + error),
            Line(points=[(axis.low, axis.low), (axis.high, axis.high)], look="predicted"),
            Dots(
                dots=[
                    replace(
                        _dot(
                            trial,
                            trial.predicted.value,
                            reached.value,
                            f"{kind} {100 * reached.value:.1f} %, predicted {100 * trial.predicted.value:.1f} %",
                            "soft" if len(pairs) > 60 else "measured",
                        ),
                        low=reached.low,
                        high=reached.high,
                    )
                    for trial, reached in pairs
                ]
            ),
            *([Note(words=f"± {100 * error:.0f} %", x=axis.low, y=axis.high, look="soft")] if error else []),
        ],
    )


def _within(axis: Axis, factor: float) -> Band:
    """Return the band around the diagonal of a chart whose values differ by less than ``factor``."""
    low, high = axis.low, axis.high
    at_low, at_high = min(low * factor, high), max(high / factor, low)
    return Band(
        upper=[(low, at_low), (at_high, high), (high, high)], lower=[(low, low), (at_low, low), (high, at_high)]
    )


def effects(found: Sequence[PairEffect]) -> Intervals | None:
    """Return a chart of the throughput that changes of one option gained, with median and range over pairs of trials.

    Args:
        found: Effects of such changes. The two trials of a pair differ in one option only.

    Returns:
        The chart; None if there are no effects.
    """
    if not found:
        return None
    rows = [
        Interval(
            name=change_of(one),
            value=one.median_gain or 0.0,
            low=one.least_gain or 0.0,
            high=one.greatest_gain or 0.0,
            end_text=f"{one.num_faster} of {one.num_pairs}",
            look=_look(one),
        )
        for one in found
    ]
    ends = [0.0, *(row.low for row in rows), *(row.high for row in rows)]
    axis = Axis.around(ends, "throughput gained", unit="signed_share")
    return Intervals(says="Throughput gained by one change, from pairs of trials: median and range.", x=axis, rows=rows)


def change_of(found: PairEffect) -> str:
    """Return the change of an option in words, whose effect was measured: ``recompute full → none``."""
    return f"{found.subject} {found.before} → {found.after}" if found.before else found.subject


def _look(found: PairEffect) -> Look:
    """Return the look of an effect: best or limit if all pairs agree and are no chance, else soft."""
    if found.num_pairs < _FEWEST_PAIRS:
        return "soft"
    if (found.least_gain or 0.0) > 0:
        return "best"
    return "limit" if (found.greatest_gain or 0.0) < 0 else "soft"


def importance(found: Choices, most: int = 8) -> Intervals | None:
    """Return a chart of the share of throughput differences that each option explains; None if no option explains any.

    The range of an option begins at the share that only this option can explain. It ends at the share that this option
    explains by itself.

    Args:
        found: Importance of the options.
        most: Largest number of options to show.
    """
    rows = [
        Interval(
            name=one.label,
            value=one.share,
            low=one.beyond_others,
            high=max(one.alone, one.beyond_others),
            end_text=f"{100 * one.share:.0f} %",
        )
        for one in found.importance[:most]
        if one.share > 0
    ]
    if not rows:
        return None
    axis = Axis(title="share explained", unit="share", low=0.0, high=max(0.1, *(row.high for row in rows)))
    says = "Share of the differences in throughput that each option explains."
    return Intervals(says=says, x=axis, rows=rows, is_banded=True)


def parallel(trials: Sequence[TrialPoint], found: Choices) -> tuple[Parallel | None, list[str]]:
    """Return the trials as parallel coordinates, and the labels of the options for which the chart has no room.

    The chart is None if fewer than two trials have a result, or if no option varies.

    Args:
        trials: Trials that ended.
        found: Importance of the options. The chart shows the basic options first, then the most important ones.
    """
    shown = [trial for trial in trials if trial.mfu is not None]
    layouts = [trial.layout for trial in shown]
    known = {axis.name: axis for axis in varied_axes(layouts)}
    matter = dict.fromkeys([*_FIRST, *(one.name for one in found.importance)])
    wanted = [name for name in matter if name in known][:_MOST_AXES]
    if len(shown) < 2 or not wanted:
        return None, []
    axes: list[ChoiceAxis | NumberAxis] = []
    for axis in (axis for axis in known.values() if axis.name in wanted):
        values = [axis.read(layout) for layout in layouts]
        order = axis.in_order(values)
        codes = [order.index(value) for value in values]
        axes.append(ChoiceAxis(name=axis.name, label=axis.label, words=[*map(str, order)], codes=codes))
    if any(trial.shown_bytes for trial in shown):
        peaks = [trial.shown_bytes for trial in shown]
        axes.append(
            NumberAxis(name="memory", axis=Axis.around(peaks, "memory", unit="bytes", margin=0.04), values=peaks)
        )
    mfu = [trial.mfu or 0.0 for trial in shown]
    axes.append(NumberAxis(name="mfu", axis=Axis.around(mfu, "MFU", unit="share", margin=0.04), values=mfu))
    ranks = {
        trial.number: rank for rank, trial in enumerate(sorted(shown, key=lambda one: (-(one.mfu or 0.0), one.number)))
    }
    dots = [replace(_dot(trial, 0.0, trial.mfu or 0.0), y=float(ranks[trial.number])) for trial in shown]
    best = dots[min(range(len(dots)), key=lambda place: dots[place].y)]
    dots = [replace(dot, look="best") if dot is best else dot for dot in dots]
    says = f"Every choice, memory and MFU of {len(shown)} trials as lines; the best is in front."
    return Parallel(says=says, dots=dots, axes=axes), [axis.label for axis in known.values() if axis.name not in wanted]


def _dot(trial: TrialPoint, x: float, y: float, said: str = "", look: Look = "measured") -> Dot:
    value = said or f"{100 * y:.1f} % MFU"
    return Dot(
        x=x,
        y=y,
        said=f"{trial.name}, trial {trial.number}: {value}",
        href=trial.href,
        key=trial.number,
        look=look,
        is_simulated=trial.is_simulated,
    )


def _name(trials: Sequence[TrialPoint], dot: Dot) -> str:
    return next(trial.name for trial in trials if trial.number == dot.key)
