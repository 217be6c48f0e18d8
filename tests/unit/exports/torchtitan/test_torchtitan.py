"""torchtitan's configurations, parsed by torchtitan itself where it is 0.2."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from autotuner.catalog.models import load_model
from autotuner.core.choices import Fp8Recipe, PipelineSchedule, Precision
from autotuner.core.errors import InvalidInput
from autotuner.core.layout import Layout
from autotuner.core.stages import stage_sizes
from autotuner.exports.formats import export, read, recognise
from autotuner.exports.torchtitan.read import TORCHTITAN
from autotuner.exports.torchtitan.releases import base_of, flavors, presets
from tests.builders import big_job, present
from tests.unit.exports.sayable import sayable
from tests.unit.exports.torchtitan.installed import converter_names, dealt_layers, parsed, registered

JOB = big_job()
HSDP = Layout.parse("dp2 fsdp4 mb1 fp32-reduce")
PIPELINE = replace(
    HSDP,
    tensor_parallel_degree=8,
    sequence_parallel=True,
    pipeline_parallel_degree=4,
    pipeline_schedule=PipelineSchedule.INTERLEAVED_1F1B,
    virtual_stages_per_rank=4,
    micro_batch_size=2,
)

FLAGS = ("--training.local_batch_size", "4", "--compile.enable", "--parallelism.data_parallel_shard_degree=-1")


def text_of(layout: Layout) -> str:
    (file,) = export(JOB, layout, "torchtitan").files
    return file.text


def notes_of(text: str, num_ranks: int | None = None) -> dict[str, str]:
    return {note.setting: note.kind.value for note in read(text, "torchtitan", num_ranks).notes}


@pytest.mark.oracle  # imports torchtitan
def test_torchtitan_s_own_parser_reads_what_is_written_and_torch_knows_the_schedules(tmp_path: Path) -> None:
    written = [HSDP, PIPELINE, *drawn(20)]
    commands: list[tuple[str, ...]] = []
    for number, layout in enumerate(written):
        (tmp_path / f"{number}.toml").write_text(text_of(layout))
        commands.append(("--job.config_file", str(tmp_path / f"{number}.toml")))
    *configs, overridden = parsed([*commands, (*commands[0], *FLAGS)])
    for layout, config in zip(written, configs, strict=True):
        assert_says(layout, config)
    assert (overridden["training"]["local_batch_size"], overridden["compile"]["enable"]) == (4, True)
    assert overridden["parallelism"]["data_parallel_shard_degree"] == -1


def drawn(count: int) -> list[Layout]:
    layouts: list[Layout] = []

    @settings(max_examples=count, phases=[Phase.generate], database=None)
    @given(sayable(TORCHTITAN, JOB))
    def draw(layout: Layout) -> None:
        layouts.append(layout)

    draw()
    return layouts


def assert_says(layout: Layout, config: dict[str, Any]) -> None:
    """torchtitan's configuration means the layout; degrees, stages and batch by torchtitan's own arithmetic."""
    parallelism, training = config["parallelism"], config["training"]
    for name in (
        *("data_parallel_replicate_degree", "data_parallel_shard_degree", "tensor_parallel_degree"),
        *("context_parallel_degree", "expert_parallel_degree", "pipeline_parallel_degree"),
    ):
        assert parallelism[name] == getattr(layout, name), name
    assert (config["model"]["name"], training["seq_len"]) == ("llama3", 8192)
    accumulated = training["global_batch_size"] // (training["local_batch_size"] * layout.data_parallel_degree)
    micro_batch = training["local_batch_size"]
    if layout.pipeline_parallel_degree > 1:
        micro_batch = parallelism["pipeline_parallel_microbatch_size"]
        assert accumulated == 1
        assert config["single"] == (layout.virtual_stages_per_rank == 1)
        assert [len(layers) for layers in stages_of(config)] == list(sizes_of(layout))
    assert micro_batch == layout.micro_batch_size
    assert accumulated * training["local_batch_size"] // micro_batch == JOB.workload.num_micro_batches(layout)
    assert config["compile"]["enable"] == layout.compiled
    assert (config["model"]["converters"] != []) == (layout.precision in (Precision.FP8, Precision.FP8_EMULATED))


def stages_of(config: dict[str, Any]) -> list[list[str]]:
    """Layers of each stage, as pipeline_llm counts and generate_llm_fqn_per_model_part deals them."""
    parallelism = config["parallelism"]
    ends = [parallelism[f"pipeline_parallel_{end}_stage_less_layers"] for end in ("first", "last")]
    per_stage = parallelism["pipeline_parallel_layers_per_stage"]
    num_stages = parallelism["pipeline_parallel_degree"] * (1 if config["single"] else 2)
    if per_stage is not None:
        num_stages = -(-(JOB.model.num_layers + sum(ends)) // per_stage)
    parts = dealt_layers(num_stages, JOB.model.num_layers, *ends)
    return [[name for name in part if name.startswith("layers.")] for part in parts]


def sizes_of(layout: Layout) -> tuple[int, ...]:
    ends = layout.first_stage_less_layers, layout.last_stage_less_layers
    return stage_sizes(JOB.model.num_layers, layout.num_stages, *ends)


@given(st.integers(2, 12), st.integers(2, 40), st.integers(0, 3), st.integers(0, 3))
def test_torchtitan_deals_layers_to_stages_as_a_layout_does(stages: int, layers: int, first: int, last: int) -> None:
    assume(min(stage_sizes(layers, stages, first, last)) >= 0)
    assume((layers + first + last) // stages >= max(first, last, 1))
    parts = dealt_layers(stages, layers, first, last)
    dealt = [sum(name.startswith("layers.") for name in part) for part in parts]
    assert tuple(dealt) == stage_sizes(layers, stages, first, last)


def test_stages_listed_by_their_modules_are_counted_and_their_ends_found() -> None:
    parts = dealt_layers(4, 32, 2, 1)
    rows = ", ".join("[" + ", ".join(f'"{name}"' for name in part) + "]" for part in parts)
    text = f"[parallelism]\npipeline_parallel_degree = 4\nmodule_fqns_per_model_part = [{rows}]\n"
    layout = read(text, num_ranks=4).layout
    assert stage_sizes(32, 4, layout.first_stage_less_layers, layout.last_stage_less_layers) == (7, 9, 9, 7)


@pytest.mark.parametrize("family", ["llama3", "llama4", "qwen3", "deepseek_v3", "gpt_oss"])
def test_flavors_have_the_shapes_that_torchtitan_registers_them_with(family: str) -> None:
    known = registered(family)
    for flavor, spec in flavors("0.2.2"):
        if flavor.family == family:
            said = known[flavor.name]
            shapes = {"n_layers": spec.num_layers, "dim": spec.hidden_size, "n_heads": spec.num_heads}
            shapes |= {"vocab_size": spec.vocab_size}
            assert {name: said[name] for name in shapes if name in said} == {
                name: value for name, value in shapes.items() if name in said
            }, flavor


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("parallelism.tensor_parallel_degree = 0", "must be a whole number above 0; nearest legal value: 1"),
        ('parallelism.pipeline_parallel_schedule = "1F2B"', "must be one of GPipe, 1F1B, Interleaved1F1B"),
        ('activation_checkpoint.mode = "some"', "must be one of none, selective, full, memory_budget"),
        ('activation_checkpoint.selective_ac_option = "all"', "to recompute every second layer"),
        ('training.mixed_precision_param = "float16"', "must be one of bfloat16, float32"),
        ("training.global_batch_size = 9", "must be a multiple of 8"),
        ('parallelism.fsdp_reshard_after_forward = "often"', "must be one of default, always, never"),
    ],
)
def test_values_that_torchtitan_refuses_are_refused_with_what_it_takes(setting: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        read(setting, "torchtitan", 1)


@pytest.mark.parametrize(
    ("setting", "kind"),
    [
        ('activation_checkpoint.mode = "memory_budget"', "changed"),
        ('activation_checkpoint.selective_ac_option = "3"', "changed"),
        ('optimizer.implementation = "for-loop"', "changed"),
        ('training.dtype = "bfloat16"', "changed"),
        ('training.mixed_precision_reduce = "bfloat16"', "changed"),
        ("training.enable_cpu_offload = true", "ignored"),
        ("parallelism.tensor_paralel_degree = 2", "unknown"),
        ("training.steps = 2", "ignored"),
    ],
)
def test_settings_that_a_layout_cannot_express_are_noted(setting: str, kind: str) -> None:
    name = setting.partition(" = ")[0]
    assert {said.partition(" ")[0]: as_kind for said, as_kind in notes_of(setting, 1).items()}[name] == kind


@pytest.mark.parametrize("recipe", [Fp8Recipe.ROWWISE, Fp8Recipe.MXFP8])
@pytest.mark.parametrize("model", ["llama-3.1-70b", "qwen3-30b-a3b"])
def test_converters_are_named_as_torchtitan_registers_them_with_one_for_experts(model: str, recipe: Fp8Recipe) -> None:
    job = replace(JOB, model=load_model(model))
    text = export(job, replace(HSDP, precision=Precision.FP8, fp8_recipe=recipe), "torchtitan").files[0].text
    named = tomllib.loads(text)["model"]["converters"]
    assert len(named) == (2 if job.model.experts else 1)
    assert set(named) <= converter_names()
    assert read(text, num_ranks=8).layout.fp8_recipe == recipe


def test_experts_in_fp8_are_scaled_by_rows_and_lie_in_no_pipeline() -> None:
    job = replace(JOB, model=load_model("deepseek-v3"))
    layout = replace(PIPELINE, precision=Precision.FP8, virtual_stages_per_rank=2)
    rules = {reason.rule for reason in export(job, layout, "torchtitan").unsupported}
    assert rules == {"torchtitan-scales-experts-by-rows", "torchtitan-rounds-experts-of-whole-models"}


def test_files_and_commands_are_recognised_and_plain_llama_has_the_shapes_of_flavors() -> None:
    assert recognise(text_of(PIPELINE)).format == "torchtitan"
    assert recognise("./run_train.sh --parallelism.tensor_parallel_degree 2").format == "torchtitan"
    for plain, later in (("llama-3-8b", "llama-3.1-8b"), ("llama-3-70b", "llama-3.1-70b")):
        assert replace(load_model(plain), name="") == replace(load_model(later), name="")


@pytest.mark.parametrize("key", [f"{'a.' * 40_000}a = 1", f"[{'a .' * 40_000}a]", f"x = {{ {'a.' * 40_000}a = 1 }}"])
def test_a_key_of_very_many_parts_is_refused_before_it_is_parsed(key: str) -> None:
    with pytest.raises(InvalidInput, match="keys with at most 32 parts"):
        read(f"[training]\nsteps = 1\n{key}\n", "torchtitan", 8)


# ---------------------------------------------------------------- 0.3, in Python
def test_every_flavor_has_a_function_to_start_from() -> None:
    for flavor, _ in flavors("0.3.0"):
        assert base_of(flavor.family, flavor.name) in presets(), flavor


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("from torchtitan import x\ndef f(:\n  Trainer.Config(", "must be valid Python"),
        ("from torchtitan import x\nx = 1\n", "must be a Python module with a function"),
        ("from torchtitan import x\ndef f():\n    return 3\n", "returns a value that is known only when"),
        ("from torchtitan import x\ndef f():\n    return g()\ndef g():\n    return f()\n", "without an end"),
        ("--module llama3 --config llama3_8b activation-checkpoint:some", "must be one of none, selective, full"),
        ("from torchtitan import x\n" + " " * 200_000, "can be read"),
    ],
)
def test_texts_that_are_no_module_are_refused(text: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        read(text, "torchtitan-config", 8)


# ---------------------------------------------------------------- values of models/llama3/train_configs of v0.2.2
LLAMA3_8B = """
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 1
seq_len = 8192
[parallelism]
data_parallel_replicate_degree = 1
data_parallel_shard_degree = -1
tensor_parallel_degree = 1
pipeline_parallel_degree = 1
context_parallel_degree = 1
[compile]
enable = false
components = ["model", "loss"]
[activation_checkpoint]
mode = "selective"
selective_ac_option = "op"
"""

LLAMA3_70B = """
[model]
name = "llama3"
flavor = "70B"
[training]
local_batch_size = 8
seq_len = 8192
[parallelism]
data_parallel_shard_degree = -1
tensor_parallel_degree = 8
[compile]
enable = false
[activation_checkpoint]
mode = "full"
"""

LLAMA3_405B = (Path(__file__).parents[3] / "golden/imports/torchtitan_float8.txt").read_text()


@pytest.mark.parametrize(
    ("text", "num_ranks", "words", "model", "batch"),
    [
        (LLAMA3_8B, 64, "fsdp64 mb1 reshard fp32-reduce recompute-selective", "llama-3.1-8b", 64),
        (LLAMA3_70B, 64, "fsdp8 tp8 mb8 sp reshard fp32-reduce recompute-full", "llama-3.1-70b", 64),
        (
            LLAMA3_405B,
            128,
            "fsdp16 tp8 mb2 sp async-tp reshard fp32-reduce recompute-full compiled flash fp8",
            "llama-3.1-405b",
            32,
        ),
    ],
)
def test_published_job_files_are_the_layouts_that_they_run_as(
    text: str, num_ranks: int, words: str, model: str, batch: int
) -> None:
    back = read(text, num_ranks=num_ranks)
    assert (back.format, back.layout, back.global_batch_size) == ("torchtitan", Layout.parse(words), batch)
    assert present(back.model).name == model
