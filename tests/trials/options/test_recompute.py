from __future__ import annotations

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from autotuner.core.choices import AttentionKernel, Recompute
from autotuner.core.layout import Layout
from autotuner.core.model import TransformerSpec
from tests.builders import cpu_layout, tiny_model
from tests.trials.agreement import Trainer, for_each
from tests.trials.model.test_decoder import SEQ_LEN, decoder, tokens
from tests.trials.specs import PIPELINE, SEQUENCE, TENSOR, ddp, fsdp
from trials.options.recompute import recomputed

FULL, SELECTIVE = Recompute.FULL, Recompute.SELECTIVE
FLASH = AttentionKernel.FLASH
SPEC = tiny_model()

LAYOUTS = (
    (SPEC, cpu_layout(micro_batch_size=4, recompute=SELECTIVE, recompute_every=2)),
    (SPEC, cpu_layout(**SEQUENCE, micro_batch_size=4, recompute=SELECTIVE, attention_kernel=FLASH)),
)
MORE = (
    (SPEC, fsdp(2, **TENSOR, micro_batch_size=4, recompute=SELECTIVE, reshard_after_forward=True)),
    (SPEC, ddp(2, micro_batch_size=2, recompute=SELECTIVE)),
    (SPEC, cpu_layout(**PIPELINE, micro_batch_size=2, recompute=SELECTIVE)),
)


@for_each(LAYOUTS, oracle=MORE)
def test_selective_recomputation_trains_like_a_single_process_without_any(
    model: TransformerSpec, layout: Layout, trainer: Trainer
) -> None:
    trainer.assert_alike(layout, model)


def flop(recompute: Recompute, every: int = 1, backend: SDPBackend = SDPBackend.MATH) -> int:
    """FLOP of a step of one sequence, by torch's count."""
    model = decoder(SPEC)
    layout = cpu_layout(recompute=recompute, recompute_every=every)
    for index_in_stage, (index, layer) in enumerate(list(model.layers.items())):
        model.layers[index] = recomputed(layer, layout, index_in_stage=index_in_stage)
    with FlopCounterMode(display=False, custom_mapping=CPU_FLASH) as counter, sdpa_kernel(backend):
        model(tokens(SPEC, 1)).sum().backward()
    return int(counter.get_total_flops())


CPU_FLASH = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: lambda *args, **kwargs: 1}
"""torch has no formula for the CPU's fused kernel; here its calls are counted."""

CORE_FLOP = 2 * 2 * SEQ_LEN * SEQ_LEN * SPEC.query_size
"""Two products of batches of matrices: queries with keys, and scores with values."""


def test_selective_recomputation_computes_the_attention_core_again_and_no_matrix_product() -> None:
    assert flop(SELECTIVE) - flop(Recompute.NONE) == SPEC.num_layers * CORE_FLOP


def test_every_other_layer_recomputes_half_as_much() -> None:
    assert flop(SELECTIVE, every=2) - flop(Recompute.NONE) == SPEC.num_layers // 2 * CORE_FLOP


def test_full_recomputation_computes_all_but_the_last_product_again() -> None:
    linear = sum(p.numel() for name, p in decoder(SPEC).layers["0"].named_parameters() if "norm" not in name)
    last = SPEC.ffn_size * SPEC.hidden_size  # torch stops where nothing more is needed
    layer_flop = 2 * SEQ_LEN * (linear - last) + CORE_FLOP
    assert flop(FULL) - flop(Recompute.NONE) == SPEC.num_layers * layer_flop


def test_a_fused_attention_core_is_not_computed_again() -> None:
    flash = SDPBackend.FLASH_ATTENTION
    assert flop(SELECTIVE, backend=flash) == flop(Recompute.NONE, backend=flash)
    assert flop(FULL, backend=flash) > flop(Recompute.NONE, backend=flash)
