"""Configurations of accelerate and arguments of the Trainer, as people write them."""

from __future__ import annotations

import pytest

from autotuner.core.errors import InvalidInput
from autotuner.core.layout import Layout
from autotuner.export.registry import read
from autotuner.export.target import Imported

_FSDP = """
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
downcast_bf16: 'no'
fsdp_config:
  fsdp_activation_checkpointing: true
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_offload_params: false
  fsdp_reshard_after_forward: true
  fsdp_version: 2
machine_rank: 0
mixed_precision: bf16
num_machines: 1
num_processes: 8
parallelism_config:
  parallelism_config_cp_size: 1
  parallelism_config_dp_replicate_size: 1
  parallelism_config_dp_shard_size: 4
  parallelism_config_tp_size: 2
"""


def _told(found: Imported) -> str:
    return "\n".join(f"{note.kind} {note.setting}: {note.detail}" for note in found.notes)


def test_a_configuration_of_fsdp_with_tensor_ranks_is_read() -> None:
    found = read(_FSDP)
    assert found.layout == Layout.parse("fsdp4 tp2 reshard mb1 recompute-full flash bf16")
    assert "assumed per_device_train_batch_size: a configuration of accelerate has no batch size" in _told(found)


def test_sizes_that_do_not_multiply_to_the_processes_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"num_processes = 16: must be the product of the sizes"):
        read(_FSDP, None, 16)


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


def test_a_strategy_that_there_is_not_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidInput, match="must be one of FULL_SHARD, SHARD_GRAD_OP"):
        read("accelerate launch --use_fsdp --fsdp_sharding_strategy FULL train.py")


def test_accelerate_s_settings_of_deepspeed_are_read() -> None:
    text = """
distributed_type: DEEPSPEED
deepspeed_config:
  zero_stage: 3
  gradient_accumulation_steps: 4
  offload_optimizer_device: cpu
mixed_precision: bf16
num_processes: 8
"""
    found = read(f"{text}accelerate launch train.py --per_device_train_batch_size 2 --gradient_checkpointing")
    assert found.layout == Layout.parse("fsdp8 reshard mb2 recompute-full flash bf16")
    assert found.global_batch_size == 64
    assert "changed zero_optimization.offload_optimizer" in _told(found)


def test_accelerate_s_settings_of_megatron_are_read_as_far_as_they_go() -> None:
    text = """
distributed_type: MEGATRON_LM
megatron_lm_config:
  megatron_lm_tp_degree: 2
  megatron_lm_pp_degree: 2
  megatron_lm_sequence_parallelism: true
  megatron_lm_use_distributed_optimizer: true
  megatron_lm_recompute_activations: true
mixed_precision: bf16
num_processes: 16
"""
    found = read(text)
    assert found.layout == Layout.parse("zero4 tp2 sp pp2 1f1b mb1 recompute-selective flash bf16")
    assert "Megatron's own arguments say more" in _told(found)


def test_arguments_of_the_trainer_are_read_with_its_defaults() -> None:
    found = read(
        "torchrun --nproc-per-node 8 train.py --bf16 --fsdp 'full_shard auto_wrap' --output_dir x", "transformers"
    )
    assert found.layout == Layout.parse("fsdp8 reshard mb8 flash bf16")
    assert "assumed per_device_train_batch_size: 8" in _told(found)


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


def test_another_optimizer_is_told() -> None:
    told = _told(read("--per_device_train_batch_size 1 --optim adafactor", "transformers", 1))
    assert "changed optim: adafactor: another optimizer than AdamW" in told
