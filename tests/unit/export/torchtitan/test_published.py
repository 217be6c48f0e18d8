"""Launch settings that torchtitan publishes, read: values of ``models/llama3/train_configs`` of v0.2.2."""

from __future__ import annotations

import pytest

from autotuner.core.layout import Layout
from autotuner.export.formats import read
from tests.builders import present

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

LLAMA3_405B = """
[model]
name = "llama3"
flavor = "405B"
converters = ["quantize.linear.float8"]
[training]
local_batch_size = 2
seq_len = 8192
[parallelism]
data_parallel_shard_degree = -1
tensor_parallel_degree = 8
enable_async_tensor_parallel = true
[compile]
enable = true
[activation_checkpoint]
mode = "full"
[quantize.linear.float8]
enable_fsdp_float8_all_gather = true
precompute_float8_dynamic_scale_for_fsdp = true
filter_fqns = ["output"]
"""


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


def test_the_largest_model_s_recipe_is_said_to_be_assumed_since_its_file_names_none() -> None:
    notes = {note.setting: note.kind for note in read(LLAMA3_405B, num_ranks=128).notes}
    assert notes["quantize.linear.float8.recipe_name"] == "assumed"
    assert notes["quantize.linear.float8.enable_fsdp_float8_all_gather = true"] == "ignored"
