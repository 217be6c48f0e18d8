from __future__ import annotations

import pytest
import torch

from autotuner.core.layout import Layout
from autotuner.core.model import Norm, TransformerSpec
from tests.builders import cpu_layout, tiny_model
from tests.trials.agreement import Trainer, for_each
from tests.trials.specs import GPT_2, HEAD_NORMS, SEQUENCE, TENSOR, fsdp
from trials.model.norm import norm

WIDTH = 64
NORMS: tuple[Norm, ...] = ("rmsnorm", "layernorm", "layernorm_without_bias", "layernorm_without_weights")
SPECS = tuple(tiny_model(norm=kind) for kind in NORMS)
PLAIN_NORM = (tiny_model(norm="layernorm_without_weights"), fsdp(2, **SEQUENCE, micro_batch_size=4, fused_norm=False))
RMS_NORM = (HEAD_NORMS, cpu_layout(**SEQUENCE, micro_batch_size=4, fused_norm=False))
LAYER_NORM = (GPT_2, fsdp(2, **TENSOR, micro_batch_size=4, fused_norm=False))


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.norm)
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [
        (torch.float32, 1e-6),  # a few roundings of 6e-8
        (torch.bfloat16, 2**-7),  # the two may round to neighbouring bf16 values, which are 2^-7 apart
    ],
)
def test_a_composed_norm_computes_what_the_fused_one_does(
    spec: TransformerSpec, dtype: torch.dtype, tolerance: float
) -> None:
    x = 3 * torch.randn(5, WIDTH, generator=torch.Generator().manual_seed(0)) + 1
    fused, composed = (norm(spec, WIDTH, fused=is_fused).to(dtype) for is_fused in (True, False))
    with torch.no_grad():
        for parameter in fused.parameters():
            parameter.normal_(1.0, 0.5, generator=torch.Generator().manual_seed(1))
    composed.load_state_dict(fused.state_dict())
    torch.testing.assert_close(composed(x.to(dtype)), fused(x.to(dtype)), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.norm)
def test_both_norms_have_the_same_parameters_by_the_same_names(spec: TransformerSpec) -> None:
    fused, composed = (dict(norm(spec, WIDTH, fused=is_fused).named_parameters()) for is_fused in (True, False))
    assert {name: p.shape for name, p in fused.items()} == {name: p.shape for name, p in composed.items()}


@for_each([RMS_NORM], oracle=[LAYER_NORM, PLAIN_NORM])
def test_composed_norms_train_like_fused_ones_of_a_single_process(
    model: TransformerSpec, layout: Layout, trainer: Trainer
) -> None:
    trainer.assert_alike(layout, model)
