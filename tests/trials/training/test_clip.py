"""The gradient's norm, and clipping by it, against the single process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from autotuner.domain.choice import PipelineSchedule
from autotuner.domain.layout import Layout
from autotuner.domain.model import TransformerSpec
from autotuner.domain.trial import TrialSettings
from tests.builders import cpu_layout, tiny_model
from tests.trials.specs import fsdp, hsdp, trial_spec, zero
from tests.trials.zygote import Zygote
from trials.training.clip import clip

TIED = tiny_model(name="tied", tied_embeddings=True)
TENSOR = {"tensor_parallel_degree": 2, "micro_batch_size": 2}
SEQUENCE = {"sequence_parallel": True, **TENSOR}
PIPELINE = {"pipeline_parallel_degree": 2, "micro_batch_size": 2}
ZBV = {"pipeline_schedule": PipelineSchedule.ZBV, "virtual_stages_per_rank": 2, **PIPELINE}

CASES = (
    (tiny_model(), cpu_layout(data_parallel_replicate_degree=2)),
    (tiny_model(), cpu_layout(**TENSOR)),
    (tiny_model(), cpu_layout(**SEQUENCE)),
    (tiny_model(), cpu_layout(**PIPELINE)),
    (tiny_model(), fsdp(2, **TENSOR)),
    (tiny_model(), hsdp(2, 2)),
    (tiny_model(), zero(2, **TENSOR)),
    (tiny_model(), zero(2, data_parallel_replicate_degree=2)),
    (tiny_model(), cpu_layout(data_parallel_replicate_degree=2, **SEQUENCE)),
    (tiny_model(), fsdp(2, **{**SEQUENCE, **PIPELINE})),
    (tiny_model(), zero(2, **{**TENSOR, **ZBV})),
    (TIED, cpu_layout(**PIPELINE)),
    (TIED, zero(2, **ZBV)),
)

MAX_NORM = 0.1
"""Far below the norm of the first steps, some 2: every step is clipped."""

NORM_TOLERANCE = 1e-6  # sums of squares in fp64, of gradients whose sums in another order differ by as much

Norm = Callable[[TransformerSpec, Layout], list[float]]


@pytest.fixture(scope="module")
def norms(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Norm:
    """Norm of the first step's gradient on every rank."""

    def run(model: TransformerSpec, layout: Layout) -> list[float]:
        folder = tmp_path_factory.mktemp("norms")
        outcome = zygote.run(trial_spec(layout, model=model), folder, task="gradients")
        assert set(outcome.exit_codes) == {0}, outcome.logs
        return [float(torch.load(folder / f"norm{rank}.pt")) for rank in range(layout.world_size)]

    return run


@pytest.mark.parametrize(("model", "layout"), CASES, ids=lambda value: getattr(value, "name", str(value)))
def test_the_norm_counts_every_element_of_the_model_once(model: TransformerSpec, layout: Layout, norms: Norm) -> None:
    (expected,) = norms(model, cpu_layout(micro_batch_size=8))
    assert norms(model, layout) == pytest.approx([expected] * layout.world_size, rel=NORM_TOLERANCE)


@pytest.mark.parametrize("layout", [fsdp(2, **{**SEQUENCE, **PIPELINE}), zero(2, **ZBV)], ids=str)
def test_a_clipped_run_has_the_losses_of_a_clipped_single_process(
    layout: Layout, zygote: Zygote, tmp_path: Path
) -> None:
    whole = losses(zygote, cpu_layout(micro_batch_size=8), tmp_path / "whole", MAX_NORM)
    assert losses(zygote, layout, tmp_path / "spread", MAX_NORM) == pytest.approx(whole, rel=1e-4)
    assert whole != losses(zygote, cpu_layout(micro_batch_size=8), tmp_path / "free", None)


def losses(zygote: Zygote, layout: Layout, folder: Path, max_norm: float | None) -> tuple[float, ...]:
    settings = TrialSettings(
        warmup_steps=1,
        max_warmup_steps=1,
        measured_steps=4,
        max_measured_steps=4,
        profiled_steps=0,
        max_gradient_norm=max_norm,
    )
    return zygote.run(trial_spec(layout, settings=settings), folder).measurement.losses


def clipped(max_norm: float) -> list[Tensor]:
    gradients = [torch.tensor([3.0]), torch.tensor([[4.0]])]
    clip(gradients, torch.tensor(5.0, dtype=torch.float64), max_norm)
    return gradients


def test_gradients_above_the_norm_are_scaled_down_to_it() -> None:
    assert [float(gradient) for gradient in clipped(1.0)] == pytest.approx([0.6, 0.8])


def test_gradients_below_the_norm_stay_as_they_are() -> None:
    assert [float(gradient) for gradient in clipped(6.0)] == [3.0, 4.0]
