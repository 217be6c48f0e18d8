"""Launch settings that trainers publish, written as scripts of their shape: what is read of them, and what is told.

Scripts lie in ``launches``, each with its source; torchtitan's job files in ``torchtitan/test_torchtitan.py``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from autotuner.core.layout import Layout
from autotuner.exports.formats import read
from autotuner.exports.shared.target import Imported
from tests.builders import present

LAUNCHES = Path(__file__).parent / "launches"

MEGATRON = {
    "gpt3_175b.sh": (1024, "dp8 tp8 pp16 1f1b mb1 flash bf16", 1536, 2048, 174.6),
    "llama3_8b_fp8.sh": (None, "zero8 mb1 cudnn fp8 delayed", 128, 8192, 8.03),
    "llama3_8b_megatron_fsdp.sh": (None, "fsdp8 mb1 reshard fp32-reduce cudnn fp8 delayed", 128, 8192, 8.03),
    "mixtral_8x7b.sh": (64, "zero16 ep8 pp4 1f1b mb1 fp32-reduce flash bf16", 256, 4096, 46.7),
}


def _read(name: str, num_ranks: int | None = None, wanted: str | None = None) -> Imported:
    return read((LAUNCHES / name).read_text(), wanted, num_ranks)


def _told(found: Imported) -> str:
    return "\n".join(f"{note.kind} {note.setting}: {note.detail}" for note in found.notes)


@pytest.mark.parametrize("name", MEGATRON)
def test_a_published_script_of_megatron_is_the_layout_model_and_job_that_it_trains(name: str) -> None:
    num_ranks, words, batch, seq_len, billions = MEGATRON[name]
    found = _read(name, num_ranks)
    assert found.format == "megatron-lm"
    assert found.layout == Layout.parse(words)
    assert (found.global_batch_size, found.seq_len) == (batch, seq_len)
    assert present(found.model).num_parameters / 1e9 == pytest.approx(billions, rel=0.01)


@pytest.mark.parametrize("name", ["gpt3_175b.sh", "mixtral_8x7b.sh"])
def test_without_the_number_of_ranks_there_are_as_few_as_the_rest_needs(name: str) -> None:
    assert _read(name).layout.world_size == {"gpt3_175b.sh": 8 * 16, "mixtral_8x7b.sh": 8 * 4}[name]


def test_a_published_deepspeed_launch_is_read_with_its_batch_and_its_states_on_the_host() -> None:
    found = _read("llama_8b_zero_offload.json", 4)
    assert found.layout == Layout.parse("fsdp4 mb1 reshard flash bf16")
    assert found.global_batch_size == 4
    assert "changed zero_optimization.offload_optimizer: optimizer states are kept in the host's memory" in _told(found)
    assert _read("llama_8b_zero_offload.json", 1).layout.micro_batch_size == 4
    found = _read("llama2_7b_chat.sh", 8)
    assert found.layout == Layout.parse("fsdp8 mb4 reshard recompute-full flash bf16")
    assert (found.model_name, found.seq_len) == ("meta-llama/Llama-2-7b-hf", 512)
