"""The losses of a study's candidates over the time that they trained, and the target."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from api.dashboard.charts.scale import Scale
from api.dashboard.charts.svg import circle, for_both, line, path, picture, text
from api.schemas import OptimizerTrialView
from autotuner.core.units import format_seconds

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
