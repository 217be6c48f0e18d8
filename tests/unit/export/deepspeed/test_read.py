"""DeepSpeed's configurations and the scripts that start it, as people write them."""

from __future__ import annotations

import pytest

from autotuner.core.errors import InvalidInput
from autotuner.core.layout import Layout
from autotuner.export.registry import read
from autotuner.export.target import Imported

_AUTO = """
{
  // as Hugging Face's guides have it
  "zero_optimization": {"stage": 2, "reduce_bucket_size": 5e8, "overlap_comm": true,},
  "bf16": {"enabled": "auto"},
  "train_micro_batch_size_per_gpu": "auto",  # from the arguments
  "gradient_accumulation_steps": "auto",
}
"""


def _told(found: Imported) -> str:
    return "\n".join(f"{note.kind} {note.setting}: {note.detail}" for note in found.notes)


def test_auto_is_filled_in_from_the_command_beside_it() -> None:
    batch = "--per_device_train_batch_size 4 --gradient_accumulation_steps 2"
    command = f"deepspeed --num_gpus 8 train.py {batch} --bf16 true"
    found = read(f"{command}\n{_AUTO}", "deepspeed")
    assert found.layout == Layout.parse("shardgrad8 mb4 flash bf16")
    assert found.global_batch_size == 64
    assert '"auto"' not in _told(found)


def test_auto_that_nothing_fills_in_is_told() -> None:
    told = _told(read(_AUTO, "deepspeed", 8))
    assert 'assumed train_micro_batch_size_per_gpu: "auto" is filled in' in told
    assert "assumed bf16.enabled" in told


def test_ranks_follow_from_the_batch_equation() -> None:
    text = '{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4}'
    assert read(text).num_ranks == 8


def test_a_batch_that_does_not_split_is_refused_with_one_that_does() -> None:
    text = '{"train_batch_size": 65, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4}'
    with pytest.raises(InvalidInput, match=r"train_batch_size = 65.*nearest legal value: 64"):
        read(text, "deepspeed", 8)


def test_ranks_that_tensor_ranks_do_not_divide_are_refused() -> None:
    text = '{"train_micro_batch_size_per_gpu": 1, "tensor_parallel": {"autotp_size": 4}}'
    with pytest.raises(InvalidInput, match="num_ranks = 6: must be a multiple of 4"):
        read(text, "deepspeed", 6)


def test_a_key_that_deepspeed_would_ignore_is_told_with_the_one_that_is_meant() -> None:
    text = '{"train_batch_size": 8, "zero_optimisation": {"stage": 3}}'
    told = _told(read(text, "deepspeed", 8))
    assert "ignored zero_optimisation: DeepSpeed knows no such key" in told
    assert "did you mean zero_optimization?" in told


def test_what_waits_in_the_host_s_memory_is_told() -> None:
    text = '{"train_batch_size": 8, "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}}'
    assert "changed zero_optimization.offload_param: parameters wait in the host" in _told(read(text, "deepspeed", 8))


def test_fp16_is_read_as_the_nearest_format() -> None:
    found = read('{"train_batch_size": 8, "fp16": {"enabled": true}}', "deepspeed", 8)
    assert found.layout == Layout.parse("dp8 mb1 flash bf16")
    assert "changed fp16.enabled" in _told(found)


def test_one_rank_has_nothing_to_shard() -> None:
    found = read('{"train_batch_size": 4, "zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}', None, 1)
    assert found.layout == Layout.parse("mb4 flash bf16")
    assert "stage 3 runs as stage 0" in _told(found)


def test_a_script_that_writes_its_configuration_is_read_with_its_variables() -> None:
    text = """
        BATCH=${1:-16}
        cat > ds.json << END
        {
            "train_batch_size": $BATCH,
            "zero_optimization": {"stage": 1},
            "bf16": {"enabled": true}
        }
        END
        CMD="deepspeed --num_gpus 4 train.py \\
            --deepspeed_config ds.json --max_length 4096 --model_name meta-llama/Llama-3.1-8B \\
            --gradient_checkpointing"
        eval $CMD
    """
    found = read(text)
    assert found.layout == Layout.parse("zero4 mb4 recompute-full bucket1000000000 flash bf16")
    assert (found.seq_len, found.model_name, found.num_ranks) == (4096, "meta-llama/Llama-3.1-8B", 4)


def test_a_configuration_that_is_only_named_is_asked_for() -> None:
    found = read("deepspeed --num_gpus 8 train.py --deepspeed_config ds.json --per_device_train_batch_size 2")
    assert "ignored ds.json: the file is not opened: paste its contents too" in _told(found)
