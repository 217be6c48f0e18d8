"""Layouts are written as Megatron-LM's arguments and read back."""

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
from autotuner.core.stack import Stack
from autotuner.core.stages import stage_sizes
from autotuner.export.formats import export, read
from autotuner.export.megatron.command_line import MEGATRON_LM
from autotuner.export.target import Imported, NoteKind
from tests.builders import big_job, present
from tests.unit.export.drawn import launches

_STACK = load_stack("megatron-core")


def _written(layout: Layout, job: Job | None = None) -> str:
    return export(job or big_job(1), layout, "megatron-lm").text


def _read(text: str, num_ranks: int | None = None) -> Imported:
    return read(text, "megatron-lm", num_ranks)


def _sizes(job: Job, layout: Layout) -> tuple[int, ...]:
    ends = layout.first_stage_less_layers, layout.last_stage_less_layers
    return stage_sizes(job.model.num_layers, layout.num_stages, *ends)


def _as_summed(job: Job, layout: Layout) -> Layout:
    """What the stack sums in fp32 by itself is told so by its arguments."""
    several = layout.data_parallel_degree * layout.context_parallel_degree > 1 and layout.precision != Precision.FP32
    return replace(
        layout, fp32_gradient_reduce=several and (layout.fp32_gradient_reduce or job.stack.sums_gradients_in_fp32)
    )


def _without_ends(layout: Layout) -> Layout:
    """Several pairs of ends may give stages the same layers; these are compared apart."""
    return replace(layout, first_stage_less_layers=0, last_stage_less_layers=0)


@settings(suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow], deadline=None)
@given(launches(MEGATRON_LM.rules, _STACK) | launches(MEGATRON_LM.rules, Stack()))
def test_what_keeps_the_rules_is_read_back_as_it_was(launch: tuple[Job, Layout]) -> None:
    job, layout = launch
    exported = export(job, layout, "megatron-lm")
    found = _read(exported.text, job.cluster.world_size)
    assert exported.unsaid == ()
    assert _without_ends(found.layout) == _without_ends(_as_summed(job, layout))
    assert _sizes(job, found.layout) == _sizes(job, layout)
    assert replace(present(found.model), name=job.model.name) == job.model
    assert (found.seq_len, found.global_batch_size) == (job.workload.seq_len, job.workload.global_batch_size)


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
    (reason,) = export(big_job(1), layout, "megatron-lm").unsaid
    assert (reason.rule, reason.nearest) == ("megatron-buckets-hold-elements", 1000)


# ---------------------------------------------------------------- read
def test_ranks_of_the_caller_or_of_a_script_have_to_fit_and_what_is_needed_is_said() -> None:
    found = _read(
        "torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 8 --pipeline-model-parallel-size 16"
    )
    assert (found.num_ranks, found.layout.world_size) == (None, 128)
    assert ("--world-size", "8 ranks cannot run it; 128 are the fewest that do") in {
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


_NAMES = (
    *("num-layers", "hidden-size", "num-attention-heads", "tensor-model-parallel-size", "pipeline-model-parallel-size"),
    *("context-parallel-size", "cp-comm-type", "num-experts", "moe-layer-freq", "expert-model-parallel-size"),
    *("pipeline-model-parallel-layout", "decoder-first-pipeline-num-layers", "use-distributed-optimizer", "bf16"),
    *("num-distributed-optimizer-instances", "ddp-bucket-size", "recompute-granularity", "recompute-method"),
    *("recompute-num-layers", "window-size", "window-attn-skip-freq", "multi-latent-attention", "kv-lora-rank"),
    *("num-query-groups", "group-query-attention", "num-virtual-stages-per-pipeline-rank", "use-megatron-fsdp"),
    *("moe-shared-expert-intermediate-size", "moe-expert-capacity-factor", "micro-batch-size"),
    *("max-position-embeddings", "num-layers-per-virtual-pipeline-stage", "decoder-last-pipeline-num-layers"),
)
_VALUES = (
    *("0", "1", "2", "3", "8", "-1", "64", "4096", "x", "full", "block", "", "1e3", "a2a", "E|tt|L", "[0]*3+[1]*5"),
    *("([1]", "127,0", "Et|tL", "None", "flash", "optim_grads", "$X", "1.5", "10000"),
)
_PAIRS = st.tuples(st.sampled_from(_NAMES), st.sampled_from(_VALUES) | st.text(max_size=6))


@given(st.lists(_PAIRS, max_size=12), st.none() | st.integers(-1, 64))
def test_any_settings_are_a_layout_or_refused(pairs: list[tuple[str, str]], num_ranks: int | None) -> None:
    text = "\0".join(f"--{name}={value}".replace("\0", "") for name, value in pairs) + "\0--x"
    with suppress(InvalidInput):
        assert isinstance(_read(text, num_ranks).layout, Layout)


@given(st.lists(_PAIRS, min_size=10, max_size=16), st.sampled_from(["", "0: ", "[rank0]:"]))
def test_any_printed_namespace_is_a_layout_or_refused(pairs: list[tuple[str, str]], before: str) -> None:
    lines = [f"{before}  {name.replace('-', '_')} {'.' * 20} {value}" for name, value in pairs]
    with suppress(InvalidInput):
        assert isinstance(_read("\n".join(lines)).layout, Layout)
