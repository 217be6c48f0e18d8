from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotuner.core.errors import InvalidInput
from autotuner.core.layout import Layout
from autotuner.export.accelerate import ACCELERATE
from autotuner.export.formats import export, read
from autotuner.export.target import Imported
from autotuner.export.transformers import TRANSFORMERS
from tests.builders import big_job
from tests.unit.export.sayable import in_its_words, sayable


# ---------------------------------------------------------------- accelerate
@given(layout=sayable(ACCELERATE, big_job()))
def test_what_accelerate_can_say_is_read_back_as_it_was(layout: Layout) -> None:
    exported = export(big_job(), layout, "accelerate")
    assert exported.unsaid == ()
    imported = read(exported.text)
    assert imported.num_ranks == layout.world_size
    assert in_its_words(ACCELERATE, imported.layout) == in_its_words(ACCELERATE, layout)
    assert imported.global_batch_size == 1024


_WORDS = st.sampled_from(
    [
        *("distributed_type:", "FSDP", "DEEPSPEED", "MULTI_GPU", "fsdp_config:", "fsdp_version:", "2", "1", "\n", "  "),
        *("parallelism_config:", "parallelism_config_tp_size:", "num_processes:", "8", "-1", "true", "[", "{", "&a"),
        "*a",
        *("--", "accelerate", "launch", "--fsdp_sharding_strategy", "HYBRID_SHARD", "mixed_precision:", "fp16", "x"),
    ]
)


@given(text=st.lists(_WORDS, max_size=20).map(" ".join) | st.text())
@settings(max_examples=200)
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(InvalidInput):
        read(text, "accelerate")


# ---------------------------------------------------------------- transformers
@given(layout=sayable(TRANSFORMERS, big_job()))
def test_what_the_trainer_can_be_told_is_read_back_as_it_was(layout: Layout) -> None:
    exported = export(big_job(), layout, "transformers")
    assert exported.unsaid == ()
    imported = read(exported.text, "transformers", layout.world_size)
    assert in_its_words(TRANSFORMERS, imported.layout) == in_its_words(TRANSFORMERS, layout)
    assert imported.global_batch_size == 1024


_NAMES = st.sampled_from(
    [
        *("per_device_train_batch_size", "bf16", "fp16", "fsdp", "fsdp_config", "deepspeed", "optim", "torch_compile"),
        *("gradient_checkpointing", "gradient_checkpointing_kwargs", "ddp_bucket_cap_mb"),
        "gradient_accumulation_steps",
    ]
)
_VALUES = st.sampled_from(
    ["1", "0", "true", "auto", "full_shard", "{", '{"version": 2}', "-3", "1e9", "adafactor", "ds.json"]
)


@given(flags=st.lists(st.tuples(_NAMES, _VALUES), max_size=5), rest=st.text(max_size=10))
@settings(max_examples=200)
def test_any_command_line_is_read_or_refused(flags: list[tuple[str, str]], rest: str) -> None:
    with suppress(InvalidInput):
        read(" ".join(f"--{name} '{value}'" for name, value in flags) + rest, "transformers")


@given(values=st.dictionaries(_NAMES, _VALUES | st.booleans() | st.none() | st.dictionaries(_NAMES, _VALUES)))
@settings(max_examples=200)
def test_any_object_is_read_or_refused(values: dict[str, object]) -> None:
    with suppress(InvalidInput):
        read(json.dumps({"output_dir": "x", **values}), "transformers", 8)


# ---------------------------------------------------------------- reading
def _told(found: Imported) -> str:
    return "\n".join(f"{note.kind} {note.setting}: {note.detail}" for note in found.notes)


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        ("FULL_SHARD", "fsdp16 reshard mb1 flash bf16"),
        ("SHARD_GRAD_OP", "fsdp16 mb1 flash bf16"),
        ("2", "fsdp16 mb1 flash bf16"),
        ("NO_SHARD", "dp16 mb1 flash bf16"),
        ("HYBRID_SHARD", "dp2 fsdp8 reshard mb1 flash bf16"),
    ],
)
def test_the_first_fsdp_s_strategies_are_read(strategy: str, words: str) -> None:
    launch = "--use_fsdp --mixed_precision bf16 --num_machines 2 --num_processes 16"
    found = read(f"accelerate launch {launch} --fsdp_sharding_strategy {strategy} train.py --seed 1")
    assert found.layout == Layout.parse(words)
    assert f"changed fsdp_version: 1: {'SHARD_GRAD_OP' if strategy == '2' else strategy}" in _told(found)


def test_arguments_as_json_are_read() -> None:
    text = """{"output_dir": "x", "per_device_train_batch_size": 2, "gradient_accumulation_steps": 4, "bf16": true,
        "fsdp": true, "fsdp_config": {"reshard_after_forward": false, "activation_checkpointing": true}}"""
    found = read(text, "transformers", 8)
    assert found.layout == Layout.parse("fsdp8 mb2 recompute-full flash bf16")
    assert found.global_batch_size == 64


def test_the_trainer_fills_in_what_deepspeed_s_configuration_leaves_to_it() -> None:
    config = (
        '{"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}}'
    )
    arguments = "--deepspeed ds.json --per_device_train_batch_size 4 --bf16 True --torch_compile True"
    found = read(f"torchrun --nproc-per-node 8 train.py {arguments}\n{config}", "transformers")
    assert found.layout == Layout.parse("shardgrad8 mb4 compiled flash bf16")
    assert found.global_batch_size == 32


# ---------------------------------------------------------------- What accelerate and the Trainer cannot be told
@pytest.mark.parametrize(
    ("trainer", "words", "rule", "nearest"),
    [
        ("accelerate", "fsdp4 tp2 cp2 cp-all_to_all", "accelerate-exchanges-heads-without-tensor-ranks", "all_gather"),
        ("accelerate", "dp4 fsdp1 cp2", "accelerate-replicates-shards", 4),
        ("transformers", "dp8 bucket1048577", "transformers-sizes-whole-mebibytes", 2097152),
        (
            "transformers",
            "dp4 cp2 cp-all_to_all bucket1048576",
            "transformers-sizes-no-bucket-beside-ulysses",
            26214400,
        ),
    ],
)
def test_what_no_golden_export_leaves_unsaid_is_told_with_the_nearest_that_can_be_said(
    trainer: str, words: str, rule: str, nearest: int | str
) -> None:
    unsaid = {reason.rule: reason.nearest for reason in export(big_job(), Layout.parse(words), trainer).unsaid}
    assert unsaid[rule] == nearest
