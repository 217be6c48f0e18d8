"""The configuration of ``accelerate launch``, written and read back."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from autotuner.core.errors import InvalidInput
from autotuner.core.layout import Layout
from autotuner.export.huggingface.targets import ACCELERATE
from autotuner.export.registry import export, read
from tests.builders import big_job
from tests.unit.export.sayable import in_its_words, sayable


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
        *(
            "parallelism_config:",
            "parallelism_config_tp_size:",
            "num_processes:",
            "8",
            "-1",
            "true",
            "[",
            "{",
            "&a",
            "*a",
        ),
        *("--", "accelerate", "launch", "--fsdp_sharding_strategy", "HYBRID_SHARD", "mixed_precision:", "fp16", "x"),
    ]
)


@given(text=st.lists(_WORDS, max_size=20).map(" ".join) | st.text())
@settings(max_examples=200)
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        read(text, "accelerate")
    except InvalidInput:
        return
