"""The oracle of every parallel layout is the single process with the same seed and data.

Losses alone would not do: AdamW forgets the scale of a gradient, so a sum where a mean belongs hardly shows in five
steps. The gradients of the first step are compared too, tensor by tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from autotuner.domain.choice import AttentionKernel, PipelineSchedule, Precision, Recompute
from autotuner.domain.layout import Layout
from autotuner.domain.model import TransformerSpec
from tests.builders import cpu_layout, tiny_model
from tests.trials.conftest import Reference
from tests.trials.specs import fsdp, hsdp, trial_spec
from tests.trials.zygote import Zygote

References = Callable[[TransformerSpec, Precision], Reference]

FULL = Recompute.FULL
GPIPE = PipelineSchedule.GPIPE
FLASH = AttentionKernel.FLASH


def tensor(**changes: Any) -> dict[str, Any]:
    return {"tensor_parallel_degree": 2, **changes}


def sequence(**changes: Any) -> dict[str, Any]:
    return tensor(sequence_parallel=True, **changes)


def pipeline(**changes: Any) -> dict[str, Any]:
    return {"pipeline_parallel_degree": 2, **changes}


def ddp(**changes: Any) -> Layout:
    return cpu_layout(data_parallel_replicate_degree=2, **changes)


LAYOUTS = (
    cpu_layout(micro_batch_size=1),
    cpu_layout(micro_batch_size=8, recompute=FULL),
    cpu_layout(micro_batch_size=4, attention_kernel=FLASH),
    cpu_layout(**tensor(micro_batch_size=4)),
    cpu_layout(**sequence(micro_batch_size=4)),
    cpu_layout(**sequence(micro_batch_size=8, recompute=FULL, attention_kernel=FLASH)),
    cpu_layout(**pipeline(micro_batch_size=2)),
    cpu_layout(**pipeline(micro_batch_size=4, pipeline_schedule=GPIPE)),
    cpu_layout(**pipeline(micro_batch_size=1, recompute=FULL)),
    ddp(micro_batch_size=2),
    ddp(micro_batch_size=4, recompute=FULL),
    fsdp(2, micro_batch_size=2),
    fsdp(2, micro_batch_size=4, reshard_after_forward=True, recompute=FULL),
    hsdp(2, 2, micro_batch_size=1),
    cpu_layout(**tensor(**pipeline(micro_batch_size=4))),
    cpu_layout(**sequence(**pipeline(micro_batch_size=4, pipeline_schedule=GPIPE))),
    fsdp(2, **tensor(micro_batch_size=4)),
    fsdp(2, **sequence(micro_batch_size=4, reshard_after_forward=True, recompute=FULL)),
    ddp(**tensor(micro_batch_size=2)),
    ddp(**sequence(micro_batch_size=4, recompute=FULL)),
    fsdp(2, **pipeline(micro_batch_size=2)),
    fsdp(2, **pipeline(micro_batch_size=1, pipeline_schedule=GPIPE, recompute=FULL)),
    ddp(**pipeline(micro_batch_size=2)),
    ddp(**pipeline(micro_batch_size=1, pipeline_schedule=GPIPE)),
    hsdp(2, 2, **pipeline(micro_batch_size=1)),
    hsdp(2, 2, **tensor(micro_batch_size=2)),
    fsdp(2, **sequence(**pipeline(micro_batch_size=2))),
    ddp(**tensor(**pipeline(micro_batch_size=2))),
)

GPT_2 = tiny_model(
    name="gpt-2",
    norm="layernorm",
    gated_mlp=False,
    attention_bias="all",
    mlp_bias=True,
    num_learned_positions=64,
    num_kv_heads=4,
    tied_embeddings=True,
)

FIVE_LAYERS = tiny_model(name="five-layers", num_layers=5)
HEAD_NORMS = tiny_model(name="head-norms", qk_norm=True, attention_bias="qkv")
ODD_VOCABULARY = tiny_model(name="odd-vocabulary", vocab_size=257)

VARIANTS = (
    (FIVE_LAYERS, cpu_layout(**pipeline(micro_batch_size=4))),
    (FIVE_LAYERS, cpu_layout(pipeline_parallel_degree=3, micro_batch_size=2)),
    (HEAD_NORMS, cpu_layout(**tensor(micro_batch_size=8))),
    (HEAD_NORMS, fsdp(2, **sequence(micro_batch_size=4))),
    (HEAD_NORMS, ddp(**sequence(micro_batch_size=4))),
    (ODD_VOCABULARY, cpu_layout(**tensor(micro_batch_size=8))),
    (ODD_VOCABULARY, fsdp(2, **sequence(**pipeline(micro_batch_size=2)))),
    (GPT_2, cpu_layout(**sequence(micro_batch_size=8))),
    (GPT_2, fsdp(2, **tensor(micro_batch_size=4))),
    (GPT_2, ddp(micro_batch_size=4)),
)

HALF = (
    cpu_layout(micro_batch_size=1, precision=Precision.BF16),
    cpu_layout(**sequence(micro_batch_size=8, precision=Precision.BF16, recompute=FULL)),
    cpu_layout(**pipeline(micro_batch_size=2, precision=Precision.BF16, attention_kernel=FLASH)),
    ddp(micro_batch_size=2, precision=Precision.BF16),
    fsdp(2, micro_batch_size=2, precision=Precision.BF16),
    fsdp(2, **tensor(micro_batch_size=4, precision=Precision.BF16)),
    ddp(**tensor(**pipeline(micro_batch_size=2, precision=Precision.BF16))),
)

LOSS_TOLERANCE = 1e-4  # required of fp32; sums in another order differ by 2e-7, so a lost term would show
GRADIENT_TOLERANCE = 1e-5  # sums in another order differ by up to 1e-6 of a tensor's norm
BF16_LOSS_TOLERANCE = 1e-3  # a bf16 value is off by up to 2^-9 = 2e-3, and a loss averages over 256 tokens
BF16_GRADIENT_TOLERANCE = 3e-2  # a gradient is rounded a dozen times on its way, 2e-3 each at most


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_the_losses_of_five_steps_are_those_of_a_single_process(
    layout: Layout, zygote: Zygote, reference: References, tmp_path: Path
) -> None:
    assert_losses_agree(trial_losses(zygote, layout, tiny_model(), tmp_path), reference, layout, LOSS_TOLERANCE)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_the_gradients_of_the_first_step_are_those_of_a_single_process(
    layout: Layout, zygote: Zygote, reference: References, tmp_path: Path
) -> None:
    found = gradients(zygote, layout, tiny_model(), tmp_path)
    assert_gradients_agree(found, reference(tiny_model(), layout.precision), GRADIENT_TOLERANCE)


@pytest.mark.parametrize(("model", "layout"), VARIANTS, ids=lambda value: getattr(value, "name", str(value)))
def test_uneven_stages_uneven_vocabularies_and_other_architectures_train_alike(
    layout: Layout, model: TransformerSpec, zygote: Zygote, reference: References, tmp_path: Path
) -> None:
    losses = trial_losses(zygote, layout, model, tmp_path / "trial")
    assert losses == pytest.approx(reference(model, layout.precision).losses, rel=LOSS_TOLERANCE)
    found = gradients(zygote, layout, model, tmp_path / "gradients")
    assert_gradients_agree(found, reference(model, layout.precision), GRADIENT_TOLERANCE)


@pytest.mark.parametrize("layout", HALF, ids=str)
def test_bf16_layouts_train_alike_within_the_rounding_of_bf16(
    layout: Layout, zygote: Zygote, reference: References, tmp_path: Path
) -> None:
    losses = trial_losses(zygote, layout, tiny_model(), tmp_path / "trial")
    assert_losses_agree(losses, reference, layout, BF16_LOSS_TOLERANCE)
    found = gradients(zygote, layout, tiny_model(), tmp_path / "gradients")
    assert_gradients_agree(found, reference(tiny_model(), layout.precision), BF16_GRADIENT_TOLERANCE)


def test_the_reference_learns(reference: References) -> None:
    losses = reference(tiny_model(), Precision.FP32).losses
    assert len(losses) == 5
    assert losses[-1] < 0.99 * losses[0]  # otherwise equal losses would say nothing about the updates


def trial_losses(zygote: Zygote, layout: Layout, model: TransformerSpec, folder: Path) -> tuple[float, ...]:
    return zygote.run(trial_spec(layout, model=model), folder).measurement.losses


def gradients(zygote: Zygote, layout: Layout, model: TransformerSpec, folder: Path) -> dict[str, Tensor]:
    run = zygote.run(trial_spec(layout, model=model), folder, task="gradients")
    assert set(run.exit_codes) == {0}, run.logs
    found: dict[str, Tensor] = {}
    for rank in range(layout.world_size):
        found |= torch.load(folder / f"{rank}.pt")
    return found


def assert_losses_agree(losses: tuple[float, ...], reference: References, layout: Layout, tolerance: float) -> None:
    assert losses == pytest.approx(reference(tiny_model(), layout.precision).losses, rel=tolerance)


def assert_gradients_agree(found: dict[str, Tensor], expected: Reference, tolerance: float) -> None:
    """Per tensor, relative to its norm; one that is zero but for rounding is judged by the others (a key's bias)."""
    assert set(found) == set(expected.gradients)
    scale = max(float(tensor.float().norm()) for tensor in expected.gradients.values())
    for name, gradient in expected.gradients.items():
        distance = float((found[name].float() - gradient.float()).norm())
        assert distance <= tolerance * (float(gradient.float().norm()) + 1e-3 * scale), name
