from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from autotuner.core.choices import AttentionKernel, Recompute
from autotuner.core.layout import Layout
from autotuner.core.model import TransformerSpec
from autotuner.core.workload import Workload
from tests.builders import cpu_layout, tiny_model
from tests.trials.agreement import Trainer, for_each
from tests.trials.specs import ONE_STEP, PIPELINE, SEQUENCE, TENSOR, fsdp, trial_spec
from trials.options.offload import HostMemory

CPU = torch.device("cpu")
LONG = Workload(seq_len=2048, global_batch_size=4)
"""Long enough for what layers save of two sequences to be worth sending: a hidden state is 1 MiB."""
FLASH = {"attention_kernel": AttentionKernel.FLASH}


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


def test_what_several_operations_save_goes_once() -> None:
    memory, x = HostMemory(CPU, smallest_bytes=0), torch.ones(4, 8, requires_grad=True)
    weights = [nn.Parameter(torch.ones(8, 8)) for _ in range(3)]
    with memory.keeping(except_for=weights):
        _ = [x @ weight for weight in weights]
    assert memory.num_sent == 1


def test_what_was_changed_in_place_is_another_tensor() -> None:
    memory, x = HostMemory(CPU, smallest_bytes=0), torch.ones(4, 8)
    weight = nn.Parameter(torch.full((8, 8), 2.0))
    with memory.keeping(except_for=[weight]):
        first = x @ weight
        x.add_(1.0)
        second = x @ weight
    (first + second).sum().backward()  # type: ignore[no-untyped-call]  # torch's own
    assert weight.grad is not None
    assert torch.equal(weight.grad, torch.full((8, 8), 4 * 1.0 + 4 * 2.0))  # autograd alone would refuse


TWO_LAYERS = tiny_model(name="two-layers", num_layers=2)

LAYOUTS = (
    (TWO_LAYERS, cpu_layout(**SEQUENCE, **FLASH, micro_batch_size=2)),
    (TWO_LAYERS, cpu_layout(**PIPELINE, **FLASH, micro_batch_size=2, recompute=Recompute.SELECTIVE)),
)
MORE = (
    (TWO_LAYERS, cpu_layout(**TENSOR, **FLASH, micro_batch_size=2, recompute=Recompute.FULL)),
    (TWO_LAYERS, fsdp(2, **FLASH, micro_batch_size=2)),
)


@for_each(LAYOUTS, oracle=MORE)
def test_parallel_layers_compute_the_same_gradients_with_the_hosts_memory(
    model: TransformerSpec, layout: Layout, trainer: Trainer
) -> None:
    """On CPUs the trial is refused, because there is nothing to gain; its gradients can be computed all the same."""
    spec = trial_spec(layout, model=model, workload=LONG, settings=ONE_STEP)
    offloading = replace(spec, layout=replace(layout, offload_activations=True))
    kept, sent = (trainer.train(each).gradients for each in (spec, offloading))
    assert all(torch.equal(kept[name], sent[name]) for name in kept)
