"""DeepSpeed's configuration, written and read back."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from autotuner.core.errors import InvalidInput
from autotuner.core.layout import Layout
from autotuner.export.deepspeed.read import DEEPSPEED
from autotuner.export.registry import export, read, recognised
from tests.builders import big_job
from tests.unit.export.sayable import in_its_words, sayable


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
        *(
            "{",
            "}",
            '"',
            ":",
            ",",
            "\n",
            "//",
            "/*",
            "#",
            "--",
            "zero_stage",
            "zero_optimization",
            "stage",
            "3",
            "auto",
        ),
        *("train_batch_size", "bf16", "enabled", "true", "-1", "1e999", "NaN", "[", "]", "deepspeed", "$A", "\\"),
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
    try:
        read(text, "deepspeed")
    except InvalidInput:
        return


@given(
    config=st.dictionaries(_PATHS, _VALUES | st.dictionaries(_KEYS, _VALUES)), num_ranks=st.none() | st.integers(1, 64)
)
@settings(max_examples=200)
def test_any_values_of_known_keys_are_read_or_refused(config: dict[str, object], num_ranks: int | None) -> None:
    try:
        read(json.dumps(config), "deepspeed", num_ranks)
    except InvalidInput:
        return


def test_a_configuration_and_a_command_are_recognised() -> None:
    assert recognised(export(big_job(), Layout(), "deepspeed").text) == DEEPSPEED
    assert recognised("deepspeed --num_gpus 8 train.py --zero_stage 2") == DEEPSPEED
