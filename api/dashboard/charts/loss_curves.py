"""The losses of a loss gate: the candidate's curves over those of its reference, one of each for every seed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from markupsafe import Markup

from api.dashboard.charts.drawing import Scale, for_both, line, path, picture, text
from autotuner.core.convergence_gate import GateResult

_HEIGHT = 220.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 44.0, 12.0, 30.0, 36.0

Curves = Sequence[Sequence[float]]


def loss_curves(gate: GateResult) -> Markup:
    """The curves for a desk and for a phone; nothing where no two finite losses follow each other."""
    candidate, reference = ([_finite(curve) for curve in c] for c in (gate.candidate_losses, gate.reference_losses))
    if max((len(curve) for curve in (*candidate, *reference)), default=0) < 2:
        return Markup("")
    return for_both(lambda width: _drawn(candidate, reference, width), wide=632)


def _finite(curve: Sequence[float]) -> list[float]:
    """The curve until it stops being a number."""
    known = []
    for loss in curve:
        if not math.isfinite(loss):
            break
        known.append(loss)
    return known


def _drawn(candidate: Curves, reference: Curves, width: int) -> Markup:
    label = f"Loss by step: {len(candidate)} run(s) of this layout, {len(reference)} of its reference"
    return picture(width, _HEIGHT, _parts(candidate, reference, width), label)


def _parts(candidate: Curves, reference: Curves, width: int) -> Iterator[Markup]:
    losses = [loss for curve in (*candidate, *reference) for loss in curve]
    steps = max(len(curve) for curve in (*candidate, *reference))
    room = 0.05 * (max(losses) - min(losses)) or 0.05
    x = Scale(1, steps, _LEFT + 6, width - _RIGHT)
    y = Scale(min(losses) - room, max(losses) + room, _HEIGHT - _BOTTOM, _TOP)
    for mark in y.marks(4):
        yield line(_LEFT, y(mark), width - _RIGHT, y(mark), "rule")
        yield text(_LEFT - 8, y(mark) + 4, f"{mark:g}", anchor="end")
    for mark in x.marks(6):
        if mark == int(mark):
            yield text(x(mark), _HEIGHT - _BOTTOM + 16, f"{mark:g}", anchor="middle")
    yield text(0, 12, "loss")
    yield text((_LEFT + width) / 2, _HEIGHT - 4, "step", anchor="middle")
    for curves, class_ in ((reference, "reference"), (candidate, "m-line")):
        for curve in curves:
            if len(curve) > 1:
                yield path([(x(step), y(loss)) for step, loss in enumerate(curve, 1)], class_)
