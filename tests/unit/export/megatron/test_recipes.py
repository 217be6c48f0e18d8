from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autotuner.catalog.software import load_stack
from autotuner.core.choices import Fp8Recipe, Precision, ShardLevel
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.stages import stage_sizes
from autotuner.export.formats import export, read
from autotuner.export.megatron.recipes import MEGATRON_BRIDGE, NEMO, read_recipe
from autotuner.export.target import Target
from tests.builders import big_job
from tests.unit.export.drawn import launches


def test_assignments_arguments_and_overrides_are_found_and_else_the_text_is_refused() -> None:
    text = "cfg.model.a = 4\ncfg.model.b: int = 5\ncfg.c = Config(d=False, e=['x', 'y'])\ncfg.f = None\ncfg.g = h(1)\n"
    values = read_recipe(text).values
    assert values["cfg.model.a"] == ("4",)
    assert values["cfg.model.b"] == ("5",)
    assert (values["d"], values["e"], values["cfg.f"]) == (("False",), ("x", "y"), ())
    assert values["cfg.g"] == ("h", "1")
    text = "def recipe(tp: int = 2, *, cp: int = 4, pp=None):\n    return Strategy(tensor=tp, context=cp, pipeline=pp)"
    values = read_recipe(text).values
    assert (values["tensor"], values["context"], values["pipeline"]) == (("2",), ("4",), ())
    text = "nemo llm pretrain --factory llama3_8b a.b.c=2 'd.e=[x,y]' f.g=\"h\" \\\n +i.j=null"
    values = {"a.b.c": ("2",), "d.e": ("x", "y"), "f.g": ("h",), "i.j": ("null",)}
    assert read_recipe(text).values == values
    with pytest.raises(InvalidInput, match="assigns no field"):
        read("hello", "megatron-bridge")


def test_of_several_functions_that_which_pretrains_counts_with_what_it_calls() -> None:
    text = (
        "def helper():\n    x.a = 1\n    x.b = 1\n"
        "def sft():\n    x.a = 2\n    x.c = 2\n    x.d = 2\n    x.e = 2\n"
        "def pretrain():\n    helper()\n    x.a = 3\n"
    )
    found = read_recipe(text)
    assert found.values == {"x.a": ("3",), "x.b": ("1",)}
    assert (found.function, found.others) == ("pretrain", ("sft",))


@given(st.text(max_size=80) | st.text(alphabet="ab.=()[]'\"\n :,1", max_size=60))
def test_any_text_has_assignments_or_none(text: str) -> None:
    assert all(isinstance(words, tuple) for words in read_recipe(text).values.values())


def _plain(layout: Layout) -> Layout:
    """The layout without what the registered precision and equal stages decide."""
    return replace(layout, fp32_gradient_reduce=False, first_stage_less_layers=0, last_stage_less_layers=0)


def _sizes(job: Job, layout: Layout) -> tuple[int, ...]:
    ends = layout.first_stage_less_layers, layout.last_stage_less_layers
    return stage_sizes(job.model.num_layers, layout.num_stages, *ends)


@pytest.mark.parametrize("target", [MEGATRON_BRIDGE, NEMO], ids=lambda target: str(target.format))
@settings(suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow], deadline=None, max_examples=40)
@given(launch=launches(NEMO.rules, load_stack("megatron-bridge")))
def test_what_keeps_the_rules_is_read_back_as_it_was(target: Target, launch: tuple[Job, Layout]) -> None:
    job, layout = launch
    exported = export(job, layout, target.format)
    text = f"{exported.text} model.num_layers={job.model.num_layers}"
    found = read(text, target.format, job.cluster.world_size)
    assert exported.unsaid == ()
    assert _plain(found.layout) == _plain(layout)
    assert _sizes(job, found.layout) == _sizes(job, layout)
    assert (found.seq_len, found.global_batch_size) == (job.workload.seq_len, job.workload.global_batch_size)


@pytest.mark.parametrize(
    ("word", "precision", "recipe"),
    [
        ("bf16_mixed", Precision.BF16, Fp8Recipe.TENSORWISE),
        ("fp16_mixed", Precision.BF16, Fp8Recipe.TENSORWISE),
        ("bf16_with_fp8_delayed_scaling_mixed", Precision.FP8, Fp8Recipe.DELAYED),
        ("bf16_with_fp8_mixed", Precision.FP8, Fp8Recipe.DELAYED),
        ("bf16_with_fp8_subchannel_scaling_mixed", Precision.FP8, Fp8Recipe.BLOCKWISE),
        ("bf16_with_mxfp8_mixed", Precision.FP8, Fp8Recipe.MXFP8),
        ("bf16_with_nvfp4_mixed", Precision.NVFP4, Fp8Recipe.TENSORWISE),
        ("null", Precision.FP32, Fp8Recipe.TENSORWISE),
    ],
)
def test_a_registered_precision_has_its_recipe(word: str, precision: Precision, recipe: Fp8Recipe) -> None:
    layout = read(f"model.tensor_model_parallel_size=2 mixed_precision={word}", "megatron-bridge").layout
    assert (layout.precision, layout.fp8_recipe) == (precision, recipe)


def test_a_recipe_shards_its_optimizer_unless_it_says_otherwise() -> None:
    text = "trainer.strategy.tensor_model_parallel_size=2"
    assert read(text, "nemo", 8).layout.shard_level == ShardLevel.OPTIMIZER
    assert read(f"{text} ddp.use_distributed_optimizer=false", "nemo", 8).layout.shard_level == ShardLevel.NONE
    written = export(big_job(1), Layout(data_parallel_replicate_degree=8), "nemo").arguments
    assert "trainer.strategy.ddp.use_distributed_optimizer=false" in written


@given(
    st.text(max_size=60)
    | st.lists(st.sampled_from(["model.", "tensor_model_parallel_size=", "x", "=", "4", "\n", "["])).map("".join)
)
def test_any_text_is_a_layout_or_refused(text: str) -> None:
    with suppress(InvalidInput):
        assert isinstance(read(text, "megatron-bridge").layout, Layout)
    with suppress(InvalidInput):
        assert isinstance(read(text, "nemo").layout, Layout)
