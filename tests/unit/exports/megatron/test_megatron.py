"""Megatron-LM's arguments and the recipes of Megatron-Bridge and NeMo; round trips and golden outputs hold more."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.core.choices import ExportFormat, Fp8Recipe, Precision, ShardLevel
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.exports.formats import export, read
from autotuner.exports.megatron.recipes import read_recipe
from autotuner.exports.shared.target import Imported, NoteKind
from tests.builders import big_job


def _written(layout: Layout, job: Job | None = None) -> str:
    return export(job or big_job(1), layout, "megatron-lm").text


def _read(text: str, num_ranks: int | None = None) -> Imported:
    return read(text, "megatron-lm", num_ranks)


# ---------------------------------------------------------------- written
@pytest.mark.parametrize(
    ("pipeline", "first", "last", "flags"),
    [
        (3, 1, 0, "--account-for-embedding-in-pipeline-split"),
        (3, 0, 1, "--account-for-loss-in-pipeline-split"),
        (2, 2, 4, "--decoder-first-pipeline-num-layers 41 --decoder-last-pipeline-num-layers 39"),
        (6, 0, 2, "--pipeline-model-parallel-layout Et*14|t*14|t*14|t*14|t*13|t*11L"),
    ],
)
def test_stages_with_fewer_layers_are_said_in_few_words(pipeline: int, first: int, last: int, flags: str) -> None:
    layout = Layout(pipeline_parallel_degree=pipeline, first_stage_less_layers=first, last_stage_less_layers=last)
    assert flags in " ".join(export(big_job(1), layout, "megatron-lm").arguments)


def test_a_bucket_that_is_no_whole_number_of_elements_is_named_with_the_nearest_that_is() -> None:
    layout = Layout(data_parallel_replicate_degree=8, gradient_bucket_bytes=1001)  # other rules are in golden outputs
    (reason,) = export(big_job(1), layout, "megatron-lm").unsupported
    assert (reason.rule, reason.nearest) == ("megatron-buckets-hold-elements", 1000)


# ---------------------------------------------------------------- read
@pytest.mark.parametrize(
    ("flags", "percent", "note"),
    [
        ("--optimizer-cpu-offload --optimizer-offload-fraction 0.25 --use-precision-aware-optimizer", 25, ""),
        ("--optimizer-cpu-offload --optimizer-offload-fraction 0.333", 33, "a layout has whole percentages only: 33"),
        ("--optimizer-cpu-offload", 100, "Megatron-LM's default is 100 %"),
        ("--optimizer-offload-fraction 0.5", 0, ""),
    ],
)
def test_the_share_of_the_optimizer_on_the_host_is_read(flags: str, percent: int, note: str) -> None:
    found = _read(f"--use-distributed-optimizer --bf16 {flags}")
    assert found.layout.optimizer_offload_percent == percent
    assert [one.detail for one in found.notes if one.setting == "--optimizer-offload-fraction"] == [note][: bool(note)]


@pytest.mark.parametrize("name", [ExportFormat.MEGATRON_LM, ExportFormat.MEGATRON_BRIDGE, ExportFormat.NEMO])
def test_the_share_of_the_optimizer_on_the_host_is_written_and_read_back(name: ExportFormat) -> None:
    layout = Layout(
        data_parallel_shard_degree=8,
        shard_level=ShardLevel.OPTIMIZER,
        fp32_gradient_reduce=True,
        optimizer_offload_percent=75,
    )
    text = export(big_job(1), layout, name).text
    assert "optimizer_offload_fraction" in text.replace("-", "_")
    assert read(text, name, 8).layout == layout


def test_ranks_of_the_caller_or_of_a_script_have_to_fit_and_what_is_needed_is_said() -> None:
    found = _read(
        "torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 8 --pipeline-model-parallel-size 16"
    )
    assert (found.num_ranks, found.layout.world_size) == (None, 128)
    assert ("--world-size", "8 ranks cannot run this; 128, the smallest possible number, is assumed") in {
        (note.setting, note.detail) for note in found.notes
    }
    text = "--tensor-model-parallel-size 4 --use-distributed-optimizer --bf16"
    layout = _read(text, 32).layout
    assert (layout.data_parallel_shard_degree, layout.shard_level) == (8, ShardLevel.OPTIMIZER)
    with pytest.raises(InvalidInput, match="multiple of 4"):
        _read(text, 6)


def test_defaults_that_differ_from_ours_or_by_release_are_filled_in_and_said() -> None:
    found = _read("--bf16 --fp8-format hybrid --use-megatron-fsdp --flash-attention-version 3", 8)
    assert found.version == "0.19.0"
    assert found.layout.fp8_recipe == Fp8Recipe.DELAYED
    assert found.layout.fp32_gradient_reduce
    assert found.layout.shard_level == ShardLevel.PARAMETERS
    assumed = {note.setting for note in found.notes if note.kind is NoteKind.ASSUMED}
    assert {"--fp8-recipe", "--accumulate-allreduce-grads-in-fp32", "--data-parallel-sharding-strategy"} <= assumed
    assert _read("--bf16 --use-megatron-fsdp --legacy-tokenizer", 8).layout.shard_level == ShardLevel.NONE


@pytest.mark.parametrize(
    ("flags", "virtual", "first", "last"),
    [
        ("--num-layers-per-virtual-pipeline-stage 2", 4, 0, 0),
        ("--num-virtual-stages-per-pipeline-rank 2", 2, 0, 0),
        ("--num-virtual-stages-per-pipeline-rank 1", 1, 0, 0),
        ("--decoder-first-pipeline-num-layers 5 --decoder-last-pipeline-num-layers 7", 1, 5, 3),
        ("--decoder-last-pipeline-num-layers 2", 1, 0, 8),
        ("--pipeline-model-parallel-layout 'Et*8|t*8|t*8|t*8L'", 1, 0, 0),
        ("--pipeline-model-parallel-layout 'Et*7,(t*4|)*0'", None, 0, 0),
        ("--pipeline-model-parallel-layout 'Ettt|(tttt|)*6tttt,ttttt|L'", None, 0, 0),
        ("--pipeline-model-parallel-layout 'Ettt|(tttt|)*6ttttL'", None, 0, 0),
        ("--pipeline-model-parallel-layout 'Ettt|(ttttt|)*5tttt|L'", 2, 2, 4),
    ],
)
def test_stages_are_counted_in_each_way_to_say_them(flags: str, virtual: int | None, first: int, last: int) -> None:
    text = f"--num-layers 32 --pipeline-model-parallel-size 4 {flags} --bf16"
    if virtual is None:
        with pytest.raises(InvalidInput, match="pipeline_model_parallel_layout"):
            _read(text)
        return
    layout = _read(text).layout
    assert (layout.virtual_stages_per_rank, layout.first_stage_less_layers, layout.last_stage_less_layers) == (
        virtual,
        first,
        last,
    )


def test_torch_fsdp_is_read_with_its_switch_and_written_where_parameters_stay() -> None:
    text = "--use-torch-fsdp2 --torch-fsdp2-no-reshard-after-forward --bf16"
    layout = _read(text, 8).layout
    assert (layout.shard_level, layout.reshard_after_forward) == (ShardLevel.PARAMETERS, False)
    written = _written(layout)
    assert "--use-torch-fsdp2" in written
    assert "--use-distributed-optimizer" not in written


@pytest.mark.parametrize(
    "text",
    [
        "--tensor-model-parallel-size 0 --bf16",
        "--optimizer-cpu-offload --optimizer-offload-fraction 1.5",
        "--tensor-model-parallel-size $TP --bf16",
        "--cp-comm-type sideways --context-parallel-size 2",
        "--fp8-format hybrid --fp8-recipe rowwise",
        "--recompute-granularity some",
        "--num-layers 10 --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout E|L",
        "--num-layers 99999999999 --hidden-size 64 --num-attention-heads 1",
        "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --num-experts 4 --moe-layer-freq [0]*99999",
        "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout t*9999,(t*9999|)*9999",
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        _read(text)


# ---------------------------------------------------------------- recipes
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
    with pytest.raises(InvalidInput, match="does not set any field"):
        read("hello", "megatron-bridge")


def test_the_pretraining_function_of_a_module_counts_with_the_functions_that_it_calls() -> None:
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
