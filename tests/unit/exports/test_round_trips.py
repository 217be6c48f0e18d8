"""What a format can say is read back as it was, and any text is read or refused."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autotuner.catalog.software import load_stack
from autotuner.core.choices import ExportFormat, Precision
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.stack import Stack
from autotuner.core.stages import stage_sizes
from autotuner.exports.formats import FORMATS, export, read, recognise
from autotuner.exports.shared.target import Target
from tests.builders import present
from tests.unit.exports.sayable import JOB, in_its_words, models, sayable, with_defaults

F = ExportFormat
_JOBS: dict[str, st.SearchStrategy[Job]] = {
    F.MEGATRON_LM: st.builds(
        replace, st.just(JOB), model=models(), stack=st.sampled_from([load_stack("megatron-core"), Stack()])
    ),
    **dict.fromkeys(
        (F.MEGATRON_BRIDGE, F.NEMO),
        st.builds(replace, st.just(JOB), model=models(), stack=st.just(load_stack("megatron-bridge"))),
    ),
}
_WITHOUT_SEQUENCES = (F.DEEPSPEED, F.ACCELERATE, F.TRANSFORMERS)
_WITH_MODELS = (F.MEGATRON_LM, F.TORCHTITAN, F.TORCHTITAN_CONFIG)


def _as_read(target: Target, job: Job, layout: Layout) -> tuple[Layout, tuple[int, ...]]:
    """The layout in a format's words, with the sizes of its stages: several pairs of ends may give the same."""
    ends = layout.first_stage_less_layers, layout.last_stage_less_layers
    plain = with_defaults(in_its_words(target, layout), ("first_stage_less_layers", "last_stage_less_layers"))
    if target.format == F.MEGATRON_LM and job.stack.sums_gradients_in_fp32:  # its arguments say so
        several = layout.data_parallel_degree * layout.context_parallel_degree > 1
        plain = replace(plain, fp32_gradient_reduce=several and layout.precision != Precision.FP32)
    return plain, stage_sizes(job.model.num_layers, layout.num_stages, *ends)


@pytest.mark.parametrize("name", sorted({*F} - {F.ARGUMENTS, F.TORCHRUN, F.SBATCH}))  # these say all of any layout
@settings(suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow], deadline=None)
@given(data=st.data())
def test_settings_that_a_format_can_express_are_read_back_unchanged(name: ExportFormat, data: st.DataObject) -> None:
    target, job = FORMATS[name], data.draw(_JOBS.get(name, st.just(JOB)))
    layout = data.draw(sayable(target, job))
    exported = export(job, layout, name)
    assert exported.unsupported == ()
    text = exported.text if exported.arguments else exported.files[0].text
    if name in (F.MEGATRON_BRIDGE, F.NEMO):
        text += f" model.num_layers={job.model.num_layers}"
    assert recognise(text) is target or name == F.TRANSFORMERS  # accelerate starts the same scripts
    back = read(text, name, None if name == F.ACCELERATE else layout.world_size)
    assert back.num_ranks == layout.world_size
    assert _as_read(target, job, back.layout) == _as_read(target, job, layout)
    assert back.global_batch_size == 1024
    assert back.seq_len == (None if name in _WITHOUT_SEQUENCES else 8192)
    if name in _WITH_MODELS:
        assert replace(present(back.model), name=job.model.name) == job.model


@given(layout=sayable(FORMATS[F.DEEPSPEED], JOB))
def test_the_batch_sizes_of_deepspeed_alone_give_the_number_of_ranks(layout: Layout) -> None:
    assert read(export(JOB, layout, "deepspeed").text).num_ranks == layout.world_size


# ---------------------------------------------------------------- any text
_VALUES = (
    *("0", "1", "2", "3", "8", "-1", "64", "x", "full", "block", "", "1e3", "1e999", "a2a", "E|tt|L", "[0]*3+[1]*5"),
    *("([1]", "127,0", "Et|tL", "None", "flash", "optim_grads", "$X", "1.5", "10000", "auto", "true", '{"version": 2}'),
    *("full_shard", "adafactor", "ds.json", "NaN", "FSDP", "HYBRID_SHARD", "fp16", "/*", "{", "}", "[", '"', ":", "#"),
)
_FLAGS: dict[str, tuple[str, ...]] = {
    F.MEGATRON_LM: (
        *("num-layers", "hidden-size", "num-attention-heads", "tensor-model-parallel-size", "context-parallel-size"),
        *(
            "pipeline-model-parallel-size",
            "cp-comm-type",
            "num-experts",
            "moe-layer-freq",
            "moe-expert-capacity-factor",
        ),
        *("expert-model-parallel-size", "pipeline-model-parallel-layout", "use-distributed-optimizer", "bf16"),
        *("num-distributed-optimizer-instances", "ddp-bucket-size", "recompute-granularity", "recompute-method"),
        *("recompute-num-layers", "window-size", "window-attn-skip-freq", "multi-latent-attention", "kv-lora-rank"),
        *("num-query-groups", "group-query-attention", "num-virtual-stages-per-pipeline-rank", "use-megatron-fsdp"),
        *("moe-shared-expert-intermediate-size", "decoder-first-pipeline-num-layers", "micro-batch-size"),
        *("max-position-embeddings", "num-layers-per-virtual-pipeline-stage", "decoder-last-pipeline-num-layers"),
    ),
    F.TRANSFORMERS: (
        *("per_device_train_batch_size", "bf16", "fp16", "fsdp", "fsdp_config", "deepspeed", "optim", "torch_compile"),
        *(
            "gradient_checkpointing",
            "gradient_checkpointing_kwargs",
            "ddp_bucket_cap_mb",
            "gradient_accumulation_steps",
        ),
    ),
    F.ARGUMENTS: tuple(OPTIONS),
}
"""Names of flags, by the format that has them."""

_LINES: dict[str, tuple[str, ...]] = {
    F.MEGATRON_BRIDGE: ("model.", "tensor_model_parallel_size=", "x", "=", "4", "\n", "[", "a.b=['", "def f(a=1):\n  "),
    F.DEEPSPEED: (
        *("{", "}", '"', ":", ",", "//", "/*", "#", "--", "zero_stage", "zero_optimization", "stage", "3", "deepspeed"),
        *("auto", "train_batch_size", "bf16", "enabled", "true", "-1", "1e999", "NaN", "[", "]", "$A", "\\"),
    ),
    F.ACCELERATE: (
        *("distributed_type:", "FSDP", "DEEPSPEED", "MULTI_GPU", "fsdp_config:", "fsdp_version:", "2", "1", "\n", "  "),
        *("parallelism_config:", "parallelism_config_tp_size:", "num_processes:", "8", "-1", "true", "[", "{", "&a"),
        *("*a", "--", "accelerate", "launch", "--fsdp_sharding_strategy", "HYBRID_SHARD", "mixed_precision:", "fp16"),
    ),
    F.TORCHTITAN: (
        *("[parallelism]", "[training]", "[model]", "[activation_checkpoint]", "[compile]", "x = [1, {}]"),
        *("tensor_parallel_degree = 2", "pipeline_parallel_degree = 2", "module_fqns_per_model_part = [[]]"),
        *("pipeline_parallel_layers_per_stage = 3", "local_batch_size = -1", 'mode = "full"', "enable = 3"),
        *("--training.local_batch_size 2", "--compile.enable", "--a.b=$X", "./run_train.sh --model.flavor 70B"),
        *('{"job": {', '"parallelism": {"tensor_parallel_degree": []}}}', "date = 9999-99-99", "n = 0x"),
        *('flavor = "8B"', "a.b.c = 1", "inf = inf", "[", "=", '"', "\\", "{"),
    ),
    F.TORCHTITAN_CONFIG: (
        *("from torchtitan.models.llama3 import model_registry", "def f():", "def g():", "    return config"),
        *("    config = llama3_8b()", "    config = g()", "    config.parallelism.tensor_parallel_degree = 2"),
        *("    config.training = TrainingConfig(local_batch_size=-1)", "    config.parallelism = None"),
        *("    return Trainer.Config(model_spec=model_registry(8, converters=[1, A.Config()]))", "    return f()"),
        *("    config.activation_checkpoint = FullAC.Config()", "    for x in y: pass", "    x = y.z"),
        *("--module a --config f --training.local_batch_size 2", "./run_train.sh activation-checkpoint:full \\"),
        *("    config.a.b.c = [[]]", "    config.parallelism = 3", "\\", "'"),
    ),
}
"""Pieces of configurations, by the format that has them."""

_RANKS = st.none() | st.integers(-1, 16)


def _is_read_or_refused(text: str, name: str | None, num_ranks: int | None) -> None:
    with suppress(InvalidInput):
        assert read(text, name, num_ranks).layout.world_size >= 1


@pytest.mark.parametrize("name", _LINES)
@given(st.lists(st.text(max_size=20), max_size=3), st.data(), _RANKS)
def test_any_pieces_of_a_configuration_are_read_or_refused(
    name: str, rest: list[str], data: st.DataObject, num_ranks: int | None
) -> None:
    pieces = data.draw(st.lists(st.sampled_from(_LINES[name]), max_size=16))
    for between in (" ", "\n"):
        _is_read_or_refused(between.join([*pieces, *rest]), name, num_ranks)


@pytest.mark.parametrize("name", _FLAGS)
@given(st.data(), _RANKS, st.sampled_from(["", "0: ", "[rank0]:"]))
def test_any_flags_are_read_or_refused_also_as_a_document_or_as_megatron_prints_them(
    name: str, data: st.DataObject, num_ranks: int | None, before: str
) -> None:
    values = st.sampled_from(_VALUES) | st.text(max_size=6)
    pairs = data.draw(st.lists(st.tuples(st.sampled_from(_FLAGS[name]), values), max_size=16))
    as_processes = "\0".join(f"--{flag}={value}".replace("\0", "") for flag, value in pairs) + "\0--x"
    printed = "\n".join(f"{before}  {flag.replace('-', '_')} {'.' * 20} {value}" for flag, value in pairs)
    for text in (as_processes, " ".join(f"--{flag} '{value}'" for flag, value in pairs), printed):
        _is_read_or_refused(text, name, num_ranks)
    _is_read_or_refused(json.dumps({"output_dir": "x", **dict(pairs)}), name, num_ranks)


_DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(_VALUES) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)
_KEYS = st.sampled_from(["enabled", "stage", "autotp_size", "reduce_bucket_size", "stages", "autoep_size", "version"])
_SECTIONS = st.sampled_from(
    [
        *("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "bf16", "fp16"),
        *("zero_optimization", "tensor_parallel", "pipeline", "sequence_parallel_size", "expert_parallel"),
        *_FLAGS[F.TRANSFORMERS],
    ]
)


@pytest.mark.parametrize("name", [F.DEEPSPEED, F.TRANSFORMERS])
@given(config=st.dictionaries(_SECTIONS, _DOCUMENTS | st.dictionaries(_KEYS, _DOCUMENTS)), num_ranks=_RANKS)
def test_any_values_of_known_keys_are_read_or_refused(
    name: str, config: dict[str, object], num_ranks: int | None
) -> None:
    _is_read_or_refused(json.dumps(config), name, num_ranks)


READ = sorted(target.format for target in FORMATS.values() if target.read)


@given(st.text(max_size=300), st.sampled_from([None, *READ]), _RANKS)
def test_any_text_is_refused_or_read(text: str, name: str | None, num_ranks: int | None) -> None:
    _is_read_or_refused(text, name, num_ranks)


@pytest.mark.parametrize("name", READ)
@pytest.mark.parametrize(
    "text", ["", "{" * 20_000, "[" * 20_000, "- " * 20_000, "a = " + "[" * 5_000, "x: " + "{" * 5_000, "--" * 50_000]
)
def test_a_text_that_makes_no_sense_never_fails(name: str, text: str) -> None:
    _is_read_or_refused(text, name, None)
