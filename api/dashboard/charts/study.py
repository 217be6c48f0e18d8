"""The candidates of a study: their losses over the time that they trained, and time against accelerator-hours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from api.dashboard.charts.drawing import Scale, circle, for_both, line, path, picture, text
from api.dashboard.charts.spread import staircase
from api.schemas.optimizer_studies import OptimizerTrialView
from autotuner.core.study import TargetReached
from autotuner.core.units import format_seconds

# The losses of a study's candidates over the time that they trained, and the target.

_HEIGHT = 260.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 44.0, 16.0, 30.0, 36.0

_MOST_POINTS = 160
"""Of a curve: more than a picture has room for."""


def study_curves(trials: Sequence[OptimizerTrialView], target_loss: float) -> Markup:
    """The curves for a desk and for a phone; nothing where no candidate has two losses."""
    drawn = [trial for trial in trials if len(trial.smoothed_losses) > 1 and trial.step_time_s > 0]
    if not drawn:
        return Markup("")
    return for_both(lambda width: _drawn(drawn, target_loss, width), wide=632)


def _drawn(trials: Sequence[OptimizerTrialView], target_loss: float, width: int) -> Markup:
    label = f"Loss over training time of {len(trials)} candidates, with the target of {target_loss:g}"
    return picture(width, _HEIGHT, _parts(trials, target_loss, width), label)


def _parts(trials: Sequence[OptimizerTrialView], target_loss: float, width: int) -> Iterator[Markup]:
    longest_s = max(trial.num_steps * trial.step_time_s for trial in trials)
    highest = max(trial.smoothed_losses[0] for trial in trials)
    lowest = min(target_loss, *(min(trial.smoothed_losses) for trial in trials))
    room = 0.05 * (highest - lowest) or 0.05
    x = Scale(0, longest_s, _LEFT + 6, width - _RIGHT)
    y = Scale(lowest - room, highest + room, _HEIGHT - _BOTTOM, _TOP)
    for mark in y.marks(5):
        yield line(_LEFT, y(mark), width - _RIGHT, y(mark), "rule")
        yield text(_LEFT - 8, y(mark) + 4, f"{mark:g}", anchor="end")
    for mark in x.marks(5):
        yield text(x(mark), _HEIGHT - _BOTTOM + 16, format_seconds(mark) if mark else "0", anchor="middle")
    yield text((_LEFT + width) / 2, _HEIGHT - 4, "training time", anchor="middle")
    yield text(0, 12, "loss")
    yield line(_LEFT, y(target_loss), width - _RIGHT, y(target_loss), "limit")
    yield text(width - _RIGHT, y(target_loss) - 6, f"target {target_loss:g}", "bad-text halo", "end")
    for trial in sorted(trials, key=lambda one: (one.is_on_front, one.reached is not None)):
        points = [(x(time_s), y.clamped(loss)) for time_s, loss in _thinned(trial)]
        yield path(points, "m-step" if trial.is_on_front else "m-line" if trial.reached else "par")
        if trial.reached:
            at = points[-1]
            yield circle(
                *at, 3.2, "m-dot win" if trial.is_on_front else "m-dot", f"number {trial.number}: {trial.label}"
            )


def _thinned(trial: OptimizerTrialView) -> list[tuple[float, float]]:
    """Seconds and losses, no more than a picture shows; the last one always."""
    every = -(-trial.num_steps // _MOST_POINTS)
    numbers = [*range(0, trial.num_steps - 1, every), trial.num_steps - 1]
    return [((number + 1) * trial.step_time_s, trial.smoothed_losses[number]) for number in numbers]


# Time against accelerator-hours of a study's candidates that came to the target, with the front.

_FRONT_LEFT, _FRONT_RIGHT, _FRONT_TOP, _FRONT_BOTTOM = 64.0, 16.0, 30.0, 36.0

Pair = tuple[OptimizerTrialView, TargetReached]


def study_front(trials: Sequence[OptimizerTrialView]) -> Markup:
    """The picture for a desk and for a phone; nothing where fewer than two came to the target."""
    pairs = [(trial, trial.reached) for trial in trials if trial.reached is not None]
    if len(pairs) < 2:  # one point is no comparison
        return Markup("")
    return for_both(lambda width: _front_drawn(pairs, width), wide=632)


def _front_drawn(pairs: Sequence[Pair], width: int) -> Markup:
    label = f"Time against accelerator-hours to the target of {len(pairs)} candidates"
    return picture(width, _HEIGHT, _front_parts(pairs, width), label)


def _front_parts(pairs: Sequence[Pair], width: int) -> Iterator[Markup]:
    x = Scale(0, 1.06 * max(reached.time_s for _, reached in pairs), _FRONT_LEFT + 6, width - _FRONT_RIGHT)
    y = Scale(0, 1.06 * max(reached.accelerator_hours for _, reached in pairs), _HEIGHT - _FRONT_BOTTOM, _FRONT_TOP)
    for mark in y.marks(5):
        yield line(_FRONT_LEFT, y(mark), width - _FRONT_RIGHT, y(mark), "rule")
        yield text(_FRONT_LEFT - 8, y(mark) + 4, f"{mark:g}", anchor="end")
    for mark in x.marks(5):
        yield text(x(mark), _HEIGHT - _FRONT_BOTTOM + 16, format_seconds(mark) if mark else "0", anchor="middle")
    yield text((_FRONT_LEFT + width) / 2, _HEIGHT - 4, "time to the target", anchor="middle")
    yield text(0, 12, "accelerator-hours")
    best = sorted(((r.time_s, r.accelerator_hours) for trial, r in pairs if trial.is_on_front), key=lambda at: at[0])
    if len(best) > 1:
        yield path(staircase([(x(time_s), y(hours)) for time_s, hours in best]), "m-front")
    for trial, reached in sorted(pairs, key=lambda pair: pair[0].is_on_front):  # what counts above what is behind it
        at = x(reached.time_s), y(reached.accelerator_hours)
        yield circle(*at, 4.5, "m-dot win" if trial.is_on_front else "m-dot soft", f"{trial.number}: {trial.label}")
        if trial.is_on_front:
            yield text(at[0], at[1] - 9, str(trial.number), "halo win-text", "middle")
