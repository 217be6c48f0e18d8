"""DeepSpeed's configuration, alone and where Hugging Face's accelerate and Trainer start it."""

from __future__ import annotations

import pytest

from autotuner.core.errors import InvalidInput
from autotuner.core.layout import Layout
from autotuner.exports.deepspeed import DEEPSPEED
from autotuner.exports.formats import export, read, recognise
from autotuner.exports.shared.target import Imported
from tests.builders import big_job


def _told(found: Imported) -> str:
    return "\n".join(f"{note.kind} {note.setting}: {note.detail}" for note in found.notes)


def test_configurations_are_recognised_with_whole_elements_and_ranks_that_fit() -> None:
    assert recognise(export(big_job(), Layout(), "deepspeed").text) == DEEPSPEED
    assert recognise("deepspeed --num_gpus 8 train.py --zero_stage 2") == DEEPSPEED
    (reason,) = export(
        big_job(), Layout.parse("zero8 bucket1001"), "deepspeed"
    ).unsupported  # others are golden outputs
    assert (reason.rule, reason.nearest) == ("deepspeed-counts-whole-elements", 1002)
    text = '{"train_micro_batch_size_per_gpu": 1, "tensor_parallel": {"autotp_size": 4}}'
    with pytest.raises(InvalidInput, match="num_ranks = 6: must be a multiple of 4"):
        read(text, "deepspeed", 6)
    found = read('{"train_batch_size": 4, "zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}', None, 1)
    assert found.layout == Layout.parse("mb4 flash bf16")
    assert "stage 3 runs as stage 0" in _told(found)


_AUTO = """
{
  // as Hugging Face's guides have it
  "zero_optimization": {"stage": 2, "reduce_bucket_size": 5e8, "overlap_comm": true,},
  "bf16": {"enabled": "auto"},
  "train_micro_batch_size_per_gpu": "auto",  # from the arguments
  "gradient_accumulation_steps": "auto",
}
"""


def test_auto_is_filled_in_from_the_command_beside_it_or_noted() -> None:
    batch = "--per_device_train_batch_size 4 --gradient_accumulation_steps 2"
    command = f"deepspeed --num_gpus 8 train.py {batch} --bf16 true"
    found = read(f"{command}\n{_AUTO}", "deepspeed")
    assert found.layout == Layout.parse("shardgrad8 mb4 flash bf16")
    assert found.global_batch_size == 64
    assert '"auto"' not in _told(found)
    told = _told(read(_AUTO, "deepspeed", 8))
    assert 'assumed train_micro_batch_size_per_gpu: "auto" is replaced' in told
    assert "assumed bf16.enabled" in told


# ---------------------------------------------------------------- accelerate and the Trainer
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
def test_an_option_that_a_format_lacks_is_noted_with_the_nearest_option(
    trainer: str, words: str, rule: str, nearest: int | str
) -> None:
    unsupported = {
        reason.rule: reason.nearest for reason in export(big_job(), Layout.parse(words), trainer).unsupported
    }
    assert unsupported[rule] == nearest
