"""torchtitan 0.3's configuration: written as a Python module, and read from one, and from flags, without running it."""

from __future__ import annotations

import ast
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.catalog.models import load_model
from autotuner.core.choices import AttentionKernel, Fp8Recipe, ShardLevel
from autotuner.core.errors import InvalidInput
from autotuner.core.layout import Layout
from autotuner.export.registry import export, read, recognised
from autotuner.export.target import NoteKind
from autotuner.export.torchtitan.catalog import base_of, flavors, presets
from autotuner.export.torchtitan.read import TORCHTITAN_CONFIG
from tests.builders import big_job, h100, h100_cluster, tiny_job
from tests.unit.export.sayable import in_its_words, sayable

EVERY_FORMAT = h100(attention_kernels=tuple(AttentionKernel), fp8_recipes=tuple(Fp8Recipe), fp4_flop_per_s=4e15)
JOB = replace(big_job(), cluster=h100_cluster(8, accelerator=EVERY_FORMAT))
FLEX = Layout(
    data_parallel_shard_degree=8,
    shard_level=ShardLevel.PARAMETERS,
    fp32_gradient_reduce=True,
    attention_kernel=AttentionKernel.FLEX,
)


def text_of(layout: Layout) -> str:
    (file,) = export(JOB, layout, "torchtitan-config").files
    return file.text


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


def test_a_model_without_a_flavor_is_named_with_the_shapes_that_a_flavor_needs() -> None:
    exported = export(tiny_job(), Layout(), "torchtitan-config")
    assert 'model_registry(\n        "tiny",' in exported.text
    assert "dim 64, n_layers 4" in exported.defaults[0]


def test_every_flavor_has_a_function_to_start_from() -> None:
    for flavor, _ in flavors("0.3.0"):
        assert base_of(flavor.family, flavor.name) in presets(), flavor


def test_a_context_exchange_that_is_gone_is_unsaid_with_what_runs_in_its_place() -> None:
    layout = replace(FLEX, context_parallel_degree=2)
    (reason,) = export(JOB, layout, "torchtitan-config").unsaid
    assert (reason.field, reason.nearest) == ("context_exchange", "all_gather")
    assert "gathers all keys and values" in reason.message


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("from torchtitan import x\ndef f(:\n  Trainer.Config(", "must be Python"),
        ("from torchtitan import x\nx = 1\n", "has no function"),
        ("from torchtitan import x\ndef f():\n    return 3\n", "returns nothing that could be followed"),
        ("from torchtitan import x\ndef f():\n    return g()\ndef g():\n    return f()\n", "without end"),
        ("--module llama3 --config llama3_8b activation-checkpoint:some", "must be one of none, selective, full"),
        ("from torchtitan import x\n" + " " * 200_000, "is longer than"),
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


def test_what_the_function_that_it_starts_from_sets_is_set_back_where_a_layout_does_not_ask_for_it() -> None:
    job = replace(JOB, model=load_model("llama-3.1-405b"))  # whose function has tensor ranks, async ones
    text = export(job, FLEX, "torchtitan-config").text
    assert "config = llama3_405b()" in text
    assert "config.compile.enable_async_tensor_parallel = False" in text
    assert "config.compile.enable = False" in text


def test_layers_are_compiled_where_a_layout_is_and_a_function_that_compiles_the_loss_alone_compiles_none() -> None:
    compiled = export(JOB, replace(FLEX, compiled=True), "torchtitan-config").text
    assert 'config.compile.components = ["model", "loss"]' in compiled
    back = read("--module deepseek_v3 --config deepseek_v3_16b", num_ranks=8)
    assert not back.layout.compiled
    assert {note.setting.partition(" ")[0]: note.kind for note in back.notes}["compile.components"] == NoteKind.CHANGED
