from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from autotuner.core.choices import AttentionKernel, Fp8Recipe, Precision, Recompute
from autotuner.core.layout import Layout
from autotuner.core.model import TransformerSpec
from autotuner.core.workload import Workload
from autotuner.trials.options import HostMemory, use_fp8
from tests.builders import cpu_layout, present, tiny_model
from tests.trials.agreement import Tolerance, Trainer, assert_alike, for_each
from tests.trials.specs import ONE_STEP, PIPELINE, SEQUENCE, TENSOR, fsdp, trial_spec
from tests.trials.test_model import decoder

# ---------------------------------------------------------------- compile
TWO_LAYERS = tiny_model(name="two-layers", num_layers=2)
FULL, SELECTIVE = Recompute.FULL, Recompute.SELECTIVE
FLASH = AttentionKernel.FLASH

COUNTING = """
import torch
from autotuner.trials.options import compile_time_s
x = torch.ones(4, requires_grad=True)
(2 * x).sum().backward()
assert compile_time_s() == 0.0
double = torch.compile(lambda x: 2 * x, backend="aot_eager")
assert compile_time_s() == 0.0
double(x).sum().backward()
once = compile_time_s()
assert once > 0.0
double(x).sum().backward()
assert compile_time_s() == once
"""


@pytest.mark.oracle  # compiles
def test_only_compilation_counts_and_only_once() -> None:
    # in a process of its own: another test of this one may have compiled something
    subprocess.run([sys.executable, "-c", COUNTING], check=True, timeout=100)


# ---------------------------------------------------------------- fp8
EMULATED = Precision.FP8_EMULATED
TENSORWISE: dict[str, Any] = {"precision": EMULATED}
ROWWISE: dict[str, Any] = {"precision": EMULATED, "fp8_recipe": Fp8Recipe.ROWWISE}
BF16: dict[str, Any] = {"precision": Precision.BF16}

ROUNDING = 2**-4
"""Relative error of a value rounded to e4m3, which keeps 3 bits after the leading one: half of the last one's worth."""

LOSS_TOLERANCE = 2e-3
"""Seen: 5e-4. Errors of single products, up to 2^-4, have either sign and average out over 256 tokens of a loss."""

SPLIT = Tolerance(loss=LOSS_TOLERANCE, gradients=0.2, norm=0.05)
"""Seen: 0.13. Values that are scaled and summed in other groups are rounded to other neighbours, three times on the
way to a gradient: two factors forward, and the gradient itself to e5m2 (2^-3) or e4m3 (2^-4)."""
WHOLE = Tolerance(loss=LOSS_TOLERANCE, gradients=1e-2, norm=1e-2)
"""Seen: 4e-3. A row's scale is its own, so only the columns of a weight's gradient meet other tokens in a micro-batch
of another size."""

TINY = tiny_model()
FP8_SELECTIVE = {"recompute": Recompute.SELECTIVE}


@for_each(
    [(TWO_LAYERS, cpu_layout(**PIPELINE, **ROWWISE, **FP8_SELECTIVE, micro_batch_size=4))],
    oracle=[(TINY, fsdp(2, **ROWWISE, micro_batch_size=4))],
)
def test_emulated_fp8_on_whole_matrices_trains_like_a_single_process_in_it(
    model: TransformerSpec, layout: Layout, trainer: Trainer
) -> None:
    trainer.assert_alike(layout, model, WHOLE)


@for_each(
    [(TWO_LAYERS, cpu_layout(**SEQUENCE, **ROWWISE, micro_batch_size=8))],
    oracle=[(TINY, cpu_layout(**TENSOR, **TENSORWISE, **FP8_SELECTIVE, micro_batch_size=8))],
)
def test_emulated_fp8_on_split_matrices_trains_like_a_single_process_in_it(
    model: TransformerSpec, layout: Layout, trainer: Trainer
) -> None:
    trainer.assert_alike(layout, model, SPLIT)


def test_fp8_loses_little_beside_bf16_and_something(trainer: Trainer) -> None:
    rounded, exact = (trainer.alone(cpu_layout(**choice), TWO_LAYERS) for choice in (ROWWISE, BF16))
    assert_alike(rounded, exact, SPLIT)
    assert rounded.losses != pytest.approx(exact.losses, rel=1e-9)


def linears(layer: nn.Module) -> dict[str, nn.Linear]:
    return {name: module for name, module in layer.named_modules() if isinstance(module, nn.Linear)}


@pytest.mark.parametrize("recipe", [Fp8Recipe.TENSORWISE, Fp8Recipe.ROWWISE], ids=str)
def test_every_product_of_a_layer_rounds_its_factors(recipe: Fp8Recipe) -> None:
    exact, rounded = decoder(tiny_model()).layers["0"], decoder(tiny_model()).layers["0"]
    use_fp8(rounded, cpu_layout(precision=EMULATED, fp8_recipe=recipe))
    assert dict(exact.named_parameters()).keys() == dict(rounded.named_parameters()).keys()
    for name, module in linears(exact).items():
        x = torch.randn(64, module.in_features, generator=torch.Generator().manual_seed(0))
        error = relative_error(linears(rounded)[name](x), module(x))
        assert 0.0 < error < 2 * ROUNDING, name  # each of two factors is off by so much at most


def relative_error(found: Tensor, exact: Tensor) -> float:
    return float(((found - exact).norm() / exact.norm()).detach())


# ---------------------------------------------------------------- offload
CPU = torch.device("cpu")
LONG = Workload(seq_len=2048, global_batch_size=4)
"""Long enough for what layers save of two sequences to be worth sending: a hidden state is 1 MiB."""
OFFLOAD_FLASH = {"attention_kernel": AttentionKernel.FLASH}


def loss_of(layer: nn.Linear, x: Tensor) -> Tensor:
    return functional.softmax(layer(x).exp(), dim=-1).square().sum()


def gradients(memory: HostMemory | None) -> tuple[Tensor, ...]:
    """Gradients of a linear layer between functions that save their inputs and outputs."""
    torch.manual_seed(0)
    layer, x = nn.Linear(8, 8), torch.randn(4, 8, requires_grad=True)
    if memory is None:
        loss = loss_of(layer, x)
    else:
        with memory.keeping(except_for=layer.parameters()):
            loss = loss_of(layer, x)
    loss.backward()  # type: ignore[no-untyped-call]  # torch's own
    return tuple(t.grad for t in (x, *layer.parameters()) if t.grad is not None)


def test_gradients_from_the_hosts_memory_are_the_same_to_the_bit() -> None:
    kept = gradients(None)
    sent = gradients(HostMemory(CPU, smallest_bytes=0))
    assert len(kept) == 3
    assert all(map(torch.equal, kept, sent))


def test_small_tensors_stay() -> None:
    memory = HostMemory(CPU, smallest_bytes=4 * 8 * 4 + 1)
    gradients(memory)
    assert memory.num_sent == 0


def test_parameters_and_their_views_stay() -> None:
    memory, weight = HostMemory(CPU, smallest_bytes=0), nn.Parameter(torch.ones(8, 8))
    x = torch.ones(4, 8)
    with memory.keeping(except_for=[weight]):
        _ = x @ weight.T
    assert memory.num_sent == 1  # the input, for the weight's gradient


def test_a_tensor_that_several_operations_save_is_offloaded_once() -> None:
    memory, x = HostMemory(CPU, smallest_bytes=0), torch.ones(4, 8, requires_grad=True)
    weights = [nn.Parameter(torch.ones(8, 8)) for _ in range(3)]
    with memory.keeping(except_for=weights):
        _ = [x @ weight for weight in weights]
    assert memory.num_sent == 1


def test_a_tensor_changed_in_place_counts_as_another_one() -> None:
    memory, x = HostMemory(CPU, smallest_bytes=0), torch.ones(4, 8)
    weight = nn.Parameter(torch.full((8, 8), 2.0))
    with memory.keeping(except_for=[weight]):
        first = x @ weight
        x.add_(1.0)
        second = x @ weight
    (first + second).sum().backward()  # type: ignore[no-untyped-call]  # torch's own
    assert weight.grad is not None
    assert torch.equal(weight.grad, torch.full((8, 8), 4 * 1.0 + 4 * 2.0))  # autograd alone would refuse


OFFLOAD_LAYOUTS = (
    (TWO_LAYERS, cpu_layout(**SEQUENCE, **OFFLOAD_FLASH, micro_batch_size=2)),
    (TWO_LAYERS, cpu_layout(**PIPELINE, **OFFLOAD_FLASH, micro_batch_size=2, recompute=Recompute.SELECTIVE)),
)
MORE = (
    (TWO_LAYERS, cpu_layout(**TENSOR, **OFFLOAD_FLASH, micro_batch_size=2, recompute=Recompute.FULL)),
    (TWO_LAYERS, fsdp(2, **OFFLOAD_FLASH, micro_batch_size=2)),
)


@for_each(OFFLOAD_LAYOUTS, oracle=MORE)
def test_parallel_layers_compute_the_same_gradients_with_the_hosts_memory(
    model: TransformerSpec, layout: Layout, trainer: Trainer
) -> None:
    """On CPUs the trial is refused, because there is nothing to gain; its gradients can be computed all the same."""
    spec = trial_spec(layout, model=model, workload=LONG, settings=ONE_STEP)
    offloading = replace(spec, layout=replace(layout, offload_activations=True))
    kept, sent = map(present, trainer.train_together([spec, offloading]))
    assert all(torch.equal(gradient, sent.gradients[name]) for name, gradient in kept.gradients.items())


# ---------------------------------------------------------------- recompute
RECOMPUTE_LAYOUTS = (
    (TWO_LAYERS, cpu_layout(micro_batch_size=4, recompute=SELECTIVE, recompute_every=2)),
    (TWO_LAYERS, cpu_layout(**SEQUENCE, micro_batch_size=4, recompute=SELECTIVE, attention_kernel=FLASH)),
)


@for_each(RECOMPUTE_LAYOUTS)
def test_selective_recomputation_trains_like_a_single_process_without_any(
    model: TransformerSpec, layout: Layout, trainer: Trainer
) -> None:
    trainer.assert_alike(layout, model)
