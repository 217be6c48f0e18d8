"""The oracle of every parallel layout: a single process with the same seed and data trains alike.

Losses alone would not do: AdamW forgets the scale of a gradient, so a sum where a mean belongs hardly shows in a few
steps. The gradients of the first step are compared too, tensor by tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from torch import Tensor

from autotuner.core.choices import Precision
from autotuner.core.layout import Layout
from autotuner.core.model import TransformerSpec
from autotuner.core.trial_spec import TrialSpec
from autotuner.core.workload import Workload
from tests.builders import cpu_layout
from tests.trials.specs import THREE_STEPS, WORKLOAD, trial_spec
from tests.trials.zygote import Zygote

Case = tuple[TransformerSpec, Layout]


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What a training was seen to do."""

    losses: tuple[float, ...]
    """By step."""
    gradients: Mapping[str, Tensor]
    """Gradients of the first step; whole tensors, by their names in the whole model."""
    gradient_norms: tuple[float, ...]
    """Norm of the whole model's first gradient, by the rank that computed it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """How far two trainings may be apart."""

    loss: float
    """Difference of a step's loss, relative."""
    gradients: float
    """Distance of a tensor, relative to its norm."""
    norm: float
    """Difference of the norm of the whole model's gradient, relative."""


TOLERANCES = {
    # Sums in another order differ by 2e-7 of a loss, so a lost term would show, and by up to 1e-6 of a tensor's norm.
    # They cancel in the norm of all, which is off by 1e-8, and by 3e-7 where the smallest tensor is counted twice.
    Precision.FP32: Tolerance(loss=1e-4, gradients=1e-5, norm=1e-7),
    # A bf16 value is off by up to 2^-9 = 2e-3. A loss averages over 256 tokens; a gradient is rounded a dozen times.
    Precision.BF16: Tolerance(loss=1e-3, gradients=3e-2, norm=1e-2),
}


class Trainer:
    """Trains layouts on ranks that a zygote forks, and what they are compared with once."""

    def __init__(self, zygote: Zygote, folder: Path) -> None:
        self._zygote = zygote
        self._folder = folder
        self._alone: dict[TrialSpec, Training] = {}
        self._num_runs = 0

    def assert_alike(
        self,
        layout: Layout,
        model: TransformerSpec,
        tolerance: Tolerance | None = None,
        *,
        workload: Workload = WORKLOAD,
    ) -> None:
        """The layout trains as a single process does, within its precision's tolerance unless another is given."""
        found = self.train(trial_spec(layout, model=model, workload=workload, settings=THREE_STEPS))
        assert_alike(found, self.alone(layout, model, workload=workload), tolerance or TOLERANCES[layout.precision])

    def assert_equal(
        self, found: Training, layout: Layout, model: TransformerSpec, tolerance: Tolerance | None = None
    ) -> None:
        """The layout trained as a single process does."""
        assert_alike(found, self.alone(layout, model), tolerance or TOLERANCES[layout.precision])

    def alone(self, layout: Layout, model: TransformerSpec, *, workload: Workload = WORKLOAD) -> Training:
        """What a single process computes in the layout's number format, with all sequences in one micro-batch."""
        whole = cpu_layout(micro_batch_size=8, precision=layout.precision, fp8_recipe=layout.fp8_recipe)
        spec = trial_spec(whole, model=model, workload=workload)
        if spec not in self._alone:
            self._alone[spec] = self.train(spec)
        return self._alone[spec]

    def train(self, spec: TrialSpec) -> Training:
        """What all ranks of the layout compute together, in one run."""
        self._num_runs += 1
        saved = self._zygote.run(spec, self._folder / str(self._num_runs), task="training").saved()
        losses = {tuple(of_rank["losses"]) for of_rank in saved}
        assert len(losses) == 1, losses
        return Training(
            losses=losses.pop(),
            gradients={name: gradient for of_rank in saved for name, gradient in of_rank["gradients"].items()},
            gradient_norms=tuple(of_rank["norm"] for of_rank in saved),
        )


def assert_alike(found: Training, expected: Training, tolerance: Tolerance) -> None:
    """A tensor is judged by its norm; one that is zero but for rounding (a key's bias) by that of the largest."""
    losses = expected.losses[: len(found.losses)]
    assert found.losses == pytest.approx(losses, rel=tolerance.loss), (found.losses, losses)
    assert set(found.gradients) == set(expected.gradients)
    scale = max(_norm(gradient) for gradient in expected.gradients.values())
    for name, gradient in expected.gradients.items():
        distance = _norm(found.gradients[name].float() - gradient.float())
        assert distance <= tolerance.gradients * (_norm(gradient) + 1e-3 * scale), name
    norms = found.gradient_norms
    assert norms == pytest.approx(expected.gradient_norms * len(norms), rel=tolerance.norm), (
        norms,
        expected.gradient_norms,
    )


def _norm(tensor: Tensor) -> float:
    return float(tensor.float().norm())


def for_each(always: Iterable[Case], *, oracle: Iterable[Case] = ()) -> pytest.MarkDecorator:
    """Gives a test each ``model`` and ``layout``; those of ``oracle`` to `make oracle` alone."""
    cases = [(*case, ()) for case in always] + [(*case, pytest.mark.oracle) for case in oracle]
    params = [pytest.param(model, layout, id=f"{model.name} {layout}", marks=marks) for model, layout, marks in cases]
    return pytest.mark.parametrize(("model", "layout"), params)
