"""Two layers of one shape make one graph to compile; the compiler keeps its results for the next run of the tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from autotuner.core.choices import AttentionKernel, Recompute
from autotuner.core.layout import Layout
from autotuner.core.model import TransformerSpec
from tests.builders import cpu_layout, tiny_model
from tests.patience import COMPILING_PATIENCE_S
from tests.trials.agreement import Trainer, for_each
from tests.trials.specs import TENSOR, fsdp
from tests.trials.zygote import Zygote

TWO_LAYERS = tiny_model(name="two-layers", num_layers=2)
FULL, SELECTIVE = Recompute.FULL, Recompute.SELECTIVE
FLASH = AttentionKernel.FLASH

LAYOUTS = (
    # the first layer is fed by the embedding's DTensor, whose gradient is what the compiler once lost
    (TWO_LAYERS, cpu_layout(**TENSOR, micro_batch_size=8, compiled=True, recompute=SELECTIVE)),
    (TWO_LAYERS, fsdp(2, micro_batch_size=4, compiled=True, recompute=FULL, attention_kernel=FLASH)),
)


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trainer]:
    """One that waits longer: the compiler takes 10 s on a quiet core, and more than 90 s were seen on a busy one."""
    zygote = Zygote(deadline_s=COMPILING_PATIENCE_S)
    yield Trainer(zygote, tmp_path_factory.mktemp("compiled"))
    zygote.close()


@for_each((), oracle=LAYOUTS)
def test_compiled_layers_train_like_those_of_a_single_process(
    model: TransformerSpec, layout: Layout, trainer: Trainer
) -> None:
    trainer.assert_alike(layout, model)


COUNTING = """
import torch
from trials.options.compile import compile_time_s
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
