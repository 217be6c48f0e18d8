"""torchtitan 0.3's configuration: written as a Python module, and read from one, and from flags, without running it."""

from __future__ import annotations

import ast
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.core.choices import AttentionKernel, Fp8Recipe
from autotuner.core.errors import InvalidInput
from autotuner.core.layout import Layout
from autotuner.export.formats import export, read, recognised
from autotuner.export.torchtitan.catalog import base_of, flavors, presets
from autotuner.export.torchtitan.read import TORCHTITAN_CONFIG
from tests.builders import big_job, h100, h100_cluster
from tests.unit.export.sayable import in_its_words, sayable

EVERY_FORMAT = h100(attention_kernels=tuple(AttentionKernel), fp8_recipes=tuple(Fp8Recipe), fp4_flop_per_s=4e15)
JOB = replace(big_job(), cluster=h100_cluster(8, accelerator=EVERY_FORMAT))


@given(sayable(TORCHTITAN_CONFIG, JOB))
def test_what_torchtitan_can_say_is_read_back_as_it_was(layout: Layout) -> None:
    exported = export(JOB, layout, "torchtitan-config")
    assert exported.unsaid == ()
    text = exported.files[0].text
    ast.parse(text)
    assert recognised(text) is TORCHTITAN_CONFIG
    back = read(text, num_ranks=layout.world_size)
    assert in_its_words(TORCHTITAN_CONFIG, back.layout) == in_its_words(TORCHTITAN_CONFIG, layout)
    assert (back.seq_len, back.global_batch_size) == (8192, 1024)
    assert back.model == replace(JOB.model, name="llama-3.1-70b")


def test_every_flavor_has_a_function_to_start_from() -> None:
    for flavor, _ in flavors("0.3.0"):
        assert base_of(flavor.family, flavor.name) in presets(), flavor


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("from torchtitan import x\ndef f(:\n  Trainer.Config(", "must be Python"),
        ("from torchtitan import x\nx = 1\n", "has no function"),
        ("from torchtitan import x\ndef f():\n    return 3\n", "returns nothing that could be followed"),
        ("from torchtitan import x\ndef f():\n    return g()\ndef g():\n    return f()\n", "without end"),
        ("--module llama3 --config llama3_8b activation-checkpoint:some", "must be one of none, selective, full"),
        ("from torchtitan import x\n" + " " * 200_000, "are read at most"),
    ],
)
def test_texts_that_are_no_configuration_are_refused(text: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        read(text, "torchtitan-config", 8)


LINES = st.sampled_from(
    [
        *("from torchtitan.models.llama3 import model_registry", "def f():", "def g():", "    return config"),
        *("    config = llama3_8b()", "    config = g()", "    config.parallelism.tensor_parallel_degree = 2"),
        *("    config.training = TrainingConfig(local_batch_size=-1)", "    config.parallelism = None"),
        *("    return Trainer.Config(model_spec=model_registry(8, converters=[1, A.Config()]))", "    return f()"),
        *("    config.activation_checkpoint = FullAC.Config()", "    for x in y: pass", "    x = y.z"),
        *("--module a --config f --training.local_batch_size 2", "./run_train.sh activation-checkpoint:full \\"),
        *("    config.a.b.c = [[]]", "    config.parallelism = 3", "\\", "'"),
    ]
)


@given(st.lists(LINES | st.text(max_size=20), max_size=12))
def test_any_text_becomes_a_layout_or_is_refused(lines: list[str]) -> None:
    with suppress(InvalidInput):
        assert read("\n".join(lines), "torchtitan-config").layout.world_size >= 1
