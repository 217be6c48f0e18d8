from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotuner.core.errors import InvalidInput
from autotuner.core.layout import Layout
from autotuner.export.deepspeed import DEEPSPEED
from autotuner.export.formats import export, read, recognised
from autotuner.export.target import Imported
from tests.builders import big_job
from tests.unit.export.sayable import in_its_words, sayable


# ---------------------------------------------------------------- DeepSpeed's configuration, written and read back
@given(layout=sayable(DEEPSPEED, big_job()))
def test_what_deepspeed_can_say_is_read_back_as_it_was(layout: Layout) -> None:
    exported = export(big_job(), layout, "deepspeed")
    assert exported.unsaid == ()
    imported = read(exported.text, "deepspeed", layout.world_size)
    assert in_its_words(DEEPSPEED, imported.layout) == in_its_words(DEEPSPEED, layout)
    assert imported.global_batch_size == 1024


@given(layout=sayable(DEEPSPEED, big_job()))
def test_the_batch_sizes_alone_tell_the_ranks(layout: Layout) -> None:
    imported = read(export(big_job(), layout, "deepspeed").text)
    assert imported.num_ranks == layout.world_size


_WORDS = st.sampled_from(
    [
        *("{", "}", '"', ":", ",", "\n", "//", "/*", "#", "--", "zero_stage", "zero_optimization", "stage", "3"),
        *("auto", "train_batch_size", "bf16", "enabled", "true", "-1", "1e999", "NaN", "[", "]", "deepspeed", "$A"),
        "\\",
    ]
)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("auto"),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)
_PATHS = st.sampled_from(
    [
        *("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "bf16", "fp16"),
        *("zero_optimization", "tensor_parallel", "pipeline", "sequence_parallel_size", "expert_parallel"),
    ]
)
_KEYS = st.sampled_from(["enabled", "stage", "autotp_size", "reduce_bucket_size", "stages", "autoep_size"])


@given(text=st.lists(_WORDS, max_size=20).map(" ".join) | st.text())
@settings(max_examples=200)
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(InvalidInput):
        read(text, "deepspeed")


@given(
    config=st.dictionaries(_PATHS, _VALUES | st.dictionaries(_KEYS, _VALUES)), num_ranks=st.none() | st.integers(1, 64)
)
@settings(max_examples=200)
def test_any_values_of_known_keys_are_read_or_refused(config: dict[str, object], num_ranks: int | None) -> None:
    with suppress(InvalidInput):
        read(json.dumps(config), "deepspeed", num_ranks)


def test_configurations_are_recognised_with_whole_elements_and_ranks_that_fit() -> None:
    assert recognised(export(big_job(), Layout(), "deepspeed").text) == DEEPSPEED
    assert recognised("deepspeed --num_gpus 8 train.py --zero_stage 2") == DEEPSPEED
    (reason,) = export(big_job(), Layout.parse("zero8 bucket1001"), "deepspeed").unsaid  # others are golden outputs
    assert (reason.rule, reason.nearest) == ("deepspeed-counts-whole-elements", 1002)
    text = '{"train_micro_batch_size_per_gpu": 1, "tensor_parallel": {"autotp_size": 4}}'
    with pytest.raises(InvalidInput, match="num_ranks = 6: must be a multiple of 4"):
        read(text, "deepspeed", 6)
    found = read('{"train_batch_size": 4, "zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}', None, 1)
    assert found.layout == Layout.parse("mb4 flash bf16")
    assert "stage 3 runs as stage 0" in _told(found)


# ---------------------------------------------------------------- write


# ---------------------------------------------------------------- read
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


def test_auto_is_filled_in_from_the_command_beside_it_or_told() -> None:
    batch = "--per_device_train_batch_size 4 --gradient_accumulation_steps 2"
    command = f"deepspeed --num_gpus 8 train.py {batch} --bf16 true"
    found = read(f"{command}\n{_AUTO}", "deepspeed")
    assert found.layout == Layout.parse("shardgrad8 mb4 flash bf16")
    assert found.global_batch_size == 64
    assert '"auto"' not in _told(found)
    told = _told(read(_AUTO, "deepspeed", 8))
    assert 'assumed train_micro_batch_size_per_gpu: "auto" is filled in' in told
    assert "assumed bf16.enabled" in told
