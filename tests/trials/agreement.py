"""The oracle of every parallel layout: a single process with the same seed and data trains alike.

Losses alone would not do: AdamW forgets the scale of a gradient, so a sum where a mean belongs hardly shows in a few
steps. The gradients of the first step are compared too, tensor by tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from autotuner.core.choices import P2PTransport, Precision, RankPlacement
from autotuner.core.codec import dumps
from autotuner.core.layout import Layout
from autotuner.core.model import TransformerSpec
from autotuner.core.trial_spec import TrialSpec
from autotuner.core.workload import Workload
from tests.builders import cpu_layout
from tests.trials.fork_server import ForkServer
from tests.trials.specs import THREE_STEPS, WORKLOAD, trial_spec

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


_BESIDE: dict[Case, Sequence[Case]] = {}
"""The cases of a test that ranks train one after another, by each of them."""


class Trainer:
    """Trains layouts on ranks that a fork server forks, and what they are compared with once."""

    def __init__(self, fork_server: ForkServer, folder: Path) -> None:
        self._fork_server = fork_server
        self._folder = folder
        self._alone: dict[TrialSpec, Training] = {}
        self._trained: dict[TrialSpec, Training] = {}
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

        def spec(model: TransformerSpec, layout: Layout) -> TrialSpec:
            return trial_spec(layout, model=model, workload=workload, settings=THREE_STEPS)

        asked = spec(model, layout)
        if asked not in self._trained and (beside := _BESIDE.get((model, layout))):
            self.train_together([spec(*case) for case in beside])
        found = self._trained.get(asked) or self.train(asked)
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
        return _training(self._fork_server.run(spec, self._new_folder(), task="gradients").saved())

    def train_together(self, specs: Sequence[TrialSpec]) -> list[Training | None]:
        """Train layouts of as many ranks on the same ranks; those behind one that fails are left to runs of their own.

        What torch works out once per process is most of the time of so small a training.
        """
        folder = self._new_folder()
        for number, spec in enumerate(specs):
            (folder / str(number)).mkdir(parents=True)
            (folder / str(number) / "spec.json").write_text(dumps(spec))
        run = self._fork_server.run(specs[0], folder, task="trainings")
        for number, spec in enumerate(specs):
            files = [folder / str(number) / f"{rank}.pt" for rank in range(len(run.exit_codes))]
            if all(file.exists() for file in files):
                self._trained[spec] = _training([torch.load(file) for file in files])
        return [self._trained.get(spec) for spec in specs]

    def _new_folder(self) -> Path:
        self._num_runs += 1
        return self._folder / str(self._num_runs)


def _training(saved: Sequence[Any]) -> Training:
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
    """Gives a test each ``model`` and ``layout``; those of ``oracle`` to `make oracle` alone.

    The others train on the same ranks, where as many ranks train them and all layouts number them alike.
    """
    always = tuple(always)
    for case in always:
        _BESIDE.setdefault(case, [other for other in always if _share_ranks(case[1], other[1])])
    cases = [(*case, ()) for case in always] + [(*case, pytest.mark.oracle) for case in oracle]
    params = [pytest.param(model, layout, id=f"{model.name} {layout}", marks=marks) for model, layout, marks in cases]
    return pytest.mark.parametrize(("model", "layout"), params)


def _share_ranks(one: Layout, other: Layout) -> bool:
    """Delegates start before the ranks join each other, and a placement changes their numbers."""
    plain = all(
        layout.rank_placement is RankPlacement.BLOCK and layout.p2p_transport is P2PTransport.INLINE
        for layout in (one, other)
    )
    return one == other or (plain and one.world_size == other.world_size)
