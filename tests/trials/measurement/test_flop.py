"""The FLOP formulas of a trial against torch's own count of the operations that really ran."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from autotuner.core.choices import AttentionKernel, PipelineSchedule, Recompute
from autotuner.core.layout import Layout
from autotuner.core.measuring import model_flop, recomputed_flop
from autotuner.core.trial_spec import TrialSpec
from tests.builders import cpu_layout, tiny_model
from tests.trials.specs import trial_spec
from trials.model.attention import kernel_context
from trials.model.decoder import Decoder, materialise
from trials.options import recomputed

FLASH, MATH = AttentionKernel.FLASH, AttentionKernel.MATH


def flash_forward(q: Any, k: Any, v: Any, *_: object, **__: object) -> int:
    return int(sdpa_flop_count(q, k, v))  # type: ignore[no-untyped-call]


def flash_backward(grad: Any, q: Any, k: Any, v: Any, *_: object, **__: object) -> int:
    return int(sdpa_backward_flop_count(grad, q, k, v))  # type: ignore[no-untyped-call]


MISSING_FORMULAS = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: flash_forward,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: flash_backward,
}
"""torch counts the flash kernel of a GPU; that of a CPU it would count as nothing."""


def counted(spec: TrialSpec) -> int:
    """What a step of the whole model runs, with the layers wrapped as the layout says."""
    with torch.device("meta"):
        model = Decoder(spec.model, seq_len=spec.workload.seq_len, layers=range(spec.model.num_layers))
    for name, child in model.named_children():
        materialise(child, name, seed=0, device=torch.device("cpu"), dtype=torch.float32)
    for index_in_stage, (index, layer) in enumerate(list(model.layers.items())):
        model.layers[index] = recomputed(layer, spec.layout, index_in_stage=index_in_stage)
    tokens = torch.zeros(spec.workload.global_batch_size, spec.workload.seq_len, dtype=torch.long)
    with FlopCounterMode(display=False, custom_mapping=MISSING_FORMULAS) as counter, kernel_context(spec.layout):
        model(tokens).sum().backward()
    return int(counter.get_total_flops())


RECOMPUTATION: tuple[dict[str, Any], ...] = (
    {},
    {"recompute": Recompute.SELECTIVE},
    {"recompute": Recompute.FULL},
    {"recompute": Recompute.FULL, "recompute_every": 2},
    {"recompute": Recompute.FULL, "recompute_every": 3},
)


@pytest.mark.parametrize("choice", RECOMPUTATION, ids=str)
def test_hardware_flop_are_exactly_those_that_run_with_the_math_kernel(choice: dict[str, Any]) -> None:
    spec = trial_spec(cpu_layout(micro_batch_size=8, attention_kernel=MATH, **choice))
    assert counted(spec) == model_flop(spec) + recomputed_flop(spec)


@pytest.mark.parametrize("choice", RECOMPUTATION, ids=str)
def test_the_flash_kernel_runs_one_product_more_in_its_backward_pass(choice: dict[str, Any]) -> None:
    """It computes the scores again (five products instead of four), which neither MFU nor HFU counts."""
    spec = trial_spec(cpu_layout(micro_batch_size=8, attention_kernel=FLASH, **choice))
    scores_again = spec.model.attention_flop_per_token(spec.workload.seq_len) // 2 * spec.workload.tokens_per_step
    assert counted(spec) == model_flop(spec) + recomputed_flop(spec) + scores_again


@pytest.mark.parametrize(
    "shape", [{"gated_mlp": False}, {"num_kv_heads": 4, "head_dim": 24}, {"num_layers": 7}], ids=str
)
def test_full_recomputation_leaves_out_the_last_product_of_a_layer_of_any_shape(shape: dict[str, Any]) -> None:
    layout = cpu_layout(micro_batch_size=8, recompute=Recompute.FULL)
    spec = trial_spec(layout, model=tiny_model(**shape))
    assert counted(spec) == model_flop(spec) + recomputed_flop(spec)


def test_every_second_layer_is_counted_from_the_start_of_each_stage() -> None:
    """Seven layers in stages of 2, 2, 2 and 1 recompute 4 of them; in one stage they would also be 4, in two 2 + 2."""
    model = tiny_model(num_layers=7)

    def flop(**changes: Any) -> int:
        layout = cpu_layout(micro_batch_size=1, recompute=Recompute.FULL, **changes)
        return recomputed_flop(trial_spec(layout, model=model))

    layer = flop() // 7
    interleaved = PipelineSchedule.INTERLEAVED_1F1B
    stages: dict[str, Any] = {"pipeline_parallel_degree": 2, "virtual_stages_per_rank": 2}
    assert flop(recompute_every=2) == 4 * layer
    assert flop(recompute_every=3) == 3 * layer
    assert flop(recompute_every=3, pipeline_schedule=interleaved, **stages) == 4 * layer


def test_a_layout_that_recomputes_nothing_has_no_flop_to_add() -> None:
    assert recomputed_flop(trial_spec(Layout())) == 0
