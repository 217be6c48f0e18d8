"""Time against accelerator-hours of a study's candidates that came to the target, with the front."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from api.dashboard.charts.scale import Scale
from api.dashboard.charts.stairs import staircase
from api.dashboard.charts.svg import circle, for_both, line, path, picture, text
from api.schemas import OptimizerTrialView
from autotuner.core.study import TargetReached
from autotuner.core.units import format_seconds

_HEIGHT = 260.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 64.0, 16.0, 30.0, 36.0

Pair = tuple[OptimizerTrialView, TargetReached]


def study_front(trials: Sequence[OptimizerTrialView]) -> Markup:
    """The picture for a desk and for a phone; nothing where fewer than two came to the target."""
    pairs = [(trial, trial.reached) for trial in trials if trial.reached is not None]
    if len(pairs) < 2:  # one point is no comparison
        return Markup("")
    return for_both(lambda width: _drawn(pairs, width), wide=632)


def _drawn(pairs: Sequence[Pair], width: int) -> Markup:
    label = f"Time against accelerator-hours to the target of {len(pairs)} candidates"
    return picture(width, _HEIGHT, _parts(pairs, width), label)


def _parts(pairs: Sequence[Pair], width: int) -> Iterator[Markup]:
    x = Scale(0, 1.06 * max(reached.time_s for _, reached in pairs), _LEFT + 6, width - _RIGHT)
    y = Scale(0, 1.06 * max(reached.accelerator_hours for _, reached in pairs), _HEIGHT - _BOTTOM, _TOP)
    for mark in y.marks(5):
        yield line(_LEFT, y(mark), width - _RIGHT, y(mark), "rule")
        yield text(_LEFT - 8, y(mark) + 4, f"{mark:g}", anchor="end")
    for mark in x.marks(5):
        yield text(x(mark), _HEIGHT - _BOTTOM + 16, format_seconds(mark) if mark else "0", anchor="middle")
    yield text((_LEFT + width) / 2, _HEIGHT - 4, "time to the target", anchor="middle")
    yield text(0, 12, "accelerator-hours")
    best = sorted(((r.time_s, r.accelerator_hours) for trial, r in pairs if trial.is_on_front), key=lambda at: at[0])
    if len(best) > 1:
        yield path(staircase([(x(time_s), y(hours)) for time_s, hours in best]), "m-front")
    for trial, reached in sorted(pairs, key=lambda pair: pair[0].is_on_front):  # what counts above what is behind it
        at = x(reached.time_s), y(reached.accelerator_hours)
        yield circle(*at, 4.5, "m-dot win" if trial.is_on_front else "m-dot soft", f"{trial.number}: {trial.label}")
        if trial.is_on_front:
            yield text(at[0], at[1] - 9, str(trial.number), "halo win-text", "middle")
