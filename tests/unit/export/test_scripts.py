"""Launch scripts in the styles of trainers' examples, written for these tests: the layout that each starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotuner.export.registry import read
from autotuner.export.target import Imported

SCRIPTS = Path(__file__).parent / "scripts"

EXPECTED = {
    "hf_accelerate": ("accelerate", 8, 16, "fsdp8 mb2 reshard compiled flash bf16"),
    "hf_deepspeed": ("deepspeed", 8, 32, "fsdp8 mb4 reshard recompute-full flash bf16"),
    "hf_deepspeed_heredoc": ("deepspeed", 4, 8, "shardgrad4 mb2 flash bf16"),
    "hf_fsdp": ("transformers", 16, 16, "fsdp16 mb1 reshard flash bf16"),
    "hf_function_wrapper": ("transformers", 4, 32, "dp4 mb8 flash bf16"),
    "hf_torchrun": ("transformers", 8, 64, "dp8 mb2 recompute-full compiled flash bf16"),
    "megatron_arrays": ("megatron-lm", 32, 128, "zero4 tp4 pp2 1f1b mb2 fp32-reduce flash bf16"),
    "megatron_case": ("megatron-lm", 8, 32, "dp2 tp2 pp2 1f1b mb1 fp32-reduce flash bf16"),
    "megatron_deepspeed_sequence": ("megatron-lm", 8, 8, "zero2 cp4 mb1 cp-all_to_all fp32-reduce flash bf16"),
    "megatron_deepspeed_zero1": ("megatron-lm", 8, 32, "zero4 tp2 mb1 fp32-reduce flash bf16"),
    "megatron_deepspeed_zero2": ("megatron-lm", 8, 32, "shardgrad4 tp2 mb1 fp32-reduce flash bf16"),
    "megatron_deepspeed_zero3": ("megatron-lm", 8, 32, "fsdp4 tp2 mb1 reshard fp32-reduce flash bf16"),
    "megatron_file_condition": ("megatron-lm", 8, 16, "dp4 tp2 mb1 fp32-reduce flash bf16"),
    "megatron_functions": ("megatron-lm", 32, 32, "dp2 tp4 pp4 1f1b mb1 fp32-reduce flash bf16"),
    "megatron_heredoc_job": ("megatron-lm", 16, 32, "dp4 tp4 mb1 fp32-reduce flash bf16"),
    "megatron_interleaved": ("megatron-lm", 8, 64, "dp2 pp4 v2 interleaved_1f1b mb1 fp32-reduce flash bf16"),
    "megatron_let": ("megatron-lm", 32, 128, "dp4 tp4 pp2 1f1b mb1 fp32-reduce flash bf16"),
    "megatron_loop": ("megatron-lm", 4, 8, "tp4 mb1 flash bf16"),
    "megatron_moe": ("megatron-lm", 16, 64, "zero16 ep4 mb1 fp32-reduce flash bf16"),
    "megatron_recompute": ("megatron-lm", 8, 32, "dp4 tp2 mb2 fp32-reduce recompute-full flash bf16"),
    "megatron_short_tests": ("megatron-lm", 16, 64, "dp4 tp4 mb1 sp fp32-reduce flash bf16"),
    "megatron_slurm": ("megatron-lm", 64, 256, "dp4 tp8 pp2 1f1b mb1 fp32-reduce flash bf16"),
    "megatron_srun_torchrun": ("megatron-lm", 16, 64, "dp4 tp2 cp2 mb1 fp32-reduce flash bf16"),
    "megatron_strings": ("megatron-lm", 8, 64, "tp2 pp4 1f1b mb1 flash bf16"),
    "megatron_subshell": ("megatron-lm", 8, 64, "dp4 tp2 mb4 fp32-reduce flash bf16"),
    "nemo_run": ("nemo", 16, 128, "zero8 tp2 mb1 sp fp32-reduce flash bf16"),
    "nemo_srun_string": ("nemo", 32, 64, "zero16 tp2 mb1 fp32-reduce flash bf16"),
    "nemo_variables": ("nemo", 64, 256, "zero8 tp4 pp2 1f1b mb1 fp32-reduce recompute-full flash bf16"),
    "torchtitan_conditional": (
        "torchtitan",
        8,
        16,
        "fsdp4 pp2 1f1b lessfirst1 lesslast1 mb1 fp32-reduce recompute-full every2 flash bf16",
    ),
    "torchtitan_run_train": (
        "torchtitan",
        8,
        32,
        "fsdp4 tp2 mb8 sp reshard fp32-reduce recompute-full every2 flash bf16",
    ),
    "torchtitan_slurm": ("torchtitan", 32, 4, "fsdp4 tp8 mb1 sp reshard fp32-reduce recompute-full every2 flash bf16"),
    "torchtitan_with_toml": (
        "torchtitan",
        8,
        2,
        "fsdp2 tp4 mb1 sp reshard fp32-reduce recompute-full every2 flash bf16",
    ),
}
"""Format, ranks, global batch and layout, checked by eye against the script."""


def _told(found: Imported) -> list[str]:
    return [f"{note.kind} {note.setting}: {note.detail}" for note in found.notes]


def test_every_script_has_its_layout_here() -> None:
    assert {path.stem for path in SCRIPTS.glob("*.sh")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_script_is_the_layout_that_it_starts(name: str) -> None:
    found = read((SCRIPTS / f"{name}.sh").read_text())
    assert (found.format, found.num_ranks, found.global_batch_size, str(found.layout)) == EXPECTED[name]


@pytest.mark.parametrize("name", [name for name in EXPECTED if not name.startswith("torchtitan")])
def test_every_flag_of_a_command_is_used_or_named(name: str) -> None:
    """A flag that no trainer has is named; so would be any other that nothing reads."""
    text = (SCRIPTS / f"{name}.sh").read_text()
    setting = "trainer.strategy.made_up=7" if name.startswith("nemo") else "--made-up-flag 7"
    for before in (
        "--micro-batch-size",
        "--per_device_train_batch_size",
        "data.micro_batch_size",
        "model.micro_batch_size",
    ):
        text = text.replace(before, f"{setting} {before}", 1)
    if setting not in text:
        text = text.replace("--deepspeed_config", f"{setting} --deepspeed_config", 1)
    assert f"unknown {setting}: is not understood, or has no effect here" in _told(read(text))


def test_stages_of_zero_in_a_script_of_megatron_deepspeed_are_read() -> None:
    levels = [str(read((SCRIPTS / f"megatron_deepspeed_zero{n}.sh").read_text()).layout).split()[0] for n in (1, 2, 3)]
    assert levels == ["zero4", "shardgrad4", "fsdp4"]


def test_arguments_of_the_trainer_count_whatever_starts_it() -> None:
    flags = "--per_device_train_batch_size 2 --bf16 True --torch_compile --optim adamw_bnb_8bit --use_liger_kernel"
    for launcher in ("torchrun --nproc_per_node 8", "accelerate launch --num_processes 8", "deepspeed --num_gpus 8"):
        found = read(f"{launcher} train.py {flags}")
        assert "compiled flash bf16" in str(found.layout)
        told = "\n".join(_told(found))
        assert "changed optim: adamw_bnb_8bit: another optimizer than AdamW" in told
        assert "ignored --use-liger-kernel: Liger's fused kernels" in told


def test_what_a_file_decides_is_named_as_left_out() -> None:
    found = read((SCRIPTS / "megatron_file_condition.sh").read_text())
    left_out = "--load $CKPT/latest depends on a condition that only a run decides, and was left out"
    assert f"ignored script: {left_out}" in _told(found)


def test_a_job_file_may_stand_before_its_script() -> None:
    script, document = (SCRIPTS / "torchtitan_with_toml.sh").read_text().split("# llama3_8b.toml\n")
    assert str(read(f"{document}\n{script}").layout) == EXPECTED["torchtitan_with_toml"][3]
